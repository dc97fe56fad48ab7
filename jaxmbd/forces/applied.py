"""Forces and torques prescribed as functions of time, and gravity."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import AbstractBody, RigidBody
from ..lie import Pose, so3
from ..model.frame import Frame, JointReference, as_frame, as_joint_reference
from ..model.values import as_leaf
from ..signals import as_signal
from .abstract import AbstractField, AbstractFrameForce, AbstractJointForce, Time


def _in_frame(value: Float[Array, "3"], X: Pose, follower: bool) -> Float[Array, "3"]:
    return value if follower else X.R[0].T @ value


class AppliedForce(AbstractFrameForce):
    """A force at the origin of a frame.

    **Arguments:**

    - `frame`: a `Frame`, or the name of a body for its own frame.
    - `force`: three numbers or a signal of shape `(3,)` [N].
    - `follower`: whether the components are along the axes of the frame, so that the force turns
      with it. Default: False, along the axes of the world.

    For example:

        push = forces.AppliedForce("cart", [10.0, 0, 0])
    """

    frame: Frame
    signal: Callable
    signals_at_own_time: ClassVar[tuple[str, ...]] = ("signal",)
    follower: bool = eqx.field(static=True)

    def __init__(self, frame: Any, force: Any, follower: bool = False):
        self.frame = as_frame(frame, "AppliedForce: frame")
        self.signal = as_signal(force, "AppliedForce: force", (3,))
        self.follower = follower

    def wrenches(self, t: Time, X: Pose, V: Float[Array, "1 6"]) -> Float[Array, "1 6"]:
        force = _in_frame(self.signal(t), X, self.follower)
        return jnp.concatenate([force, jnp.zeros_like(force)])[None]


class AppliedTorque(AbstractFrameForce):
    """A torque on the body of a frame.

    **Arguments:** as for `AppliedForce`, with `torque` [N m].

    For example:

        turn = forces.AppliedTorque("rotor", signals.Sine([0, 0, 2.0], 1.0))
    """

    frame: Frame
    signal: Callable
    signals_at_own_time: ClassVar[tuple[str, ...]] = ("signal",)
    follower: bool = eqx.field(static=True)

    def __init__(self, frame: Any, torque: Any, follower: bool = False):
        self.frame = as_frame(frame, "AppliedTorque: frame")
        self.signal = as_signal(torque, "AppliedTorque: torque", (3,))
        self.follower = follower

    def wrenches(self, t: Time, X: Pose, V: Float[Array, "1 6"]) -> Float[Array, "1 6"]:
        torque = _in_frame(self.signal(t), X, self.follower)
        return jnp.concatenate([jnp.zeros_like(torque), torque])[None]


# Uniform gravity ----------------------------------------------------------------------------------


class Gravity(AbstractField):
    """Weight of every body; the potential energy is zero at the origin of the world.

    **Arguments:** `g`: acceleration of free fall in the world, shape `(3,)` [m/s²]. Default:
    `[0, 0, -9.81]`.

    For example:

        gravity = forces.Gravity([0, 0, -1.62])
    """

    g: Float[Array, "3"]

    def __init__(self, g: Any = (0.0, 0.0, -9.81)):
        self.g = as_leaf(g, (3,), "Gravity: g")

    def wrench(
        self, t: Time, body: RigidBody, X_WB: Pose, V: Float[Array, "6"]
    ) -> Float[Array, "6"]:
        weight = body.mass * (X_WB.R.T @ self.g)
        return jnp.concatenate([weight, so3.cross(body.com, weight)])

    def potential(self, t: Time, body: RigidBody, X_WB: Pose) -> Float[Array, ""]:
        return -body.mass * (self.g @ X_WB.apply(body.com))

    def load_of_body(
        self, t: Time, body: AbstractBody, X_WB: Pose, V: Float[Array, "6"], eta: Float[Array, "k"]
    ) -> Float[Array, "6+k"]:
        """Generalized weight: the momentum if all points have the velocity g."""
        return body.momentum_at_uniform_velocity(eta, X_WB.R.T @ self.g)

    def potential_of_body(
        self, t: Time, body: AbstractBody, X_WB: Pose, eta: Float[Array, "k"]
    ) -> Float[Array, ""]:
        """-m g · p of the centre of mass; momenta at uniform velocities give m and m c."""
        g = X_WB.R.T @ self.g

        def momentum(velocity: Float[Array, "3"]) -> Float[Array, "6"]:
            return body.momentum_at_uniform_velocity(eta, velocity)[:6]

        weight = momentum(g)[:3]
        H = jax.vmap(momentum)(jnp.eye(3, dtype=g.dtype))[:, 3:]  # Row i: m c × e_i.
        first = jnp.stack([H[1, 2], H[2, 0], H[0, 1]])
        return -(X_WB.p @ (X_WB.R @ weight)) - first @ g


# A force or torque on a joint as a function of time -----------------------------------------------


class JointTorque(AbstractJointForce):
    """Generalized force of a drive, on the successor and, with opposite sign, on the predecessor.

    **Arguments:**

    - `joint`: name of the joint.
    - `torque`: a number, one number for each velocity of the joint, or a signal of either shape
      [N m or N].

    For example:

        drive = forces.JointTorque("hinge", signals.Samples([0.0, 1.0], [0.0, 5.0]))
    """

    joint: JointReference
    signal: Callable
    signals_at_own_time: ClassVar[tuple[str, ...]] = ("signal",)

    def __init__(self, joint: Any, torque: Any):
        self.joint = as_joint_reference(joint, "JointTorque: joint")
        self.signal = as_signal(torque, "JointTorque: torque")

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return jnp.broadcast_to(self.signal(t), v.shape)
