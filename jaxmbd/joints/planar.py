"""Two flat faces sliding on each other."""

from typing import Any, ClassVar

from jaxtyping import Array, Float

from ..lie import so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, direction
from .abstract import AbstractJoint
from .rotation import AbstractRotation, AxisRotation


class Planar(AbstractJoint):
    """Translation in the plane whose normal is `axis` and rotation about it.

    The coordinates are `[x, y, angle]` [m, m, rad]; x and y run along the first two columns of
    `basis()`, which are the x and y axes of F if `axis` is z.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: normal of the plane in the axes of F (and of M at zero); any length but zero.

    For example:

        table = joints.Planar("ground", "puck")
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = (0, 1)
    rotation: ClassVar[AbstractRotation] = AxisRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "Planar: predecessor")
        self.successor = as_frame(successor, "Planar: successor")
        self.axis = as_direction(axis, "Planar: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)
