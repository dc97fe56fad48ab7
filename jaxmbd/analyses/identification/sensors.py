"""What instruments read: functions of a state."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model.model import unknown
from ...system.abstract import AbstractSystem, State, Time
from ...system.joint_states import JointState, joint_states


class AbstractSensor(eqx.Module):
    """A reading that a state determines; any callable of these arguments will do as well."""

    @abstractmethod
    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        """The reading at one instant."""


def _joint(system: AbstractSystem, t: Time, state: State, name: str) -> JointState:
    joints = joint_states(system, t, state)
    if name not in joints:
        raise ModelError(unknown("sensor: unknown joint", name, joints))
    return joints[name]


class JointPosition(AbstractSensor):
    """Coordinates of a joint [rad or m]."""

    joint: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        return _joint(system, t, state, self.joint).q


class JointVelocity(AbstractSensor):
    """Velocities of a joint [rad/s or m/s]."""

    joint: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        return _joint(system, t, state, self.joint).v


class FramePosition(AbstractSensor):
    """Position in the world of a body's frame or of a marker frame, shape `(3,)` [m]."""

    frame: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "3"]:
        return system.frames(t, state.q)[self.frame].p
