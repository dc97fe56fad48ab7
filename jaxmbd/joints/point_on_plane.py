"""A ball between two plates."""

from typing import Any, ClassVar

from jaxtyping import Array, Float

from ..lie import so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, direction
from .abstract import AbstractJoint
from .rotation import AbstractRotation, FreeRotation


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
