"""A pin that slides along the x axis of a slot and turns about its z axis."""

from typing import ClassVar

import jaxmbd as mbd
from jaxmbd.joints.rotation import AbstractRotation, AxisRotation


class PinInSlot(mbd.joints.AbstractJoint):
    """Translation along the first vector of the basis, rotation about the third."""

    predecessor: mbd.Frame
    successor: mbd.Frame
    translation: ClassVar[tuple[int, ...]] = (0,)
    rotation: ClassVar[AbstractRotation] = AxisRotation()
