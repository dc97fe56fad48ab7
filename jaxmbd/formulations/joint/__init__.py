"""Joint coordinates: the motion that joints leave free, from the ground outwards."""

from .system import JointCoordinates as JointCoordinates
from .system import JointSystem as JointSystem

__all__ = ["JointCoordinates", "JointSystem"]
