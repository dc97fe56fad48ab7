"""What a kind of body is: its kinetic energy, and where frames on it are."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..lie import Pose


class AbstractBody(eqx.Module):
    """A body with a frame of reference and k elastic coordinates η.

    Its velocities are the twist V of its frame along the frame's own axes, and η̇. The equations
    follow from the kinetic energy T(η, V, η̇), the elastic energy U(η) and the damping force:

        d/dt ∂T/∂V + V ×* ∂T/∂V = W,   d/dt ∂T/∂η̇ - ∂T/∂η + ∂U/∂η + d(η, η̇) = Q

    A kind of body with elastic coordinates defines `n_elastic`, `kinetic_energy`, `frame`, and what
    it has of `elastic_energy` and `damping_force`.
    """

    @property
    def n_elastic(self) -> int:
        """k, which shapes and static fields decide."""
        return 0

    @abstractmethod
    def kinetic_energy(
        self, eta: Float[Array, "k"], V: Float[Array, "6"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, ""]:
        """T [J], quadratic in the velocities."""

    def frame(self, offset: Pose, eta: Float[Array, "k"]) -> Pose:
        """Pose in the body's frame of what has the pose `offset` there at η = 0.

        Default: `offset`, of bodies that do not deform where they are touched.
        """
        return offset

    def elastic_energy(self, eta: Float[Array, "k"]) -> Float[Array, ""]:
        """U [J]. Default: zero."""
        return jnp.zeros((), dtype=eta.dtype)

    def damping_force(
        self, eta: Float[Array, "k"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, "k"]:
        """d, which resists η̇. Default: zero."""
        return jnp.zeros_like(eta_dot)

    def is_concrete(self) -> bool:
        """Whether `validate` has judged all values. Default: True."""
        return True

    def is_possible(self) -> Bool[Array, ""]:
        """Whether the values make sense; traceable. Default: True."""
        return jnp.array(True)

    def validate(self) -> str | None:
        """Why the values make no sense, or None; traced values are not judged."""
        return None


__all__ = ["AbstractBody"]
