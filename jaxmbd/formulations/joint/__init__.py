"""Joint coordinates: the motion that joints leave free, from the ground outwards."""

from . import newton_euler as newton_euler  # Registers what it computes faster.
from .system import JointCoordinates as JointCoordinates
from .system import JointSystem as JointSystem

__all__ = ["JointCoordinates", "JointSystem"]
