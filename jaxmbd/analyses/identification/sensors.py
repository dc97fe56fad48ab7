"""The sensors of `jaxmbd.sensors`, for fits."""

from ...sensors import (
    AbstractKinematicSensor,
    AbstractSensor,
    Accelerometer,
    AngularVelocity,
    Calibrated,
    DriverForce,
    ElementState,
    FrameOrientation,
    FramePosition,
    FrameVelocity,
    JointPosition,
    JointReaction,
    JointVelocity,
    nearest_reading,
)

__all__ = [
    "AbstractKinematicSensor",
    "AbstractSensor",
    "Accelerometer",
    "AngularVelocity",
    "Calibrated",
    "DriverForce",
    "ElementState",
    "FrameOrientation",
    "FramePosition",
    "FrameVelocity",
    "JointPosition",
    "JointReaction",
    "JointVelocity",
    "nearest_reading",
]
