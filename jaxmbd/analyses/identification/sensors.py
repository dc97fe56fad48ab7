"""What instruments read: functions of a state."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model.model import unknown
from ...model.values import as_leaf
from ...system.abstract import AbstractSystem, State, Time
from ...system.acceleration import accelerations
from ...system.driving_forces import driving_forces
from ...system.joint_states import JointState, joint_states
from ...system.reactions import reactions


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


class AngularVelocity(AbstractSensor):
    """Angular velocity of a frame along its own axes, shape `(3,)` [rad/s]: a gyroscope."""

    frame: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "3"]:
        return system.twists(t, state.q, state.v)[self.frame][3:]


class Accelerometer(AbstractSensor):
    """Acceleration of a frame less that of free fall, along its own axes, shape `(3,)` [m/s²].

    **Arguments:** `frame`, its name, and `gravity`, the acceleration of free fall in the world.
    """

    frame: str = eqx.field(static=True)
    gravity: Float[Array, "3"]

    def __init__(self, frame: str, gravity: Any = (0.0, 0.0, -9.81)):
        self.frame = frame
        self.gravity = as_leaf(gravity, (3,), "Accelerometer: gravity")

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "3"]:
        vdot, _ = accelerations(system, t, state)

        def velocity(t: Time, q: Array, v: Array) -> Array:
            """Of the frame's origin, along the axes of the world."""
            return system.frames(t, q)[self.frame].R @ system.twists(t, q, v)[self.frame][:3]

        tangents = jnp.ones_like(t), system.rates(state.q, state.v), vdot
        _, rate = jax.jvp(velocity, (t, state.q, state.v), tangents)
        gravity = jnp.asarray(self.gravity, rate.dtype)
        return (rate - gravity) @ system.frames(t, state.q)[self.frame].R


class JointReaction(AbstractSensor):
    """Wrench `[f, τ]` that a joint transmits, as `reactions` gives it, shape `(6,)` [N, N m]."""

    joint: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "6"]:
        found = reactions(system, t, state)
        if self.joint not in found:
            raise ModelError(unknown("sensor: unknown joint", self.joint, found))
        return found[self.joint]


class DriverForce(AbstractSensor):
    """Force or torque of one of the model's drivers [N or N m]."""

    driver: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, ""]:
        found = driving_forces(system, t, state)
        if self.driver not in found:
            raise ModelError(unknown("sensor: unknown driver", self.driver, found))
        return found[self.driver]


class Calibrated(AbstractSensor):
    """`scale · reading + bias` of another sensor, whose clock is late by `delay` [s].

    The three are leaves that a fit may vary: `"sensors.gyro.bias"`, for a sensor `"gyro"`. What was
    true a delay ago follows from velocities and accelerations, q ⊞ (-v τ + v̇ τ²/2), v - v̇ τ, with
    an error of order τ³: delays are short beside what the motion does.

    **Arguments:** `sensor`; `bias`, in its unit, and `scale`, a number or one for each component;
    `delay`; nothing works out accelerations where it is left out.
    """

    sensor: Callable[..., Array]
    bias: Float[Array, "..."]
    scale: Float[Array, "..."]
    delay: Float[Array, ""] | None

    def __init__(
        self, sensor: Callable[..., Array], bias: Any = 0.0, scale: Any = 1.0, delay: Any = None
    ):
        self.sensor = sensor
        self.bias = as_leaf(bias, None, "Calibrated: bias")
        self.scale = as_leaf(scale, None, "Calibrated: scale")
        self.delay = None if delay is None else as_leaf(delay, (), "Calibrated: delay")

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        if self.delay is not None:
            tau = jnp.asarray(self.delay, t.dtype)
            vdot, _ = accelerations(system, t, state)
            q = system.retract(state.q, -tau * state.v + 0.5 * tau**2 * vdot)
            t, state = t - tau, State(q, state.v - tau * vdot)
        reading = self.sensor(system, t, state)
        scale, bias = (jnp.asarray(x, reading.dtype) for x in (self.scale, self.bias))
        return scale * reading + bias
