"""Systems whose coordinates are points and vectors: every point of a body is linear in them.

Origins and vectors of frames are linear in q, and their scalar products quadratic, as
`SimoGonzalez` requires.
"""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float

from .abstract import AbstractSystem, Coordinates, Velocities
from .configuration import AbstractConfiguration


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
