"""Step size controllers that modify the steps of another one."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import IncompatibleIntegrator, ModelError
from ..model.values import all_concrete
from ..programs.tracing import branched_error_if, stop_gradients
from ..system.abstract import AbstractSystem, Time
from ..system.loads import TIME_TOLERANCE, Surfaces, time_tolerance


class Start(NamedTuple):
    """What diffrax passes before the first step, in its order."""

    terms: Any
    t0: Any
    t1: Any
    y0: Any
    dt0: Any
    args: Any
    func: Any
    error_order: Any


class Step(NamedTuple):
    """What diffrax passes after a step, in its order, without the state of the controller."""

    t0: Any
    t1: Any
    y0: Any
    y1: Any
    args: Any
    error: Any
    error_order: Any


class Choice(NamedTuple):
    """Whether to keep a step, start and end of the next one, and the state of the controller."""

    keep: Any
    start: Any
    end: Any
    jump: Any
    state: Any
    result: Any


class AbstractWrappedController(diffrax.AbstractAdaptiveStepSizeController):
    """A step size controller with the tolerances and the error norm of `controller`.

    Override `begun` and `adapted`, which pass everything on to `controller`.
    """

    controller: eqx.AbstractVar[diffrax.AbstractAdaptiveStepSizeController]

    @property
    def rtol(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.controller.rtol

    @property
    def atol(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.controller.atol

    @property
    def norm(self) -> Any:  # pyright: ignore
        return self.controller.norm

    def wrap(self, direction: Any) -> Any:
        return eqx.tree_at(lambda own: own.controller, self, self.controller.wrap(direction))

    def begun(self, start: Start) -> tuple[Any, Any]:
        """The end of the first step, and the state of the controller."""
        return self.controller.init(*start)

    def adapted(self, step: Step, state: Any) -> Choice:
        """The choice after a step."""
        return Choice(*self.controller.adapt_step_size(*step, state))

    def init(
        self,
        terms: Any,
        t0: Any,
        t1: Any,
        y0: Any,
        dt0: Any,
        args: Any,
        func: Any,
        error_order: Any,
    ) -> tuple[Any, Any]:
        return self.begun(Start(terms, t0, t1, y0, dt0, args, func, error_order))

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: Any,
    ) -> Any:
        step = Step(t0, t1, y0, y1_candidate, args, y_error, error_order)
        return tuple(self.adapted(step, controller_state))


# Step size control that repeats steps which jump over a contact -----------------------------------


class RejectsMissedContacts(AbstractWrappedController):
    """A step size controller that rejects steps within which surfaces meet and part again.

    A step is rejected as one of infinite error if gaps are open at both ends and, by the gaps and
    their rates there, may be negative between them, see `lowest_between`; or if a gap opens at the
    start and is closed at the end.

    **Arguments:** `controller`: chooses the steps; `surfaces`: the contacts.
    """

    controller: diffrax.AbstractAdaptiveStepSizeController
    surfaces: Surfaces

    def __init__(self, controller: diffrax.AbstractAdaptiveStepSizeController, surfaces: Surfaces):
        self.controller, self.surfaces = controller, surfaces

    def adapted(self, step: Step, state: Any) -> Choice:
        missed = self._is_missed(step.args, step.t0, step.t1, step.y0, step.y1)
        return super().adapted(
            step._replace(error=_where(missed, _full(step.error, jnp.inf), step.error)), state
        )

    def _is_missed(self, args: Any, t0: Any, t1: Any, y0: Any, y1: Any) -> Bool[Array, ""]:
        system, surfaces, t0, t1, y0, y1 = stop_gradients((args, self.surfaces, t0, t1, y0, y1))
        before, closing = surfaces.gaps(system, t0, y0)
        after, opening = surfaces.gaps(system, t1, y1)
        limit = closed(surfaces)
        h = t1 - t0
        lowest = lowest_between(before, h * closing, after, h * opening)
        passed = (before > limit) & (after > 0) & (lowest < -limit)
        hopped = (jnp.abs(before) <= limit) & (closing > 0) & (after < -limit)
        return jnp.any(passed | hopped)


def closed(surfaces: Surfaces) -> Float[Array, "n"]:
    """Gaps up to this size count as closed [m]: the thickness of the solid times √ε."""
    thickness = surfaces.thickness
    return float(jnp.finfo(thickness.dtype).eps) ** 0.5 * thickness


def lowest_between(
    a: Float[Array, "n"], a_rate: Float[Array, "n"], b: Float[Array, "n"], b_rate: Float[Array, "n"]
) -> Float[Array, "n"]:
    """Estimate of the minimum on (0, 1) of functions with these values and rates at 0 and 1.

    The smaller one of the minimum of the cubic and of the intersection of the tangents at the ends.
    The latter is a bound for convex functions, such as the gap of balls that pass each other on
    straight lines. Infinity if the function does not fall at 0 and rise at 1.
    """
    square = 3.0 * (b - a) - 2.0 * a_rate - b_rate
    cube = 2.0 * (a - b) + a_rate + b_rate
    falls = (a_rate < 0) & (b_rate > 0)
    root = jnp.sqrt(jnp.maximum(square * square - 3.0 * cube * a_rate, 0.0))
    s = jnp.where(falls, -a_rate / jnp.where(falls, square + root, 1.0), 0.0)
    cubic = a + s * (a_rate + s * (square + s * cube))
    s = jnp.where(falls, (b - b_rate - a) / jnp.where(falls, a_rate - b_rate, 1.0), 0.0)
    tangents = a + jnp.clip(s, 0.0, 1.0) * a_rate
    return jnp.where(falls, jnp.minimum(cubic, tangents), jnp.inf)


# Step size control that ends the run if steps collapse --------------------------------------------


class ControllerState(eqx.Module):
    """State of the wrapped controller; whether the last step was rejected as not finite."""

    inner: Any
    lost: Bool[Array, ""]


class StopsOnTinySteps(AbstractWrappedController):
    """A step size controller that ends the run if steps become too short to change the time.

    diffrax alone would take such steps until `max_steps`. A step to a state that is not finite is
    rejected as a step of infinite error, regardless of its error estimate: an infinite state
    divided by its own scale would be an error of zero, or NaN.

    **Arguments:** `controller`: chooses the steps; `method`: name of the integrator for messages.

    **Raises** `IncompatibleIntegrator` for an integrator without an estimate of its error.
    """

    controller: diffrax.AbstractAdaptiveStepSizeController
    method: str = eqx.field(static=True)

    def __init__(self, controller: diffrax.AbstractAdaptiveStepSizeController, method: str):
        self.controller, self.method = controller, method

    def _require(self, estimate: Any) -> None:
        if estimate is None:
            raise IncompatibleIntegrator(
                f"simulate: {self.method} estimates no error, so that steps cannot adapt; give a "
                "fixed step dt and no controller, or use an integrator such as diffrax.Tsit5()"
            )

    def begun(self, start: Start) -> tuple[Any, ControllerState]:
        self._require(start.error_order)
        end, inner = super().begun(start)
        return end, ControllerState(inner, jnp.array(False))

    def adapted(self, step: Step, state: ControllerState) -> Choice:
        self._require(step.error)
        lost = ~_all_finite(step.y1)
        failed = lost | ~_all_finite(step.error)
        y1, error = _where(failed, (step.y0, _full(step.error, jnp.inf)), (step.y1, step.error))
        chosen = super().adapted(step._replace(y1=y1, error=error), state.inner)
        start, end = chosen.start, chosen.end
        # Comparisons with NaN are false: a length of NaN ends the run too.
        collapsed = ~(end - start > _shortest(start))
        collapsed = collapsed & (~chosen.keep | ~(step.t1 - step.t0 > _shortest(step.t0)))
        ended: Any = diffrax.RESULTS.dt_min_reached
        is_end = collapsed & diffrax.is_successful(chosen.result)
        result = diffrax.RESULTS.where(is_end, ended, chosen.result)
        after = ControllerState(chosen.state, lost & ~chosen.keep)
        return chosen._replace(state=after, result=result)


def _shortest(t: Any) -> Any:
    """The length [s] below which a step does not change the time."""
    t = jnp.asarray(t)
    info = jnp.finfo(t.dtype)
    return jnp.maximum(2.0 * float(info.eps) * jnp.abs(t), float(info.eps) ** 2)


def _all_finite(tree: Any) -> Bool[Array, ""]:
    finite = jnp.array(True)
    for x in jax.tree.leaves(tree):
        finite = finite & jnp.all(jnp.isfinite(x))
    return finite


def _full(tree: Any, value: float) -> Any:
    return jax.tree.map(lambda x: jnp.full_like(x, value), tree)


def _where(condition: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


# Steps that end at the times at which elements with a period update their states ------------------


class StepsOnSampleTimes(AbstractWrappedController):
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
        return StepsOnSampleTimes(controller, periods), dt
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
