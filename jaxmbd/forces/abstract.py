"""What a force is: a law in terms of frames, of joint coordinates, or of bodies in a field.

No force knows the coordinates of the mechanism; formulations find its generalized force by
duality.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import RigidBody
from ..lie import Pose
from ..model.frame import JointReference

Time = Float[Array, ""]


class AbstractForce(eqx.Module):
    """Any entry of `Model.forces`."""

    def problem(self) -> str | None:
        """Why the values make no sense, or None; traced values are not judged."""
        return None


class AbstractFrameForce(AbstractForce):
    """A force law between the frames among its fields, in the order of the fields."""

    @abstractmethod
    def wrenches(
        self, t: Time, X: Pose, V: Float[Array, "n_frames 6"]
    ) -> Float[Array, "n_frames 6"]:
        """Wrench `[f, τ]` [N, N m] on each frame, expressed and taken there.

        `X` holds the poses of the frames in the world, `X.p` of shape `(n_frames, 3)`, and `V`
        their twists, each along the axes of its own frame.
        """

    def potential(self, t: Time, X: Pose) -> Float[Array, ""]:
        """Potential energy [J] of the conservative part; zero where there is none."""
        return jnp.zeros((), dtype=X.p.dtype)


class AbstractJointForce(AbstractForce):
    """A force law on the coordinates of one joint."""

    joint: eqx.AbstractVar[JointReference]

    @abstractmethod
    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """Generalized force [N or N m] on each velocity of the joint."""

    def potential(self, t: Time, q: Float[Array, "nq"]) -> Float[Array, ""]:
        """Potential energy [J] of the conservative part; zero where there is none."""
        return jnp.zeros((), dtype=q.dtype)


class AbstractField(AbstractForce):
    """A force law that acts on every body of the model."""

    @abstractmethod
    def wrench(
        self, t: Time, body: RigidBody, X_WB: Pose, V: Float[Array, "6"]
    ) -> Float[Array, "6"]:
        """Wrench `[f, τ]` [N, N m] on the body, expressed and taken at its frame."""

    def potential(self, t: Time, body: RigidBody, X_WB: Pose) -> Float[Array, ""]:
        """Potential energy [J] of the conservative part; zero where there is none."""
        return jnp.zeros((), dtype=X_WB.p.dtype)
