"""Joint coordinates: the free motions of the joints of a spanning tree."""

from . import free as free  # This import and the next one register faster functions.
from . import newton_euler as newton_euler
from .system import JointCoordinates as JointCoordinates
from .system import JointSystem as JointSystem

__all__ = ["JointCoordinates", "JointSystem"]
