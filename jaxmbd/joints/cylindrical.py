"""A shaft in a sleeve."""

from typing import Any, ClassVar

from jaxtyping import Array, Float

from ..lie import so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, direction
from .abstract import AbstractJoint
from .rotation import AbstractRotation, AxisRotation


class Cylindrical(AbstractJoint):
    """Translation along and rotation about one axis; coordinates `[displacement, angle]` [m, rad].

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: direction of the axis in the axes of F (and of M at zero); any length but zero.

    For example:

        sleeve = joints.Cylindrical("ground", "rod", axis=[1, 0, 0])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = (2,)
    rotation: ClassVar[AbstractRotation] = AxisRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "Cylindrical: predecessor")
        self.successor = as_frame(successor, "Cylindrical: successor")
        self.axis = as_direction(axis, "Cylindrical: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)
