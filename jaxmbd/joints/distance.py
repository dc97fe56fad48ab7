"""A massless rod between two ball joints."""

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Float

from ..lie import Pose
from ..model.frame import Frame, as_frame
from ..model.values import as_leaf, is_concrete
from .abstract import AbstractConstraint


class Distance(AbstractConstraint):
    """A constant distance between the origins of F and M.

    The constraint has no coordinates: bodies without other joints float. The residual is
    (p·p - L²) / 2 L [m], to first order the difference of the lengths.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `length`: L [m], positive.

    For example:

        link = joints.Distance(mbd.Frame("a", [0.1, 0, 0]), "b", length=0.5)
    """

    predecessor: Frame
    successor: Frame
    length: Float[Array, ""]
    n_fixed: ClassVar[int] = 1

    def __init__(self, predecessor: Any, successor: Any, length: Any):
        self.predecessor = as_frame(predecessor, "Distance: predecessor")
        self.successor = as_frame(successor, "Distance: successor")
        self.length = as_leaf(length, (), "Distance: length")

    def validate(self) -> str | None:
        if is_concrete(self.length) and not np.asarray(self.length) > 0:
            return f"length must be positive, got {self.length}; use a Spherical joint for zero"
        return None

    def residual(self, X_FM: Pose) -> Float[Array, "1"]:
        return self._residual(X_FM.p)

    def frame_residual(self, F: Pose, M: Pose) -> Float[Array, "1"]:
        return self._residual(M.p - F.p)  # Quadratic in the points, independent of the axes.

    def _residual(self, d: Float[Array, "3"]) -> Float[Array, "1"]:
        return ((d @ d - self.length**2) / (2.0 * self.length))[None]
