"""The spherical joint: a ball in a socket."""

from typing import Any, ClassVar

from ..model.frame import Frame, as_frame
from .abstract import AbstractJoint
from .rotation import AbstractRotation, FreeRotation


class Spherical(AbstractJoint):
    """Any rotation about one point.

    The coordinate is a quaternion `w x y z`. The velocity is the angular velocity of M in F along
    the axes of M [rad/s].

    **Arguments:** `predecessor` and `successor`, a `Frame` each, or the name of a body for its own
    frame.

    For example:

        ball = joints.Spherical(mbd.Frame("rod", [1.0, 0, 0]), "load")
    """

    predecessor: Frame
    successor: Frame
    translation: ClassVar[tuple[int, ...]] = ()
    rotation: ClassVar[AbstractRotation] = FreeRotation()

    def __init__(self, predecessor: Any, successor: Any):
        self.predecessor = as_frame(predecessor, "Spherical: predecessor")
        self.successor = as_frame(successor, "Spherical: successor")
