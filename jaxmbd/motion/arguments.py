"""System, first state, times and steps of an analysis from its arguments."""

from collections.abc import Mapping
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..formulations import formulate
from ..model import Model
from ..model.values import all_concrete, as_leaf, described, is_concrete, is_count
from ..programs.tracing import branched_error_if
from ..system.abstract import AbstractSystem, State, Time, as_state, as_time, require_system
from ..system.loads import TIME_TOLERANCE, time_tolerance
from .assemble import assemble
from .step_controllers import StepsOnSampleTimes


def as_system(system: Any, caller: str) -> AbstractSystem:
    """A system, or the one of a model in joint coordinates; messages name the analysis `caller`.

    **Raises** `ModelError` for anything else.
    """
    if isinstance(system, Model):
        return formulate(system)
    if isinstance(system, AbstractSystem):
        require_system(system)
        return system
    hint = "; pass an instance" if isinstance(system, type) else ""
    raise ModelError(
        f"{caller}: the first argument must be a Model or a system of `formulate`, got "
        f"{described(system)}{hint}"
    )


def as_start(
    system: AbstractSystem, state: Any, t: Any, caller: str, must_be_finite: bool = True
) -> State:
    """One state of a system in its float type, from a `State` or from values of joints at `t`.

    An empty mapping is the reference position at rest.

    **Raises** `ModelError` for anything else, for another shape, for numbers that are not finite
    and for a wider float type than the system's; and the errors of `assemble`.
    """
    if isinstance(state, Mapping):
        return assemble(system, state, t=t)
    if not isinstance(state, State):
        is_motion = hasattr(state, "continued")
        hint = "; continue a motion by its method `continued`" if is_motion else ""
        raise ModelError(
            f"{caller}: the state must be a State of `assemble`, or a dict {{joint: coordinates}}, "
            f"got {described(state)}{hint}"
        )
    check_state(system, state, caller, must_be_finite)
    return as_state(state, system)


def check_state(
    system: AbstractSystem, state: State, caller: str, must_be_finite: bool = True
) -> None:
    """**Raises** `ModelError` for another shape than one state has, and as `check_numbers`."""
    sizes = ("q", state.q, system.nq), ("v", state.v, system.nv), ("z", state.z, system.nz)
    for name, x, size in sizes:
        try:
            shape = jnp.shape(x)
        except TypeError as error:
            raise ModelError(
                f"{caller}: state.{name} must be an array, got {described(x)}"
            ) from error
        if shape != (size,):
            raise ModelError(
                f"{caller}: state.{name} has shape {shape}, this system needs ({size},); "
                "compute the state by `assemble` with this system, use vmap for a batch of states"
            )
    check_numbers(system, state, caller, must_be_finite)


def check_numbers(
    system: AbstractSystem, state: State, caller: str, must_be_finite: bool = True
) -> None:
    """**Raises** `ModelError` for infinite numbers and for quaternions of zeros, if not traced."""
    for name, x in (("q", state.q), ("v", state.v), ("z", state.z)):
        if not (must_be_finite and is_concrete(x)):
            continue
        bad = np.flatnonzero(~np.isfinite(np.asarray(x)))
        if bad.size:
            raise ModelError(
                f"{caller}: state.{name} must be finite, and is not at {bad.tolist()[:12]}; take a "
                "state of `assemble`, or the last finite one of a simulation"
            )
    places = system.quaternions()
    if len(places) and is_concrete(state.q):
        zeros = places[~np.any(np.asarray(state.q)[places], axis=1)]
        if len(zeros):
            raise ModelError(
                f"{caller}: state.q[{zeros[0, 0]}:{zeros[0, -1] + 1}] is a quaternion of zeros, "
                "which is not a rotation; no rotation is [1, 0, 0, 0]; compute the state by "
                "`assemble`"
            )


