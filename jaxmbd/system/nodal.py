"""Systems whose coordinates are points and vectors: every point of a body is linear in them.

The poses of frames then are, before their axes are made orthonormal, linear in q, and scalar
products of what they consist of quadratic. That is what `SimoGonzalez` rests on.
"""

from abc import abstractmethod

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..lie import Pose, gram_schmidt
from .abstract import AbstractSystem, Coordinates, Time, Velocities
from .configuration import AbstractConfiguration
from .two_point import conservative_slopes, invariants, relative_pose


class NodalFrame(eqx.Module):
    """A frame on an element: its origin, the element's vectors, and its own axes in these.

    - `p`: shape `(..., 3)` [m]; `B`: the vectors as columns, shape `(..., 3, 3)`; both are linear
      in the coordinates.
    - `offset`: rotation of the frame in the body, shape `(..., 3, 3)`.
    """

    p: Float[Array, "*batch 3"]
    B: Float[Array, "*batch 3 3"]
    offset: Float[Array, "*batch 3 3"]

    @property
    def axes(self) -> Float[Array, "*batch 3 3"]:
        """Its axes as they come, orthonormal as far as the vectors are."""
        return self.B @ self.offset


class AbstractNodalSystem(AbstractSystem[AbstractConfiguration]):
    """Equations in points and vectors.

    Constraints on the coordinates, other than couplings, are quadratic in them.
    """

    @property
    def constant_mass(self) -> bool:
        return True

    def rigid(self) -> "AbstractNodalSystem":
        return self

    @abstractmethod
    def element_frames(self, q: Coordinates) -> NodalFrame:
        """Every port, `p` and `B` linear in q."""

    @abstractmethod
    def constraint_of(self, q: Coordinates) -> Float[Array, "n_intrinsic"]:
        """`intrinsic_constraint` as a function of the coordinates alone."""

    @abstractmethod
    def momentum_of(self, v: Velocities) -> Velocities:
        """M v, also of changes of v."""

    @abstractmethod
    def internal_force_between(self, q0: Coordinates, q1: Coordinates) -> Velocities:
        """What the formulation's own springs resist with over a step.

        Its work along q₁ - q₀ is the change of `internal_potential`, and it has neither a resultant
        nor a moment about the mean of the two ends.
        """


def conservative_force_between(
    system: AbstractNodalSystem, t: Time, q0: Coordinates, q1: Coordinates
) -> Velocities:
    """Generalized force of the potentials in `Model.forces` over a step from q₀ to q₁.

    It does the work that they lose, and none in a rotation of everything about the mean.
    """
    frames0, back = jax.vjp(system.element_frames, q0)
    slopes = conservative_slopes(system.mechanism, t, frames0, system.element_frames(q1))
    return -back(slopes)[0]


class Relation(eqx.Module):
    """Scalar products of the vectors of two frames, and of those with what lies between them."""

    gram_A: Float[Array, "3 3"]
    gram_B: Float[Array, "3 3"]
    p: Float[Array, "3"]
    R: Float[Array, "3 3"]
    offset_A: Float[Array, "3 3"]
    offset_B: Float[Array, "3 3"]


@invariants.register
def _(A: NodalFrame, B: NodalFrame) -> Relation:
    gaps = A.B.T @ (B.p - A.p), A.B.T @ B.B
    return Relation(A.B.T @ A.B, B.B.T @ B.B, *gaps, A.offset, B.offset)


@relative_pose.register
def _(found: Relation) -> Pose:
    T_A, T_B = gram_schmidt.triangle(found.gram_A), gram_schmidt.triangle(found.gram_B)
    to_A = (T_A @ found.offset_A).T
    return Pose(to_A @ found.p, to_A @ found.R @ T_B @ found.offset_B)


__all__ = [
    "AbstractNodalSystem",
    "NodalFrame",
    "conservative_force_between",
]
