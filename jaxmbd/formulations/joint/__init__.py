"""Joint coordinates: the motion that joints leave free, from the ground outwards."""

from . import free as free  # Registers what it computes faster, as the next one does.
from . import newton_euler as newton_euler
from .system import JointCoordinates as JointCoordinates
from .system import JointSystem as JointSystem

__all__ = ["JointCoordinates", "JointSystem"]