def check_options(controller: Any, event: Any, adjoint: Any) -> None:
    """**Raises** `ModelError` for options of `simulate` that are not instances of their classes."""
    for name, value, base, example in (
        ("controller", controller, diffrax.AbstractStepSizeController, "PIDController(rtol, atol)"),
        ("event", event, diffrax.Event, "Event(f)"),
        ("adjoint", adjoint, diffrax.AbstractAdjoint, "DirectAdjoint()"),
    ):
        if value is not None and not isinstance(value, base):
            raise ModelError(
                f"simulate: {name} must be one of diffrax, such as diffrax.{example}, got "
                f"{described(value)}"
            )


# Times of a simulation: its ends, its fixed steps, and the times to save --------------------------

DEFAULT_FRAMES = 201
# Steps are counted by 32-bit integers, and two steps more than needed are allowed.
MOST_STEPS = 2**31 - 4
# Saved states may take this many bytes: more are a mistake in `dt` or `saveat`.
MOST_BYTES = 2**34


def check_times(t0: Any, t1: Any, dt: Any, max_steps: Any) -> None:
    """**Raises** `ModelError` for ends or steps that are not numbers or impossible."""
    for name, value in (("t0", t0), ("t1", t1), ("dt", dt)):
        if value is not None or name != "dt":
            as_leaf(value, (), f"simulate: {name}")
    if max_steps is not None and not is_count(max_steps):
        raise ModelError(f"simulate: max_steps must be a whole number from 1 on, got {max_steps!r}")
    if not all_concrete((t0, t1)):
        return
    if not (np.isfinite(t0) and np.isfinite(t1) and t1 > t0):
        raise ModelError(f"simulate: t1 must come after t0, got t0={t0} and t1={t1}")
    if dt is not None and is_concrete(dt) and not (np.isfinite(dt) and dt > 0):
        raise ModelError(f"simulate: dt must be positive, got {dt}")


def check_rollout(dt: Any, n_steps: Any, t0: Any, caller: str = "rollout") -> None:
    """**Raises** `ModelError` for a step, a start or a number of steps that is not a number or
    impossible."""
    for name, value in (("dt", dt), ("t0", t0)):
        as_leaf(value, (), f"{caller}: {name}")
        if is_concrete(value) and not np.isfinite(value):
            raise ModelError(f"{caller}: {name} must be finite, got {value}")
    if not is_concrete(n_steps):
        raise ModelError(f"{caller}: n_steps is traced; pass a Python int, static under jit")
    if not is_count(n_steps) or n_steps > MOST_STEPS:
        raise ModelError(
            f"{caller}: n_steps must be a whole number from 1 to {MOST_STEPS}, got {n_steps!r}"
        )


def n_steps(t0: Any, t1: Any, dt: Any, caller: str = "simulate: dt") -> int:
    """Number of steps or intervals of length `dt` from `t0` to `t1`.

    **Raises** `ModelError`, with `caller`, if there are too many to count, or a number is traced.
    """
    if not all_concrete((t0, t1, dt)):
        raise ModelError("simulate: give max_steps if t0, t1 or dt are traced")
    n = np.ceil((float(t1) - float(t0)) / float(dt) - 1e-6)
    if not n <= MOST_STEPS:
        raise ModelError(
            f"{caller} = {float(dt):.6g} s divides the time from {float(t0):.6g} s to "
            f"{float(t1):.6g} s into {n:.3g} steps; at most {MOST_STEPS} are possible"
        )
    return int(n)


