"""Revolute joints: rotation about one axis."""

from typing import Any, ClassVar

from jaxtyping import Array, Float

from ..lie import so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction
from .abstract import AbstractJoint
from .rotation import AbstractRotation, AxisRotation


class Revolute(AbstractJoint):
    """Rotation about one axis; the coordinate is the angle [rad].

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: direction of the axis in the axes of F (and of M at zero); any length but zero.

    For example:

        hinge = joints.Revolute("ground", mbd.Frame("door", [0, 0.4, 0]), axis=[0, 0, 1])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"]
    translation: ClassVar[tuple[int, ...]] = ()
    rotation: ClassVar[AbstractRotation] = AxisRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "Revolute: predecessor")
        self.successor = as_frame(successor, "Revolute: successor")
        self.axis = as_direction(axis, "Revolute: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)


__all__ = ["Revolute"]
