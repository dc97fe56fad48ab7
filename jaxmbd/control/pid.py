"""PID controllers, continuous and sampled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..forces.abstract import Time
from ..forces.abstract_controller import AbstractController, as_outputs
from ..model.values import all_concrete, as_leaf, not_positive
from ..sensors import JointPosition, JointVelocity
from ..signals import as_signal, signal_shape
from .checks import as_sensors, unreadable

Memory = dict[str, Float[Array, "..."]]


class PID(AbstractController):
    """A PID controller of a joint or of a sensor's reading, an entry of `Model.forces`:

        u = kp e + I + D,     dI/dt = ki e + (sat(u) - u) / T,     D = kd (de/dt filtered)

    with the error e = setpoint - reading, and sat(u) as command. For a joint, de/dt is the rate of
    the setpoint less the joint's velocity; the optional filter is of first order with time constant
    τ and initial state zero. For a sensor without `rate`, a continuous controller uses
    D = kd s / (1 + τ s) e, which needs τ, with zero error before the start.

    With a period h it samples, and holds the command in between:

        I' = I + h (ki e + (sat(u) - u) / T),     D = kd d,     d = (τ d' + h de/dt) / (τ + h)

    with d' of the sample before. Without a rate, de/dt is the difference of two errors over h, zero
    at the first sample.

    Angles are the sensor's: within (-π, π] in formulations without joint coordinates.

    **Arguments:**

    - `measured`: name of a joint, or a kinematic sensor; `rate`: a sensor of its derivative.
    - `output`: as for `Controller`. Default: the joint. All quantities have the shape of its
      command.
    - `kp`, `ki`, `kd`: gains, numbers or one for each component. Default of `kd`: no derivative.
    - `setpoint`: a number or a signal, of the reading's shape.
    - `filter_time`: τ, positive [s]. Default: no filter.
    - `limits`: `(lower, upper)` of the command. Default: none.
    - `tracking_time`: T, positive [s], the time in which the integral follows a command at its
      limit. Default: kp / ki.
    - `period`: h, positive [s]. Default: None, continuous.

    **Raises** `ModelError` for incompatible arguments.

    For example:

        servo = mbd.PID("hinge", kp=60.0, ki=120.0, kd=12.0, setpoint=1.2, limits=(-12.0, 12.0))
    """

    sensors: Any
    outputs: Any
    kp: Float[Array, "..."]
    ki: Float[Array, "..."]
    kd: Float[Array, "..."] | None
    setpoint: Callable
    filter_time: Float[Array, ""] | None
    limits: tuple[Float[Array, "..."], Float[Array, "..."]] | None
    tracking_time: Float[Array, ""] | None
    sample_time: Float[Array, ""] | None

    def __init__(
        self,
        measured: Any,
        output: Any = None,
        kp: Any = 0.0,
        ki: Any = 0.0,
        kd: Any = None,
        *,
        setpoint: Any = 0.0,
        rate: Any = None,
        filter_time: Any = None,
        limits: Any = None,
        tracking_time: Any = None,
        period: Any = None,
    ):
        if isinstance(measured, str):
            output = measured if output is None else output
            rate = JointVelocity(measured) if rate is None else rate
            measured = JointPosition(measured)
        if output is None:
            raise ModelError("PID: a sensor needs output, the joint or frame of the command")
        given = {"reading": measured} | ({} if rate is None or kd is None else {"rate": rate})
        self.sensors = as_sensors(given, "PID")
        self.outputs = as_outputs(output, "PID")
        self.kp, self.ki = (as_leaf(x, None, f"PID: k{n}") for x, n in ((kp, "p"), (ki, "i")))
        self.kd = _leaf(kd, "kd", None)
        self.setpoint = as_signal(setpoint, "PID: setpoint")
        self.filter_time = _leaf(filter_time, "filter_time")
        if limits is not None and (not isinstance(limits, list | tuple) or len(limits) != 2):
            raise ModelError(f"PID: limits must be (lower, upper), got {limits!r}")
        self.limits = None
        if limits is not None:
            low, high = (as_leaf(x, None, "PID: limits") for x in limits)
            self.limits = low, high
        self.tracking_time = _leaf(tracking_time, "tracking_time")
        self.sample_time = _leaf(period, "period")
        differentiates = kd is not None and rate is None and period is None
        if differentiates and filter_time is None:
            raise ModelError(
                "PID: the derivative of a sensor's reading needs filter_time, rate or period"
            )

    def validate(self) -> str | None:
        names = ["filter_time", "tracking_time", "sample_time"]
        problem = not_positive(self, *[name for name in names if getattr(self, name) is not None])
        if problem is not None:
            return problem.replace("sample_time", "period")
        if self.limits is not None and all_concrete((self.limits, self.kp)):
            if not np.all(np.asarray(self.limits[0]) < np.asarray(self.limits[1])):
                return f"limits must be (lower, upper), got {self.limits[0]} and {self.limits[1]}"
            if self.tracking_time is None and not np.all(np.asarray(self.kp)):
                return "limits without kp need tracking_time, as kp / ki is zero"
        return unreadable(self.sensors)

    def initial_memory(self) -> Memory:
        zeros = jnp.zeros(signal_shape(self.setpoint), jnp.result_type(float))
        names = ["integral"]
        if self.kd is not None:
            names += ["slope"] if self.filter_time is not None else []
            if self.sample_time is not None and "rate" not in self.sensors:
                names += ["error", "started"]
        return dict.fromkeys(names, zeros)

    def evaluate(
        self, t: Time, readings: Memory, memory: Memory
    ) -> tuple[Float[Array, "..."], Memory]:
        goal, goal_rate = jax.jvp(self.setpoint, (t,), (jnp.ones_like(t),))
        if goal.shape != readings["reading"].shape:
            raise ValueError(
                f"the setpoint has shape {goal.shape}, the reading {readings['reading'].shape}"
            )
        error = goal - readings["reading"]
        unlimited, after = self.kp * error + memory["integral"], {}
        if self.kd is not None:
            slope = goal_rate - readings["rate"] if "rate" in readings else None
            of = self._continuous if self.sample_time is None else self._sampled
            slope, after = of(error, slope, memory)
            unlimited = unlimited + self.kd * slope
        command, rate = unlimited, self.ki * error
        if self.limits is not None:
            command = jnp.clip(unlimited, *self.limits)
            tracking = self.tracking_time
            per_time = self.ki / self.kp if tracking is None else 1.0 / tracking
            rate = rate + per_time * (command - unlimited)
        if self.sample_time is not None:
            rate = memory["integral"] + self.sample_time * rate
        return command, {**after, "integral": rate}

    def _continuous(
        self, error: Array, slope: Array | None, memory: Memory
    ) -> tuple[Array, Memory]:
        """Compute de/dt and the rate of the filter's state of a continuous controller.

        The filter's input is `slope`, or the error if the controller has no `rate`.
        """
        if self.filter_time is None:
            assert slope is not None  # See `__init__`.
            return slope, {}
        change = ((error if slope is None else slope) - memory["slope"]) / self.filter_time
        return (change if slope is None else memory["slope"]), {"slope": change}

    def _sampled(self, error: Array, slope: Array | None, memory: Memory) -> tuple[Array, Memory]:
        """de/dt, and its next memory."""
        after, h = {}, self.sample_time
        assert h is not None
        if slope is None:
            slope = memory["started"] * (error - memory["error"]) / h
            after = {"error": error, "started": jnp.ones_like(error)}
        if self.filter_time is not None:
            tau = self.filter_time
            slope = (tau * memory["slope"] + h * slope) / (tau + h)
            after["slope"] = slope
        return slope, after


def _leaf(value: Any, name: str, shape: Any = ()) -> Float[Array, "..."] | None:
    return None if value is None else as_leaf(value, shape, f"PID: {name}")