def as_saveat(
    saveat: Any, t0: Any, t1: Any, dt: Any, max_steps: int, system: AbstractSystem
) -> diffrax.SaveAt:
    """Times to save from the argument of `simulate`; `dt` is None for adaptive steps.

    With traced fixed steps, every one of at most `max_steps` is saved.

    **Raises** `ModelError` for times that are not between `t0` and `t1`, not increasing, no
    numbers, or too many.
    """

    def own(ts: Any) -> Array:
        return jnp.asarray(ts, dtype=system.mechanism.dtype)

    if isinstance(saveat, diffrax.SaveAt):
        _check_subs(saveat, t0, t1)
        return saveat
    if saveat is None and dt is None:
        ends = as_time(t0, system), as_time(t1, system)
        return diffrax.SaveAt(ts=jnp.linspace(*ends, DEFAULT_FRAMES))
    if saveat is None and not all_concrete((t0, t1, dt)):
        return diffrax.SaveAt(t0=True, steps=True)
    saveat = dt if saveat is None else saveat
    if all_concrete(saveat):  # Under `jit`, JAX would convert numbers to tracers.
        as_leaf(saveat, None, "simulate: saveat")
        saveat = np.asarray(saveat, dtype=float)
    if np.ndim(saveat) == 0:
        return diffrax.SaveAt(ts=own(_equally_spaced(saveat, t0, t1, system)))
    _check_saved(saveat, t0, t1)
    if all_concrete((saveat, t0, t1)):  # An end may be exceeded by rounding.
        saveat = np.clip(saveat, float(t0), float(t1))
    return diffrax.SaveAt(ts=own(saveat))


def _equally_spaced(interval: Any, t0: Any, t1: Any, system: AbstractSystem) -> np.ndarray:
    if not all_concrete((interval, t0, t1)):
        raise ModelError(
            "simulate: an interval saveat needs t0 and t1 that are not traced; give saveat as an "
            "array of times, such as jnp.linspace(t0, t1, n)"
        )
    if not (np.isfinite(interval) and interval > 0):
        raise ModelError(f"simulate: an interval saveat must be positive, got {float(interval)}")
    count = n_steps(t0, t1, interval, "simulate: saveat")
    size = (1 + system.nq + system.nv + system.nz) * system.mechanism.dtype.itemsize
    if (count + 1) * size > MOST_BYTES:
        raise ModelError(
            f"simulate: {count + 1} saved states take {(count + 1) * size / 1e9:.3g} GB; give "
            "saveat, a longer interval [s] or fewer times"
        )
    return np.minimum(float(t0) + np.arange(count + 1) * float(interval), float(t1))


def _check_subs(saveat: diffrax.SaveAt, t0: Any, t1: Any) -> None:
    def is_sub(x: Any) -> bool:
        return isinstance(x, diffrax.SubSaveAt)

    for sub in jax.tree.leaves(saveat.subs, is_leaf=is_sub):
        if is_sub(sub) and sub.ts is not None:
            _check_saved(sub.ts, t0, t1)


def _check_saved(ts: Any, t0: Any, t1: Any) -> None:
    if np.ndim(ts) != 1 or np.shape(ts)[0] == 0:
        raise ModelError(
            "simulate: saveat must be an interval [s] or one or more times, shape (n,), got shape "
            f"{np.shape(ts)}"
        )
    if not is_concrete(ts):
        return
    times = np.asarray(ts, dtype=float)
    if not np.all(np.isfinite(times)):
        raise ModelError(f"simulate: saveat must be finite, got {times[~np.isfinite(times)][0]}")
    if np.any(np.diff(times) < 0):
        last = times[:-1][np.diff(times) < 0][0]
        raise ModelError(f"simulate: saveat must increase, it does not after {last} s")
    if not all_concrete((t0, t1)):
        return
    first, last = float(t0), float(t1)
    rounding = 8.0 * float(jnp.finfo(jnp.result_type(float)).eps) * max(abs(first), abs(last))
    outside = times[(times < first - rounding) | (times > last + rounding)]
    if outside.size:
        raise ModelError(
            f"simulate: saveat contains {outside[-1]:.9g} s, outside of t0 = {first:.9g} s to "
            f"t1 = {last:.9g} s; omit it, or simulate longer"
        )


# Steps that end at the times at which elements with a period update their states ------------------


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
    groups = system.mechanism.sampled_groups
    if not groups:
        return controller, dt
    names = [name for group in groups for name in group.names]
    each = [jnp.broadcast_to(group.element.period, (len(group.names),)) for group in groups]
    periods = jnp.concatenate([jnp.zeros(0, dtype=system.mechanism.dtype), *each])
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
