"""Points kept on a line, on a plane or at a distance."""

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Float

from ..lie import Pose, so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, as_leaf, direction, is_concrete
from .abstract import AbstractConstraint, AbstractJoint
from .rotation import AbstractRotation, FreeRotation


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


class PointOnLine(AbstractJoint):
    """The origin of M stays on a line fixed in F; M turns freely.

    The coordinates are `[displacement, quaternion]`, shape `(5,)`: the displacement along the line
    [m], and `w x y z`.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: direction of the line, through the origin of F, in the axes of F; any length but zero.

    For example:

        pin = joints.PointOnLine("slot", mbd.Frame("crank", [0.1, 0, 0]), axis=[1, 0, 0])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = (2,)
    rotation: ClassVar[AbstractRotation] = FreeRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "PointOnLine: predecessor")
        self.successor = as_frame(successor, "PointOnLine: successor")
        self.axis = as_direction(axis, "PointOnLine: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)


class PointOnPlane(AbstractJoint):
    """The origin of M stays in a plane fixed in F; M turns freely.

    The coordinates are `[x, y, quaternion]`, shape `(6,)`: displacements along the first two
    columns of `basis()` [m], and `w x y z`.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: normal of the plane, through the origin of F, in the axes of F; any length but zero.

    For example:

        foot = joints.PointOnPlane("ground", mbd.Frame("leg", [0, 0, -0.4]), axis=[0, 0, 1])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = (0, 1)
    rotation: ClassVar[AbstractRotation] = FreeRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "PointOnPlane: predecessor")
        self.successor = as_frame(successor, "PointOnPlane: successor")
        self.axis = as_direction(axis, "PointOnPlane: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)
