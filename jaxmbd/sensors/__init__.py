"""Sensors: functions of a state.

Controllers use sensors of positions and velocities only, `AbstractKinematicSensor`.
"""

from .abstract import AbstractKinematicSensor as AbstractKinematicSensor
from .abstract import AbstractSensor as AbstractSensor
from .abstract import nearest_reading as nearest_reading
from .calibrated import Calibrated as Calibrated
from .dynamic import Accelerometer as Accelerometer
from .dynamic import ContactForce as ContactForce
from .dynamic import DriverForce as DriverForce
from .dynamic import ElementState as ElementState
from .dynamic import JointReaction as JointReaction
from .elastic import Modal as Modal
from .elastic import Strain as Strain
from .elastic import Stress as Stress
from .kinematic import AngularVelocity as AngularVelocity
from .kinematic import FrameOrientation as FrameOrientation
from .kinematic import FramePosition as FramePosition
from .kinematic import FrameVelocity as FrameVelocity
from .kinematic import JointPosition as JointPosition
from .kinematic import JointVelocity as JointVelocity

__all__ = [
    "AbstractKinematicSensor",
    "AbstractSensor",
    "Accelerometer",
    "AngularVelocity",
    "Calibrated",
    "ContactForce",
    "DriverForce",
    "ElementState",
    "FrameOrientation",
    "FramePosition",
    "FrameVelocity",
    "JointPosition",
    "JointReaction",
    "JointVelocity",
    "Modal",
    "Strain",
    "Stress",
    "nearest_reading",
]
