"""Joint coordinates: the free motions of the joints of a spanning tree."""

from . import free as free  # This import and the next two register faster functions.
from . import newton_euler as newton_euler
from . import rest_stiffness as rest_stiffness
from .system import JointCoordinates as JointCoordinates
from .system import JointSystem as JointSystem

__all__ = ["JointCoordinates", "JointSystem"]
