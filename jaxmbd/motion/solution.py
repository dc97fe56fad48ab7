"""The result of `simulate`, and checks that its states are finite and satisfy the constraints."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..errors import ModelError
from ..joints.abstract import n_rows
from ..model.values import all_concrete
from ..programs.tracing import kernel, of_rows, stop_gradients
from ..system import constraints, sizes
from ..system.abstract import AbstractSystem, State, Time
from ..system.equation_residuals import constraint_rates
from ..system.joint_states import joint_states
from ..system.loads import element_states
from .impacts import Impacts
from .motion import AbstractMotion
from .results import RESULTS


class Solution(AbstractMotion):
    """Motion of a system, the result of `simulate`.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n, or values of the function of a
      `diffrax.SaveAt`, if it has one. `ts` and `states` are None if only dense output is saved.
    - `result`: one of `jaxmbd.RESULTS`: success if the motion is complete, every saved number is
      finite and every constraint is satisfied; otherwise the cause of failure.
    - `system`: the system that moved.
    - `impacts`: an `Impacts`, the times and contacts of impacts; None unless `simulate` was called
      with `impacts`.
    - `raw`: the `diffrax.Solution`, with statistics, dense output and event mask.
    - `raw_without_samples`: `raw` without `ts` and `ys`, so that no program returns them twice.

    For example:

        motion = mbd.simulate(model, {"hinge": 0.3}, t1=0.5)
        motion.ts, motion.joint("hinge").q, motion.energy.total, motion.reactions["hinge"]
        motion.plot(), motion.to_xarray()
    """

    ts: Any
    states: Any
    system: AbstractSystem
    raw_without_samples: diffrax.Solution
    result: RESULTS
    impacts: Impacts | None

    def __init__(
        self,
        ts: Any,
        states: Any,
        system: AbstractSystem,
        raw: diffrax.Solution,
        result: RESULTS | None = None,
        impacts: Impacts | None = None,
    ):
        self.ts, self.states, self.system = ts, states, system
        self.raw_without_samples = _with_saved(raw, None, None)
        self.result = RESULTS.promote(raw.result) if result is None else result
        self.impacts = impacts

    @staticmethod
    def of(
        system: AbstractSystem,
        raw: diffrax.Solution,
        result: RESULTS | None = None,
        impacts: Impacts | None = None,
    ) -> "Solution":
        """From a diffrax solution. Default of `result`: diffrax's own."""
        return Solution(raw.ts, raw.ys, system, raw, result, impacts)

    @property
    def raw(self) -> diffrax.Solution:
        """The `diffrax.Solution`, with statistics, dense output and event mask."""
        return _with_saved(self.raw_without_samples, self.ts, self.states)

    @property
    def t0(self) -> Float[Array, ""]:
        """Start time [s]."""
        return jnp.asarray(self.raw_without_samples.t0)

    def continued(self, t1: Any, **options: Any) -> "Solution":
        """The motion continued from its last finite row to a later time.

        Step size control and implicit integrators start anew. Pass `max_steps` and `saveat` under
        a transformation; the result is then the continuation alone.

        **Arguments:** `t1`: the new last time [s]; `options`: as for `simulate`, without `t0`. They
        are not those of the motion: pass `dt`, `controller` and `integrator` again.

        **Returns** a `Solution` with the rows of both parts; `raw`, `result` and `impacts` are
        those of the continuation.

        **Raises** `ModelError` for a motion that has failed, a batch, or a motion without states at
        saved times; and the errors of `simulate`.
        """
        from .simulate import simulate  # Which returns this class.

        motion, states = self, self.states
        if not isinstance(states, State) or motion.ts.ndim != 1:
            raise ModelError(
                "continued: the motion must have states at saved times, and must not be a batch; "
                "take one motion of a batch with `motion`"
            )
        if "t0" in options:
            raise ModelError("continued: t0 is the last time of the motion; omit it")
        concrete = all_concrete((motion.ts, states, motion.result))
        if concrete and motion.result not in (RESULTS.successful, RESULTS.event_occurred):
            raise ModelError(f"continued: the motion has failed: {RESULTS[motion.result]}")
        if concrete:
            motion = self.rows(np.flatnonzero(np.isfinite(np.asarray(motion.ts))))
            if motion.ts.shape[0] == 0:
                raise ModelError("continued: the motion has no row with a finite time")
        ts, states = motion.ts, motion.states
        row = jnp.maximum(jnp.sum(jnp.isfinite(ts)) - 1, 0)
        start = jax.tree.map(lambda x: x[row], states)
        later = simulate(motion.system, start, t0=ts[row], t1=t1, **options)
        if not isinstance(later.states, State):
            raise ModelError("continued: give times in saveat, without `fn` and `subs`")
        if not concrete:
            return later
        # The first row of the continuation is the last one of the motion.
        new = np.flatnonzero(np.asarray(later.ts) > float(ts[row]))
        both = (ts, states), (later.ts, later.states)
        ts, states = jax.tree.map(lambda a, b: jnp.concatenate([a, b[new]]), *both)
        return Solution(
            ts, states, motion.system, later.raw_without_samples, later.result, later.impacts
        )

    def at_rows(self, index: Any) -> "Solution":
        """The motion at some of its times, for an index that `rows` has checked."""
        ts, states = jax.tree.map(lambda x: x[index], (self.ts, self.states))
        return Solution(
            ts, states, self.system, self.raw_without_samples, self.result, self.impacts
        )


