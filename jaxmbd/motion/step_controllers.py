"""Step size controllers that modify the steps of another one."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import IncompatibleIntegrator
from ..programs.tracing import stop_gradients
from ..system import sizes
from ..system.abstract import AbstractSystem, State, Time
from ..system.loads import Surfaces, time_tolerance


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


# Step size control that measures errors by the sizes and the motion of the mechanism --------------

# Steps over which errors of velocities add up to errors of positions: some tens of periods.
N_STEPS = 1000.0
# Rounding errors of a step, in units of those of the coordinates.
ROUNDING = 16.0
# Rounding errors of the error estimate of a step, in units of those of the state.
MOST_ROUNDING = 100.0
# Parts of the least motion, and of the time of the whole motion, that the first step may take.
FIRST_MOTION, FIRST_TIME = 0.1, 1e-4


class Scales(NamedTuple):
    """Sizes of coordinates and velocities, the first coordinates, and the time of the motion [s].

    `is_displacement`: whether a coordinate has the unit of a length.
    """

    q: Float[Array, "nq"]
    v: Float[Array, "nv"]
    is_displacement: Bool[Array, "nq"]
    start: Float[Array, "nq"]
    span: Float[Array, ""]


class MeasuresByMotion(AbstractWrappedController):
    """A step size controller whose tolerance is a part of the mechanism's sizes and its motion.

    σ is the largest change of any coordinate so far, as a part of its size, from ⁴√ε to 1, so that
    vibrations are as accurate as large motions. Errors are measured

    - of coordinates by their size times σ, and of displacements also by the distance moved;
    - of velocities by their value, and by their size times σ per time of the motion, or ⁴√ε of the
      fastest velocity;
    - of first-order states, whose size is not known, by their value, plus ⁴√ε of their largest
      value so far and √ε of their unit. In a step in which a state leaves zero, it is also measured
      by its rate times the time of the motion, the only size that is known there.

    The sizes are those of `AbstractSystem.sizes`.

    **Arguments:** `controller`: chooses the steps; `atol` is its tolerance, and `rtol` not used.
    """

    controller: diffrax.AbstractAdaptiveStepSizeController
    scales: Scales | None

    def __init__(self, controller: Any, scales: Scales | None = None):
        self.controller, self.scales = controller, scales

    def begun(self, start: Start) -> tuple[Any, Any]:
        y0 = start.y0
        sigma, z = self._moved(_least(y0), y0), jnp.abs(jax.lax.stop_gradient(y0.z))
        if start.dt0 is None:
            rates = start.func(start.terms, start.t0, y0, start.args)
            start = start._replace(dt0=self._first_step(*stop_gradients((sigma, rates))))
        end, inner = super().begun(start)
        return end, (inner, sigma, z)

    def _first_step(self, sigma: Float[Array, ""], rates: State) -> Float[Array, ""]:
        """A step in which the motion changes by a small part of its size [s]."""
        scales, limit = self._scales, FIRST_MOTION * sigma
        fastest = jnp.max(jnp.abs(rates.q) / scales.q, initial=0.0) / limit
        strongest = jnp.sqrt(jnp.max(jnp.abs(rates.v) / scales.v, initial=0.0) / limit)
        rate = jnp.maximum(jnp.maximum(fastest, strongest), 1.0 / (FIRST_TIME * scales.span))
        return jnp.where(jnp.isfinite(rate), 1.0 / rate, FIRST_TIME * scales.span)

    def adapted(self, step: Step, state: Any) -> Choice:
        (inner, before, largest), error = state, step.error
        if error is not None:
            ends = stop_gradients((before, largest, step.t1 - step.t0, step.y0, step.y1))
            error = jax.tree.map(jnp.divide, error, self._measures(*ends))
        zeros = jax.tree.map(jnp.zeros_like, step.y0)
        chosen = super().adapted(step._replace(y0=zeros, y1=zeros, error=error), inner)
        sigma = jnp.where(chosen.keep, self._moved(before, step.y1), before)
        z = jnp.abs(jax.lax.stop_gradient(step.y1.z))
        largest = jnp.where(chosen.keep, jnp.maximum(largest, z), largest)
        return chosen._replace(state=(chosen.state, sigma, largest))

    def _moved(self, sigma: Any, y: State) -> Float[Array, ""]:
        """σ after a motion to a state."""
        scales, q = self._scales, jax.lax.stop_gradient(y.q)
        change = jnp.max(jnp.abs(q - scales.start) / scales.q, initial=0.0)
        return jnp.clip(change, sigma, 1.0)

    def _measures(
        self, sigma: Float[Array, ""], largest: Float[Array, "nz"], h: Any, y0: State, y1: State
    ) -> State:
        """Divisors of the errors of a step of length h [s]; `largest`: largest |z| before it."""
        scales, eps = self._scales, float(jnp.finfo(y0.q.dtype).eps)
        sigma = self._moved(sigma, y1)
        ends = (y0.q, y1.q), (y0.v, y1.v), (y0.z, y1.z)
        q, v, z = (jnp.maximum(jnp.abs(a), jnp.abs(b)) for a, b in ends)
        moved = jnp.maximum(jnp.abs(y0.q - scales.start), jnp.abs(y1.q - scales.start))
        of_q = scales.q * sigma + jnp.where(scales.is_displacement, moved, 0.0)
        fastest = _least(y0) * jnp.max(v / scales.v, initial=0.0)
        rate = sigma / jnp.minimum(scales.span, N_STEPS * h) + fastest
        of_z = z + _least(y0) * jnp.maximum(largest, z) + eps**0.5
        leaving = jnp.abs(y1.z - y0.z) * (scales.span / h)
        of_z = jnp.where(largest < _least(y0) * z, jnp.maximum(of_z, leaving), of_z)
        return State(of_q + ROUNDING * eps**0.5 * q, v + scales.v * rate, of_z)

    @property
    def _scales(self) -> Scales:
        assert self.scales is not None
        return self.scales


def _least(y: State) -> float:
    """⁴√ε, the least σ."""
    return float(jnp.finfo(y.q.dtype).eps) ** 0.25


def measured(controller: Any, system: AbstractSystem, t0: Time, t1: Time, start: State) -> Any:
    """A controller whose `MeasuresByMotion` have the scales of a motion."""

    def is_one(x: Any) -> bool:
        return isinstance(x, MeasuresByMotion)

    if not any(map(is_one, jax.tree.leaves(controller, is_leaf=is_one))):
        return controller
    system, t0, t1, start = stop_gradients((system, t0, t1, start))
    length = sizes.length(system, t0, start)
    of_q, of_v = system.sizes(length)
    is_displacement = of_q != system.sizes(jnp.zeros_like(length))[0]
    scales = Scales(of_q, of_v, is_displacement, start.q, t1 - t0)
    return jax.tree.map(
        lambda x: MeasuresByMotion(x.controller, scales) if is_one(x) else x,
        controller,
        is_leaf=is_one,
    )


def below_rounding(controller: Any, state: State, saved: Any) -> str:
    """In words, that tolerances are within rounding errors of a motion; empty if they are not.

    **Arguments:** `state`: the first state; `saved`: saved values, which may be infinite.
    """
    eps = float(jnp.finfo(state.q.dtype).eps)
    values = [np.ravel(np.asarray(x)) for x in jax.tree.leaves((state, saved))]
    sizes = np.abs(np.concatenate(values))
    largest = float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))

    def is_one(x: Any) -> bool:
        return isinstance(x, MeasuresByMotion | diffrax.PIDController)

    for x in jax.tree.leaves(controller, is_leaf=is_one):
        if not isinstance(x, diffrax.PIDController):
            continue
        rtol, atol = float(x.rtol), float(x.atol)
        if atol + rtol * largest < MOST_ROUNDING * eps * largest:
            return (
                f"the tolerances rtol={rtol:.3g} and atol={atol:.3g} are within the rounding "
                f"errors of {state.q.dtype}, up to {MOST_ROUNDING * eps:.0e} of the state: take "
                "larger ones"
            )
    return ""


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
