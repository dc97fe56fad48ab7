"""Checks of the sensors of controllers."""

from typing import Any

import jax

from ..errors import ModelError
from ..forces.controller import is_part
from ..sensors import AbstractSensor


def as_sensors(value: Any, who: str) -> Any:
    """Sensors in a dict or a tuple, or one sensor; **raises** `ModelError` for anything else."""
    sensors = tuple(value) if isinstance(value, list) else value
    each = list(sensors.values()) if isinstance(sensors, dict) else sensors
    for sensor in each if isinstance(each, list | tuple) else [each]:
        if not isinstance(sensor, AbstractSensor) or any(map(callable, jax.tree.leaves(sensor))):
            raise ModelError(
                f"{who}: {sensor!r} is no sensor; take one of jaxmbd.sensors, or derive one from "
                "sensors.AbstractKinematicSensor"
            )
    return sensors


def unreadable(sensors: Any) -> str | None:
    """A message about the first sensor that is not kinematic; None if all are."""
    for sensor in jax.tree.leaves(sensors, is_leaf=is_part):
        if not sensor.kinematic:
            return (
                f"its sensor {type(sensor).__name__} needs accelerations or multipliers, which "
                "depend on its own commands; give a sensor of positions and velocities, such as "
                "JointPosition, JointVelocity, FramePosition or AngularVelocity"
            )
    return None


__all__ = ["as_sensors", "unreadable"]
