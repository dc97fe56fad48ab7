"""What instruments read: functions of a state."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...bodies import RigidBody
from ...errors import ModelError
from ...joints import Free
from ...joints.components import periodic_coordinates
from ...joints.rotation import FreeRotation
from ...lie import Pose
from ...model import Frame, Model, ground
from ...model.model import unknown
from ...model.values import as_leaf
from ...system.abstract import AbstractSystem, State, Time
from ...system.acceleration import accelerations
from ...system.driving_forces import driving_forces
from ...system.elements import Fields
from ...system.joint_states import JointState, joint_states
from ...system.reactions import reactions


class AbstractSensor(eqx.Module):
    """A reading that a state determines; any callable of these arguments will do as well."""

    @abstractmethod
    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        """The reading at one instant."""

    def nearest(
        self, model: Model, reading: Float[Array, "*n"], measured: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        """Of all readings that mean the same as a given one, the nearest to what was measured.

        The residual of a fit is its difference to that. Default: the reading itself. Both arrays
        may have leading axes, such as that of time.
        """
        return reading


def _joint(system: AbstractSystem, t: Time, state: State, name: str) -> JointState:
    joints = joint_states(system, t, state)
    if name not in joints:
        raise ModelError(unknown("sensor: unknown joint", name, joints))
    return joints[name]


def nearest_reading(
    sensor: Callable[..., Array],
    model: Model,
    reading: Float[Array, "*n"],
    measured: Float[Array, "*n"],
) -> Float[Array, "*n"]:
    """`AbstractSensor.nearest` of any sensor; the reading itself of other callables."""
    if not isinstance(sensor, AbstractSensor):
        return reading
    return sensor.nearest(model, reading, measured)


class JointPosition(AbstractSensor):
    """Coordinates of a joint [rad or m; 1 for quaternions].

    In a fit angles are compared modulo whole turns, as some formulations and some encoders count
    them and others do not, and quaternions up to their sign and length. Lengths, and the angle of
    a screw, are compared as they are.
    """

    joint: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        return _joint(system, t, state, self.joint).q

    def nearest(
        self, model: Model, reading: Float[Array, "*n"], measured: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        joint = model.joints.get(self.joint)
        if joint is None:  # That of a body which floats, named after it.
            joint = Free(ground, Frame(self.joint))
        if joint.sizes()[0] and isinstance(joint.rotation, FreeRotation):
            turned = _nearest_quaternion(reading[..., -4:], measured[..., -4:])
            return jnp.concatenate([reading[..., :-4], turned], axis=-1)
        periodic = np.asarray(periodic_coordinates(joint))
        # Numbers of joints with one coordinate have no axis of their own.
        period = 2.0 * np.pi * (periodic[0] if periodic.size == 1 else periodic)
        turns = jnp.round((reading - measured) / (2.0 * np.pi))
        return reading - turns * jnp.broadcast_to(jnp.asarray(period, turns.dtype), turns.shape)


def _nearest_quaternion(
    reading: Float[Array, "*n 4"], measured: Float[Array, "*n 4"]
) -> Float[Array, "*n 4"]:
    """The quaternion of the same rotation, with the length measured and the nearer sign."""
    along = jnp.sum(reading * measured, axis=-1, keepdims=True)
    square = jnp.sum(reading * reading, axis=-1, keepdims=True)
    length = jnp.linalg.norm(measured, axis=-1, keepdims=True)
    return reading * jnp.where(along < 0, -length, length) / jnp.sqrt(square)


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

    Free fall is that of the model's fields at the frame: the part of their force on a mass there
    that grows with the mass, by that mass. Of `Gravity` this is `g`; a model without fields has
    none, and so have fields whose force no mass changes, such as drag or lift, which the instrument
    feels. Of a field of one's own it is ∂f/∂m of `wrench` for a body of 1 kg without extent whose
    frame is the instrument's. A force in proportion to mass and velocity counts as free fall too.

    **Arguments:** `frame`, its name, and `gravity`: the acceleration of free fall in the world, in
    place of that of the fields.
    """

    frame: str = eqx.field(static=True)
    gravity: Float[Array, "3"] | None

    def __init__(self, frame: str, gravity: Any = None):
        self.frame = frame
        known = None if gravity is None else as_leaf(gravity, (3,), "Accelerometer: gravity")
        self.gravity = known

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "3"]:
        vdot, _ = accelerations(system, t, state)

        def velocity(t: Time, q: Array, v: Array) -> Array:
            """Of the frame's origin, along the axes of the world."""
            return system.frames(t, q)[self.frame].R @ system.twists(t, q, v)[self.frame][:3]

        tangents = jnp.ones_like(t), system.rates(state.q, state.v), vdot
        _, rate = jax.jvp(velocity, (t, state.q, state.v), tangents)
        X = system.frames(t, state.q)[self.frame]
        if self.gravity is not None:
            return (rate - jnp.asarray(self.gravity, rate.dtype)) @ X.R
        return rate @ X.R - _free_fall(system, t, X, system.twists(t, state.q, state.v)[self.frame])


def _free_fall(system: AbstractSystem, t: Time, X: Pose, V: Float[Array, "6"]) -> Float[Array, "3"]:
    """Acceleration by the fields of a mass at a frame, along the frame's axes [m/s²]."""

    def force(mass: Float[Array, ""]) -> Float[Array, "3"]:
        extent = jnp.zeros((3, 3), dtype=mass.dtype)
        body = RigidBody(mass, extent, jnp.zeros(3, dtype=mass.dtype))
        total = jnp.zeros(3, dtype=mass.dtype)
        fields = [group for group in system.mechanism.elements if isinstance(group, Fields)]
        for group in fields:
            each = jax.vmap(lambda field: field.wrench(t, body, X, V)[:3])(group.element)
            total = total + jnp.sum(each, axis=0)
        return total

    one = jnp.ones((), dtype=X.p.dtype)
    return jax.jvp(force, (one,), (one,))[1]


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
            t, state = t - tau, State(q, state.v - tau * vdot, state.z)
        reading = self.sensor(system, t, state)
        scale, bias = (jnp.asarray(x, reading.dtype) for x in (self.scale, self.bias))
        return scale * reading + bias

    def nearest(
        self, model: Model, reading: Float[Array, "*n"], measured: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        bias, scale = (
            jnp.broadcast_to(jnp.asarray(x, reading.dtype), reading.shape)
            for x in (self.bias, self.scale)
        )
        zero = scale == 0  # It reads the bias alone.
        by = jnp.where(zero, 1.0, scale)
        own, wanted = (reading - bias) / by, (measured - bias) / by
        return reading + scale * (nearest_reading(self.sensor, model, own, wanted) - own)
