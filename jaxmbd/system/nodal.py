"""Systems whose coordinates are points and vectors: every point of a body is linear in them.

Origins and vectors of frames are linear in q, and their scalar products quadratic, as
`SimoGonzalez` requires.
"""

from abc import abstractmethod

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..lie import Pose, gram_schmidt
from .abstract import AbstractSystem, Coordinates, Time, Velocities
from .configuration import AbstractConfiguration
from .discrete_gradients import conservative_slopes, invariants, relative_pose


class NodalFrame(eqx.Module):
    """A frame on an element: its origin, the vectors of the element, and its axes in these.

    - `p`: shape `(..., 3)` [m]; `B`: the vectors as columns, shape `(..., 3, 3)`; both are linear
      in the coordinates.
    - `offset`: rotation of the frame in the body, shape `(..., 3, 3)`.
    """

    p: Float[Array, "*batch 3"]
    B: Float[Array, "*batch 3 3"]
    offset: Float[Array, "*batch 3 3"]

    @property
    def axes(self) -> Float[Array, "*batch 3 3"]:
        """Axes of the frame, orthonormal if the vectors are."""
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
        """Frames of all ports, with `p` and `B` linear in q."""

    @abstractmethod
    def constraint_of(self, q: Coordinates) -> Float[Array, "n_intrinsic"]:
        """`intrinsic_constraint` as a function of the coordinates."""

    @abstractmethod
    def momentum_of(self, v: Velocities) -> Velocities:
        """M v, shape `(nv,)`."""

    @abstractmethod
    def internal_force_between(self, q0: Coordinates, q1: Coordinates) -> Velocities:
        """Resistance of the formulation's own springs over a step from q₀ to q₁.

        Its work along q₁ - q₀ is the change of `internal_potential`. It has neither a resultant nor
        a moment about the mean of the two ends.
        """


def conservative_force_between(
    system: AbstractNodalSystem, t: Time, q0: Coordinates, q1: Coordinates
) -> Velocities:
    """Generalized force of the potentials in `Model.forces` over a step from q₀ to q₁.

    Its work over the step is the decrease of the potentials, and its work in a rigid rotation at
    the mean of the two ends is zero.
    """
    frames0, transpose = jax.vjp(system.element_frames, q0)
    slopes = conservative_slopes(system.mechanism, t, frames0, system.element_frames(q1))
    return -transpose(slopes)[0]


class Relation(eqx.Module):
    """Scalar products of the vectors of two frames and of the line between their origins."""

    gram_A: Float[Array, "3 3"]
    gram_B: Float[Array, "3 3"]
    p: Float[Array, "3"]
    R: Float[Array, "3 3"]
    offset_A: Float[Array, "3 3"]
    offset_B: Float[Array, "3 3"]


@invariants.register
def _(A: NodalFrame, B: NodalFrame) -> Relation:
    mixed = A.B.T @ (B.p - A.p), A.B.T @ B.B
    return Relation(A.B.T @ A.B, B.B.T @ B.B, *mixed, A.offset, B.offset)


@relative_pose.register
def _(relation: Relation) -> Pose:
    T_A, T_B = gram_schmidt.triangle(relation.gram_A), gram_schmidt.triangle(relation.gram_B)
    to_A = (T_A @ relation.offset_A).T
    return Pose(to_A @ relation.p, to_A @ relation.R @ T_B @ relation.offset_B)
