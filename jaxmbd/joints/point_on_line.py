"""A ball in a tube."""

from typing import Any, ClassVar

from jaxtyping import Array, Float

from ..lie import so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, direction
from .abstract import AbstractJoint
from .rotation import AbstractRotation, FreeRotation


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
