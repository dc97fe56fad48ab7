"""A weld."""

from typing import Any, ClassVar

from ..model.frame import Frame, as_frame
from .abstract import AbstractJoint
from .rotation import AbstractRotation, NoRotation


class Fixed(AbstractJoint):
    """No relative motion.

    **Arguments:** `predecessor` and `successor`, a `Frame` each, or the name of a body for its own
    frame.

    For example:

        weld = joints.Fixed(mbd.Frame("arm", [0.3, 0, 0]), "tool")
    """

    predecessor: Frame
    successor: Frame
    translation: ClassVar[tuple[int, ...]] = ()
    rotation: ClassVar[AbstractRotation] = NoRotation()

    def __init__(self, predecessor: Any, successor: Any):
        self.predecessor = as_frame(predecessor, "Fixed: predecessor")
        self.successor = as_frame(successor, "Fixed: successor")
