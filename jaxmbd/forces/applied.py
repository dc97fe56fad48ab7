"""Forces and torques prescribed as functions of time."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose
from ..model.frame import Frame, as_frame
from ..signals import as_signal
from .abstract import AbstractFrameForce, Time


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