def _with_saved(raw: diffrax.Solution, ts: Any, ys: Any) -> diffrax.Solution:
    return eqx.tree_at(lambda s: (s.ts, s.ys), raw, (ts, ys), is_leaf=lambda x: x is None)


# Checks that saved states are finite and satisfy the constraints ----------------------------------

# Largest residual by the mechanism's size with fixed steps, which have no error estimate.
LARGEST_RESIDUAL = 1e-2
# Largest rate of a residual by the largest speed: index-3 methods do not enforce ġ = 0.
LARGEST_RATE = 0.1
# [1/s], rate of change permitted for residuals within tolerance: Baumgarte's default gain.
CORRECTION_RATE = 10.0


class Verdict(eqx.Module):
    """Validity of saved states.

    - `result`: one of `jaxmbd.RESULTS`.
    - `lost_at`: the first time at which a number is not finite [s]; infinity if all are finite.
    - `violation`: the largest |g| or |ġ| by its tolerance, zero without constraints.
    - `row`, `violated_at`: constraint row and time [s] of `violation`.
    - `angles`: the largest misalignment of each joint of `constraints.checked_joints` [rad].
    - `size`: of the mechanism at the start [m]; zero without constraints.
    - `scales`: change of each constraint row in a motion as large as that, shape `(ng,)`.
    - `residual`: the largest |g|, each row by its scale.
    """

    result: RESULTS
    lost_at: Float[Array, ""]
    violation: Float[Array, ""]
    row: Int[Array, ""]
    violated_at: Float[Array, ""]
    angles: Float[Array, "n_checked"]
    size: Float[Array, ""]
    scales: Float[Array, "ng"]
    residual: Float[Array, ""]


