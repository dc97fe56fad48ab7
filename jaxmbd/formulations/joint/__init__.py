"""Joint coordinates: the free motions of the joints of a spanning tree."""

# The first four imports register faster functions.
from . import acceleration_derivatives as acceleration_derivatives
from . import free as free
from . import newton_euler as newton_euler
from . import residual_derivatives as residual_derivatives
from .system import JointCoordinates as JointCoordinates
from .system import JointSystem as JointSystem

__all__ = ["JointCoordinates", "JointSystem"]
