"""A sensor with bias, scale and delay."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..mechanism.named_motion import AbstractNamedMotion
from ..model import Model
from ..model.values import as_leaf
from ..system.abstract import AbstractSystem, State, Time
from ..system.acceleration import accelerations
from ..system.loads import rates_at
from .abstract import AbstractSensor, nearest_reading


class Calibrated(AbstractSensor):
    """`scale · reading + bias` of another sensor, whose clock is late by `delay` [s].

    Bias, scale and delay are leaves that a fit may vary: `"sensors.gyro.bias"`, for a sensor
    `"gyro"`. The state before the delay is q ⊞ (-v τ + v̇ τ²/2), v - v̇ τ, z - ż τ, with errors of
    order τ³ in q and τ² in v and z: the delay must be short compared with changes of the motion.

    **Arguments:** `sensor`; `bias`, in its unit, and `scale`, a number or one for each component;
    `delay`. Default: no delay, which needs no accelerations.

    For example:

        potentiometer = sensors.Calibrated(sensors.JointPosition("hinge"), bias=0.02, scale=0.98)
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
            vdot, _ = accelerations(system.rigid(), t, state)
            q = system.retract(state.q, -tau * state.v + 0.5 * tau**2 * vdot)
            z = state.z - tau * rates_at(system, t, state)
            t, state = t - tau, State(q, state.v - tau * vdot, z)
        return self._calibrated(self.sensor(system, t, state))

    def _calibrated(self, reading: Float[Array, "*n"]) -> Float[Array, "*n"]:
        scale, bias = (jnp.asarray(x, reading.dtype) for x in (self.scale, self.bias))
        return scale * reading + bias

    def actual(self, reading: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The reading of the inner sensor at the same time, without bias and scale."""
        scale, bias = (jnp.asarray(x, reading.dtype) for x in (self.scale, self.bias))
        return (reading - bias) / scale

    @property
    def kinematic(self) -> bool:
        """True if the sensor is kinematic and there is no delay."""
        inner = self.sensor
        return self.delay is None and isinstance(inner, AbstractSensor) and inner.kinematic

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "..."]:
        if not self.kinematic:
            return super().read(motion)
        assert isinstance(self.sensor, AbstractSensor)
        return self._calibrated(self.sensor.read(motion))

    def nearest(
        self, model: Model, reading: Float[Array, "*n"], measured: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        bias, scale = (
            jnp.broadcast_to(jnp.asarray(x, reading.dtype), reading.shape)
            for x in (self.bias, self.scale)
        )
        zero = scale == 0  # The reading is the bias.
        by = jnp.where(zero, 1.0, scale)
        own, target = (reading - bias) / by, (measured - bias) / by
        return reading + scale * (nearest_reading(self.sensor, model, own, target) - own)