def judged(
    system: AbstractSystem,
    t0: Time,
    start: State,
    accuracy: Any,
    raw: diffrax.Solution,
    lost: Any,
    ending: RESULTS | None = None,
) -> Verdict:
    """The verdict on a solution of diffrax.

    **Arguments:**

    - `start`: the state at `t0`, which gives the size of the mechanism.
    - `accuracy`: the tolerance of the step size control, None for fixed steps.
    - `lost`: whether steps collapsed because their results are not finite.
    - `ending`: result of the impacts, if any, which precedes that of the integration unless it is
      successful.
    """
    system, t0, start, saved = stop_gradients((system, t0, start, _saved(raw)))
    lost_at = [_lost_at(ts, tree) for ts, tree in saved]
    first = jnp.min(jnp.stack([jnp.asarray(jnp.inf, t0.dtype), *lost_at]))
    is_constrained, zero = constraints.n_constraints(system) > 0, jnp.zeros((), start.q.dtype)
    size = sizes.length(system, t0, start) if is_constrained else zero
    scales = _row_scales(system, t0, start, size) if is_constrained else jnp.zeros(0, zero.dtype)
    zeros = jnp.zeros(len(constraints.checked_joints(system)), zero.dtype)
    unconstrained = zero, jnp.zeros((), jnp.int32), t0, zeros, zero
    violations = [
        _violation(system, t0, start, accuracy, size, scales, ts, tree)
        for ts, tree in saved
        if is_constrained and _are_states(tree, system)
    ]
    violation, row, at, angles, g = unconstrained if not violations else _worst(violations)
    result = RESULTS.promote(raw.result)
    if ending is not None:
        result = RESULTS.where(ending == RESULTS.successful, result, ending)
    okay = is_okay(result)
    bad: Any = RESULTS.constraints_violated
    result = RESULTS.where(okay & (violation > 1), bad, result)
    bad = RESULTS.joint_reversed
    result = RESULTS.where(jnp.any(constraints.is_reversed(angles)), bad, result)
    bad = RESULTS.not_finite
    result = RESULTS.where(jnp.isfinite(first) | lost, bad, result)
    return Verdict(result, first, violation, row, at, angles, size, scales, g)


def is_okay(result: RESULTS) -> Any:
    """True if a motion is complete, or ended by an event."""
    return (result == RESULTS.successful) | (result == RESULTS.event_occurred)


def _saved(raw: diffrax.Solution) -> list[tuple[Array, PyTree]]:
    """Times, and the values saved at each of them, dense output included."""
    saved: list[tuple[Array, PyTree]] = []
    if raw.ts is not None:
        ts, structure = jax.tree.flatten(raw.ts)
        saved += zip(ts, structure.flatten_up_to(raw.ys), strict=True)
    dense = raw.interpolation
    if dense is not None:  # Rows after the last step are infinite, like their times.
        saved.append((dense.ts[1:], dense.infos["y1"]))
    return saved


def _lost_at(ts: Float[Array, "n"], tree: PyTree) -> Float[Array, ""]:
    """The first time at which anything is not finite."""
    bad = jnp.isnan(ts)
    for x in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)):
        bad = bad | ~jnp.all(jnp.isfinite(x), axis=tuple(range(1, x.ndim)))
    # A row without a time was never reached.
    return jnp.min(jnp.where(bad & ~jnp.isinf(ts), ts, jnp.inf), initial=jnp.inf)


def _are_states(tree: PyTree, system: AbstractSystem) -> bool:
    sizes = (system.nq,), (system.nv,), (system.nz,)
    return isinstance(tree, State) and sizes == tuple(x.shape[1:] for x in (tree.q, tree.v, tree.z))


