"""Joint coordinates: the free motions of the joints of a spanning tree."""

from .system import JointCoordinates as JointCoordinates
from .system import JointSystem as JointSystem

__all__ = ["JointCoordinates", "JointSystem"]
