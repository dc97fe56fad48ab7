"""Checks of the sensors of controllers."""

from typing import Any

import jax

from ..errors import ModelError
from ..forces.abstract_controller import is_part
from ..sensors import AbstractSensor


def as_sensors(value: Any, caller: str) -> Any:
    """Sensors in nested dicts and tuples, or one sensor.

    **Raises** `ModelError` for anything else.
    """
    if isinstance(value, dict):
        return {key: as_sensors(x, caller) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return tuple(as_sensors(x, caller) for x in value)
    if not isinstance(value, AbstractSensor) or any(map(callable, jax.tree.leaves(value))):
        raise ModelError(
            f"{caller}: {value!r} is not a sensor; take one of jaxmbd.sensors, or derive one from "
            "sensors.AbstractKinematicSensor"
        )
    return value


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