def _worst(violations: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    ratios, rows, times, angles, g = (jnp.stack(x) for x in zip(*violations, strict=True))
    k = jnp.argmax(ratios)
    return ratios[k], rows[k], times[k], jnp.max(angles, axis=0), jnp.max(g)


def _violation(
    system: AbstractSystem,
    t0: Time,
    start: State,
    accuracy: Any,
    size: Float[Array, ""],
    scale: Float[Array, "ng"],
    ts: Float[Array, "n"],
    states: State,
) -> tuple[Array, ...]:
    """The largest residual or rate by its tolerance, its row and time; angles; largest residual.

    A row's scale is its change if its joint moves by the mechanism's size or turns by one radian.
    """
    part = _part(accuracy, start.q.dtype)

    def at(t: Array, state: State) -> tuple[Array, ...]:
        finite = jnp.isfinite(t)
        for x in (state.q, state.v, state.z):
            finite = finite & jnp.all(jnp.isfinite(x))
        state = jax.tree.map(lambda x, y: jnp.where(finite, x, y), state, start)
        g, rate, speed, angles = _residuals(system, jnp.where(finite, t, t0), state, size)
        return *(jnp.where(finite, x, 0.0) for x in (g, rate)), speed, angles

    g, rate, speeds, angles = of_rows(at, ts, states)
    angles = jnp.max(angles, axis=0, initial=0.0)
    fastest = LARGEST_RATE * jnp.max(speeds, initial=0.0) / size + CORRECTION_RATE * part
    ratio = jnp.maximum(g / (part * scale)[None], rate / (fastest * scale)[None])
    if ratio.shape[0] == 0:
        zero = jnp.zeros((), ratio.dtype)
        return zero, jnp.zeros((), jnp.int32), t0, angles, zero
    k = jnp.argmax(ratio)
    row = k % ratio.shape[1]
    where, largest = ts[k // ratio.shape[1]], jnp.max(g / scale[None])
    return jnp.max(ratio), row.astype(jnp.int32), where, angles, largest


@kernel
def _residuals(
    system: AbstractSystem, t: Time, state: State, size: Float[Array, ""]
) -> tuple[Float[Array, "ng"], Float[Array, "ng"], Float[Array, ""], Float[Array, "n"]]:
    """Sizes of residuals and of their rates, the largest speed [m/s], and angles of false roots."""
    c = system.configuration(t, state.q, state.z)
    V = jnp.abs(c.twists(state.v))
    speed = jnp.max(V[:, :3], initial=0.0) + size * jnp.max(V[:, 3:], initial=0.0)
    g, rate = constraints.residual(system, c), constraint_rates(system, c, state.v)
    return jnp.abs(g), jnp.abs(rate), speed, constraints.misalignment_angles(system, c)


def _part(accuracy: Any, dtype: Any) -> Any:
    """The largest residual permitted, by the mechanism's size.

    Local errors add up to more than the tolerance. The square root of the tolerance is far above
    their sum, and far below residuals that change a motion visibly.
    """
    if accuracy is None:
        return LARGEST_RESIDUAL
    rounding = float(jnp.finfo(dtype).eps) ** 0.5
    return jnp.clip(jnp.sqrt(jnp.asarray(accuracy, dtype)), rounding, LARGEST_RESIDUAL)


@kernel
def _row_scales(
    system: AbstractSystem, t: Time, state: State, size: Float[Array, ""]
) -> Float[Array, "ng"]:
    """Change of each constraint row in a motion as large as the mechanism, shape `(ng,)`."""
    c, parts = system.configuration(t, state.q, state.z), []
    for g in system.constrained:
        group = system.mechanism.joints[g]
        if n_rows(group.joint) == 0:
            continue
        J = jnp.abs(constraints.local_jacobians(group, c.relative_poses(g))).reshape(-1, 6)
        linear, angular = jnp.max(J[:, :3], axis=1), jnp.max(J[:, 3:], axis=1)
        parts.append(size * linear + angular)
    _, displacement = system.sizes(size)
    others = jnp.abs(constraints.coordinate_jacobian(system, c)) * displacement[None]
    scales = jnp.concatenate([*parts, jnp.max(others, axis=1, initial=0.0)])
    # A row may have no derivative at the start, such as that of a distance of zero.
    return jnp.where(scales > 0, scales, 1.0)


def first_lost(system: AbstractSystem, ts: Array, states: State, lost_at: Array) -> str:
    """Name the joints and elements with values that are not finite at a time.

    The text is empty if all named values are finite.
    """
    row = int(np.argmin(np.abs(np.asarray(ts) - np.asarray(lost_at))))
    state = jax.tree.map(lambda x: x[row], states)
    joints = joint_states(system, lost_at, state)
    bad = [name for name, x in joints.items() if not _is_finite((x.q, x.v))]
    bad = ["all joints"] if len(bad) == len(joints) > 1 else list(map(repr, bad))
    bad += [repr(n) for n, z in element_states(system, state).items() if not _is_finite(z)]
    return f" in {', '.join(bad)}" if bad else ""


def _is_finite(tree: PyTree) -> bool:
    return all(bool(np.all(np.isfinite(np.asarray(x)))) for x in jax.tree.leaves(tree))


def in_words(system: AbstractSystem, verdict: Verdict) -> str:
    """In words, the constraint that is violated most, and the time."""
    name = constraints.row_names(system)[int(verdict.row)]
    return (
        f"{name!r} is violated by {float(verdict.violation):.3g} times the tolerance at t = "
        f"{float(verdict.violated_at)} s"
    )
