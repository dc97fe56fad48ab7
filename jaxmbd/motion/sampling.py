"""Steps that end at the times at which elements with a period update their states."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ModelError
from ..model.values import all_concrete
from ..programs.run_time_checks import branched_error_if
from ..system.abstract import AbstractSystem, Time
from ..system.loads import TIME_TOLERANCE, time_tolerance
from .wrapped_controller import AbstractWrappedController, Choice, Start, Step


class EndsAtSamples(AbstractWrappedController):
    """A step size controller whose steps end at multiples of given periods.

    Integrators update elements with a period at the start of a step. A step that would end just
    before a multiple ends at it: otherwise two steps would count as starting at the multiple.

    **Arguments:** `controller`: chooses the steps; `periods`: [s], shape `(n,)`.
    """

    controller: diffrax.AbstractAdaptiveStepSizeController
    periods: Float[Array, "n"]

    def __init__(
        self, controller: diffrax.AbstractAdaptiveStepSizeController, periods: Float[Array, "n"]
    ):
        self.controller, self.periods = controller, periods

    def begun(self, start: Start) -> tuple[Any, Any]:
        end, inner = super().begun(start)
        return self._clipped(start.t0, end), inner

    def adapted(self, step: Step, state: Any) -> Choice:
        chosen = super().adapted(step, state)
        end = self._clipped(chosen.start, chosen.end)
        return chosen._replace(end=end, jump=chosen.jump | self._is_sample(chosen.start))

    def _clipped(self, start: Any, end: Any) -> Any:
        start, end = jnp.asarray(start), jnp.asarray(end)
        periods = jax.lax.stop_gradient(self.periods).astype(start.dtype)
        count = jnp.floor((start + _margin(start, periods)) / periods) + 1.0
        first = jnp.min(count * periods)
        return jnp.where(end > first - jnp.min(_margin(end, periods)), first, end)

    def _is_sample(self, t: Any) -> Bool[Array, ""]:
        """True if states are updated at time `t`, so that a derivative saved for it is invalid."""
        t = jnp.asarray(t)
        periods = jax.lax.stop_gradient(self.periods).astype(t.dtype)
        apart = jnp.abs(t - periods * jnp.round(t / periods))
        return jnp.any(apart <= _margin(t, periods))


def _margin(t: Any, periods: Any) -> Any:
    """Twice the difference up to which two times are the same for `loads.sampled`."""
    return 2.0 * time_tolerance(t, periods)


def sample_periods(system: AbstractSystem) -> tuple[list[str], Float[Array, "n"]]:
    """Names and periods [s] of all elements with a period."""
    names, periods = [], [jnp.zeros(0, dtype=system.mechanism.dtype)]
    for group in system.mechanism.sampled_groups:
        period = group.element.period
        assert period is not None
        names += group.names
        periods.append(jnp.broadcast_to(period, (len(group.names),)))
    return names, jnp.concatenate(periods)


def with_samples(
    system: AbstractSystem,
    controller: diffrax.AbstractStepSizeController,
    t0: Time,
    t1: Time,
    dt: Time | None,
) -> tuple[diffrax.AbstractStepSizeController, Time | None]:
    """A controller whose steps end at multiples of the periods of all elements, and the first step.

    **Raises** `ModelError`, with the element's name, if fixed steps miss a multiple of its period,
    and for controllers whose steps are not known. If steps are traced, it is an error at run time.
    """
    names, periods = sample_periods(system)
    if not names:
        return controller, dt
    if isinstance(controller, diffrax.AbstractAdaptiveStepSizeController):
        return EndsAtSamples(controller, periods), dt
    if isinstance(controller, diffrax.ConstantStepSize):
        assert dt is not None
        if all_concrete((t0, t1, dt, periods)):
            _check_fixed(names, periods, t0, t1, dt)
            return controller, dt
        return controller, _judged(names, periods, t0, dt)
    if isinstance(controller, diffrax.StepTo) and all_concrete((controller.ts, periods)):
        _check_chosen(names, periods, np.asarray(controller.ts, dtype=float))
        return controller, dt
    raise ModelError(
        f"simulate: whether steps of {type(controller).__name__} end at multiples of the period of "
        f"{names[0]!r} is not known; take dt, or an adaptive controller such as PIDController"
    )


def _samples(period: float, t0: float, t1: float) -> np.ndarray:
    """Multiples of a period from `t0` on and before `t1`."""
    return period * np.arange(
        np.ceil(t0 / period - TIME_TOLERANCE), np.ceil(t1 / period - TIME_TOLERANCE)
    )


def _check_fixed(names: list[str], periods: Any, t0: Any, t1: Any, dt: Any) -> None:
    eps = 8.0 * float(jnp.finfo(periods.dtype).eps)
    first, last, h = float(t0), float(t1), float(dt)
    for name, period in zip(names, np.asarray(periods, dtype=float), strict=True):
        times = _samples(period, first, last)
        apart = np.abs(times - (first + h * np.round((times - first) / h)))
        if np.any(apart > TIME_TOLERANCE * period + eps * np.abs(times)):
            raise ModelError(
                f"simulate: steps of dt = {h:.10g} s from t0 = {first:.10g} s miss multiples of "
                f"the period of {name!r}, {period:.10g} s; take the period divided by a whole "
                "number, or adaptive steps"
            )


def _check_chosen(names: list[str], periods: Any, ts: np.ndarray) -> None:
    eps = 8.0 * float(jnp.finfo(periods.dtype).eps)
    for name, period in zip(names, np.asarray(periods, dtype=float), strict=True):
        times = _samples(period, ts[0], ts[-1])
        nearest = ts[np.argmin(np.abs(ts[None] - times[:, None]), axis=1)]
        bad = np.abs(nearest - times) > TIME_TOLERANCE * period + eps * np.abs(times)
        if np.any(bad):
            raise ModelError(
                f"simulate: steps miss t = {times[np.argmax(bad)]:.10g} s, a multiple of the "
                f"period of {name!r}, {period:.10g} s; add it to the times of StepTo"
            )


def _judged(names: list[str], periods: Float[Array, "n"], t0: Time, dt: Time) -> Time:
    """`dt`, with an error at run time if its steps miss a multiple of a period."""
    offset = periods * jnp.ceil(t0 / periods - TIME_TOLERANCE) - t0

    def apart(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.abs(x - dt * jnp.round(x / dt))

    limit = time_tolerance(jnp.abs(t0) + periods, periods)
    bad = jnp.maximum(apart(periods), apart(offset)) > limit
    messages = [f"simulate: dt misses multiples of the period of {name!r}" for name in names]
    return branched_error_if(dt, jnp.any(bad), jnp.argmax(bad), messages)
