"""Motions with impacts: free motion from impact to impact.

A motion alternates between integration up to the next time at which a gap closes, and a collision
at that time. The time of an event is differentiable, and so are all states after it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Bool, Float, Int

from ..contact import Restitution
from ..errors import IncompatibleIntegrator, ModelError
from ..integrators.explicit import ExplicitRK
from ..lie import vector
from ..model.values import all_concrete
from ..programs.tracing import error_if, stop_gradients
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.acceleration import accelerations
from ..system.configuration import AbstractConfiguration
from ..system.loads import Surfaces, surfaces_of
from ..system.projection import project_velocities
from ..system.saddle_point import saddle_point
from .results import RESULTS
from .step_controllers import closed

# Speeds of approach of points that rest, as a part of the largest relative speed, in units of the
# machine epsilon.
RESTING = 1e3

# Integrates from a time and state: (t, state, saveat, event) to a solution, and whether numbers of
# the last step are not finite.
Run = Callable[[Time, State, diffrax.SaveAt, diffrax.Event | None], tuple[diffrax.Solution, Any]]


class Impacts(eqx.Module):
    """Impacts of a motion, in order; rows after the last one have an infinite time.

    - `ts`: times [s], shape `(max_impacts,)`.
    - `points`: index of the point in `names`, shape `(max_impacts,)`.
    - `approach`: speed of approach before the impact, shape `(max_impacts,)` [m/s].
    - `end`: time of the last impact or, if a contact stays closed, that time [s].
    - `last`: index of the point at that time; -1 if there was none.
    - `names`: name of the contact of every point; a contact of several points is repeated.
    """

    ts: Float[Array, "*batch n"]
    points: Int[Array, "*batch n"]
    approach: Float[Array, "*batch n"]
    end: Float[Array, "*batch"]
    last: Int[Array, "*batch"]
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def count(self) -> Int[Array, "*batch"]:
        """Number of impacts."""
        return jnp.sum(jnp.isfinite(self.ts), axis=-1)

    def last_in_words(self) -> str:
        """The contact and the time of `last`."""
        return f"contact {self.names[int(self.last)]!r} at t = {float(self.end):.6g} s"


class _Progress(eqx.Module):
    """A motion up to time `t`.

    - `saved_until`: rows up to this time are saved.
    - `result`: of the last integration; `ending`: of the impacts.
    """

    t: Time
    state: State
    saved_until: Time
    ts: Float[Array, "n"]
    ys: State
    impacts: Impacts
    count: Int[Array, ""]
    n_steps: Int[Array, ""]
    done: Bool[Array, ""]
    lost: Bool[Array, ""]
    result: diffrax.RESULTS
    ending: RESULTS


class _Meeting(eqx.Module):
    """Next events at a state: the points that collide, and the contacts that persist.

    - `gap`, `rate`: of every point, shape `(n_points,)` [m, m/s].
    """

    gap: Float[Array, "n_points"]
    rate: Float[Array, "n_points"]
    vdot: Float[Array, "nv"]
    touches: Bool[Array, "n_points"]
    hits: Bool[Array, "n_points"]
    persists: Bool[Array, "n_points"]


class _Gap(eqx.Module):
    """The smallest gap; those of points that touch at the start are larger by `closed`.

    Gaps of points that touch are zero but for rounding, whose sign must not be an event.
    """

    surfaces: Surfaces
    touches: Bool[Array, "n_points"]

    def __call__(self, t: Any, y: State, args: AbstractSystem, **_: Any) -> Float[Array, ""]:
        gap = self.surfaces.gaps(args, t, y)[0]
        limit = jax.lax.stop_gradient(closed(self.surfaces))
        return jnp.min(gap + jnp.where(self.touches, limit, 0.0))


class _Halving(optimistix.AbstractRootFinder):
    """The root of a function that is positive at the lower end, to rounding of the argument.

    `optimistix.Bisection` also requires a small value, which a fast function does not reach.
    """

    rtol: float = 0.0
    atol: float = 0.0
    norm: Any = optimistix.max_norm

    def init(self, fn, y, args, options: Any, f_struct, aux_struct, tags) -> Any:
        return jnp.asarray(options["lower"], y.dtype), jnp.asarray(options["upper"], y.dtype)

    def step(self, fn, y, args, options, state, tags) -> Any:
        lower, upper = state
        middle = lower + 0.5 * (upper - lower)
        value, aux = fn(middle, args)
        lower = jnp.where(value > 0, middle, lower)
        upper = jnp.where(value > 0, upper, middle)
        return upper, (lower, upper), aux

    def terminate(self, fn, y, args, options, state, tags) -> Any:
        lower, upper = state
        width = 4.0 * float(jnp.finfo(y.dtype).eps) * jnp.abs(upper)
        smallest = float(jnp.finfo(y.dtype).eps) ** 2
        return upper - lower <= jnp.maximum(width, smallest), optimistix.RESULTS.successful

    def postprocess(self, fn, y, aux, args, options, state, tags, result) -> Any:
        return y, aux, {}


def check_impacts(
    system: AbstractSystem,
    law: Any,
    integrator: Any,
    controller: Any,
    saveat: diffrax.SaveAt,
    event: Any,
    progress: bool | None,
) -> None:
    """**Raises** `ModelError` for what motions with impacts cannot have; see `simulate`."""
    if not isinstance(law, Restitution):
        raise ModelError(f"simulate: impacts must be a contact.Restitution, got {law!r}")
    if not surfaces_of(system).groups:
        raise ModelError(
            "simulate: impacts need contacts: add a forces.Contact to Model.forces, or omit impacts"
        )
    if not is_explicit(integrator):
        raise IncompatibleIntegrator(
            "simulate: impacts are located within explicit Runge-Kutta steps, but the integrator "
            f"is {type(integrator).__name__}; take ExplicitRK()"
        )
    if not isinstance(controller, diffrax.AbstractAdaptiveStepSizeController):
        raise ModelError(
            "simulate: impacts need adaptive steps; omit dt, or add a controller such as "
            "diffrax.PIDController(rtol=1e-8, atol=1e-8)"
        )
    if event is not None or progress:
        raise ModelError("simulate: impacts cannot be combined with event or progress")
    if not _has_times_only(saveat):
        raise ModelError(
            "simulate: with impacts saveat must be an interval or an array of times, got a "
            "diffrax.SaveAt with other parts"
        )
    bristles = [name for x in surfaces_of(system).groups if x.n_states for name in x.names]
    if bristles:
        raise ModelError(
            f"simulate: contact {bristles[0]!r} has bristles, whose states impacts do not move; "
            "take contact.Coulomb, or no friction: that of impacts is in Restitution"
        )
    if system.mechanism.sampled_groups:
        raise ModelError(
            f"simulate: {system.mechanism.sampled_groups[0].names[0]!r} has a period, which "
            "cannot be combined with impacts; simulate with compliant contact"
        )


def is_explicit(integrator: Any) -> bool:
    """True if an integrator is an explicit Runge–Kutta method."""
    return isinstance(integrator, ExplicitRK) and isinstance(integrator.solver, diffrax.AbstractERK)


def _has_times_only(saveat: diffrax.SaveAt) -> bool:
    subs, others = saveat.subs, (saveat.dense, saveat.solver_state, saveat.controller_state)
    if not isinstance(subs, diffrax.SubSaveAt) or subs.ts is None or any(others):
        return False
    return not (subs.t0 or subs.t1 or subs.steps) and subs.fn is diffrax.SubSaveAt(t0=True).fn


def check_first_state(system: AbstractSystem, t0: Time, state: State) -> None:
    """**Raises** `ModelError` if shapes overlap in the first state; not under `jit`."""
    if not all_concrete((system, t0, state)):
        return
    surfaces = surfaces_of(system)
    gap = np.asarray(eqx.filter_jit(surfaces.gaps)(system, t0, state)[0])
    k = int(np.argmin(gap + np.asarray(closed(surfaces))))
    if gap[k] < -float(closed(surfaces)[k]):
        raise ModelError(
            f"simulate: the shapes of contact {surfaces.names[k]!r} overlap by {-gap[k]:.2g} m in "
            "the first state; impacts need a first state without overlap"
        )


def with_impacts(
    system: AbstractSystem,
    surfaces: Surfaces,
    law: Restitution,
    run: Run,
    t0: Time,
    t1: Time,
    state: State,
    ts: Float[Array, "n"],
    max_steps: int,
) -> tuple[diffrax.Solution, Any, RESULTS, Impacts]:
    """The motion from impact to impact, whether its numbers were lost, the result of the impacts,
    and the impacts.

    **Arguments:** `system`: without forces of contacts; `run`: integrates up to `t1` or an event;
    `ts`: times to save.
    """
    gap, _ = surfaces.gaps(system, t0, state)
    state = error_if(
        state, jnp.any(gap < -closed(surfaces)), "simulate: shapes overlap in the first state"
    )

    def advance(now: _Progress, _: None) -> tuple[_Progress, None]:
        meeting = _meeting(system, surfaces, now.t, now.state)
        hits, persists = jnp.any(meeting.hits), jnp.any(meeting.persists)
        next_one = jnp.where(now.done, 0, jnp.where(hits, 1, jnp.where(persists, 2, 3)))
        branches = (
            lambda now: now,
            lambda now: _collided(system, surfaces, law, meeting, now),
            lambda now: _ended(meeting, now),
            lambda now: _integrated(surfaces, meeting, run, ts, t1, now),
        )
        return jax.lax.switch(next_one, branches, now), None

    start = _start(surfaces, law, t0, state, ts)
    end, _ = jax.lax.scan(jax.checkpoint(advance), start, None, length=2 * law.max_impacts + 1)
    exhausted: Any = RESULTS.impacts_exhausted
    ending = RESULTS.where(end.done, end.ending, exhausted)
    solution = diffrax.Solution(
        t0=t0,
        t1=t1,
        ts=end.ts,
        ys=end.ys,
        interpolation=None,
        stats={"num_steps": end.n_steps, "max_steps": max_steps},
        result=end.result,
        solver_state=None,
        controller_state=None,
        made_jump=None,
        event_mask=None,
    )
    return solution, end.lost, ending, end.impacts


def _start(
    surfaces: Surfaces, law: Restitution, t0: Time, state: State, ts: Float[Array, "n"]
) -> _Progress:
    n, dtype = law.max_impacts, t0.dtype
    none = Impacts(
        ts=jnp.full(n, jnp.inf, dtype),
        points=jnp.zeros(n, jnp.int32),
        approach=jnp.zeros(n, dtype),
        end=t0,
        last=jnp.full((), -1, jnp.int32),
        names=surfaces.names,
    )
    unsaved = jax.tree.map(lambda x: jnp.full((len(ts), *x.shape), jnp.inf, x.dtype), state)
    zero, no = jnp.zeros((), jnp.int32), jnp.array(False)
    before = jnp.full((), -jnp.inf, dtype)
    return _Progress(
        t=t0,
        state=state,
        saved_until=before,
        ts=jnp.full_like(ts, jnp.inf),
        ys=unsaved,
        impacts=none,
        count=zero,
        n_steps=zero,
        done=no,
        lost=no,
        result=cast(Any, diffrax.RESULTS.successful),
        ending=cast(Any, RESULTS.successful),
    )


def _meeting(system: AbstractSystem, surfaces: Surfaces, t: Time, state: State) -> _Meeting:
    """The points that collide now, and those that stay closed.

    A point that touches stays closed if its gap would close again after opening by less than the
    gap that counts as closed. Such points collide no more.
    """
    vdot, _ = accelerations(system, t, state)

    def rates(t: Time, q: Array, v: Array) -> Array:
        return surfaces.gaps(system, t, State(q, v, state.z))[1]

    c = system.configuration(t, state.q, state.z)
    here = surfaces.at(c, state.v)
    gap, rate = here.gap, jnp.sum(here.normal * here.velocity, axis=1)
    tangent = jnp.ones_like(t), system.rates(state.q, state.v), vdot
    at = stop_gradients(((t, state.q, state.v), tangent))
    _, second = jax.jvp(rates, *at)
    limit = closed(surfaces)
    touches, closing = jnp.abs(gap) <= 2.0 * limit, second < 0
    small = closing & (rate * rate <= 2.0 * jnp.abs(second) * limit)
    # Points that touch at rest may approach by rounding.
    fastest = jnp.max(jnp.abs(here.velocity))
    hits = touches & (rate < -RESTING * float(jnp.finfo(rate.dtype).eps) * fastest) & ~small
    return _Meeting(gap, rate, vdot, touches, hits, touches & small)


def _collided(
    system: AbstractSystem,
    surfaces: Surfaces,
    law: Restitution,
    meeting: _Meeting,
    now: _Progress,
) -> _Progress:
    """The motion after a collision of the point that approaches fastest."""
    point = jnp.argmin(jnp.where(meeting.hits, meeting.rate, jnp.inf))
    # The time from the collision is at most that of a gap that counts as closed. Its derivative is
    # that of the time of an impact that coincides with another one, which no event has located.
    delay = -meeting.gap[point] / meeting.rate[point]
    y = now.state
    q = y.q + delay * system.rates(y.q, y.v)
    t, moved = now.t + delay, State(q, y.v + delay * meeting.vdot, y.z)
    after = collision(system, surfaces, t, moved, point, law)
    row, failed = now.count, ~after.solved
    index = point.astype(jnp.int32)
    impacts = Impacts(
        ts=now.impacts.ts.at[row].set(t, mode="drop"),
        points=now.impacts.points.at[row].set(index, mode="drop"),
        approach=now.impacts.approach.at[row].set(after.approach, mode="drop"),
        end=t,
        last=index,
        names=now.impacts.names,
    )
    unsolved: Any = RESULTS.impact_unsolved
    ending = RESULTS.where(failed, unsolved, now.ending)
    state = State(q, after.v, y.z)
    return eqx.tree_at(
        lambda p: (p.t, p.state, p.impacts, p.count, p.done, p.ending),
        now,
        (t, state, impacts, row + 1, failed, ending),
    )


def _ended(meeting: _Meeting, now: _Progress) -> _Progress:
    """The motion at a contact that stays closed."""
    persists: Any = RESULTS.contact_persists
    last = jnp.argmax(meeting.persists).astype(jnp.int32)
    return eqx.tree_at(
        lambda p: (p.done, p.ending, p.impacts.end, p.impacts.last),
        now,
        (jnp.array(True), persists, now.t, last),
    )


def _integrated(
    surfaces: Surfaces,
    meeting: _Meeting,
    run: Run,
    ts: Float[Array, "n"],
    t1: Time,
    now: _Progress,
) -> _Progress:
    """The motion up to the next event, or `t1`."""
    event = diffrax.Event(_Gap(surfaces, meeting.touches), root_finder=_Halving(), direction=False)
    subs = [diffrax.SubSaveAt(ts=jnp.clip(ts, now.t, t1)), diffrax.SubSaveAt(t1=True)]
    sol, lost = run(now.t, now.state, diffrax.SaveAt(subs=subs), event)
    (_, ends), (rows, lasts) = cast(Any, sol.ts), cast(Any, sol.ys)
    t, state = ends[0], jax.tree.map(lambda x: x[0], lasts)
    own = (ts > now.saved_until) & (ts <= t)

    def kept(new: Array, old: Array) -> Array:
        return jnp.where(own.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    met = sol.result == diffrax.RESULTS.event_occurred
    return _Progress(
        t=t,
        state=state,
        saved_until=t,
        ts=jnp.where(own, ts, now.ts),
        ys=jax.tree.map(kept, rows, now.ys),
        impacts=now.impacts,
        count=now.count,
        n_steps=now.n_steps + jnp.asarray(sol.stats["num_steps"], jnp.int32),
        done=~met,
        lost=lost,
        result=sol.result,
        ending=now.ending,
    )


# Impulses of impacts: velocities after a collision at one point of contact ------------------------
#     M (v⁺ - v⁻) = Gᵀ Λ + Jᵀ P,   G v⁺ + g_t = 0
#
# J is the Jacobian of the relative velocity w at the point, P the impulse on the solid, and Λ are
# the impulses of the constraints.

Vector = Float[Array, "3"]


class Collision(NamedTuple):
    """Velocities after an impact.

    - `v`: shape `(nv,)`.
    - `impulse`: on the solid, along the axes of the base, shape `(3,)` [N s].
    - `approach`: speed of approach before the impact [m/s].
    - `solved`: whether the impulse pushes and adds no energy.
    """

    v: Velocities
    impulse: Vector
    approach: Float[Array, ""]
    solved: Bool[Array, ""]


def collision(
    system: AbstractSystem,
    surfaces: Surfaces,
    t: Time,
    state: State,
    point: Int[Array, ""],
    law: Restitution,
) -> Collision:
    """Velocities after an impact at one point of contact, whose index is `point`."""
    c = system.configuration(t, state.q, state.z)
    before = project_velocities(system, t, state)
    normal = surfaces.at(c, before).normal[point]

    def velocity(v: Velocities) -> Vector:
        return surfaces.at(c, v).velocity[point]

    w, tangent = jax.linearize(velocity, before)
    J = jax.vmap(jax.linear_transpose(tangent, before))(jnp.eye(3, dtype=w.dtype))[0]
    responses = _responses(system, c, J)
    W = J @ responses.T
    impulse = _impulse(W, w, normal, law)
    after = w + W @ impulse
    # Rounding errors of an impact without loss.
    rounding = 1e3 * float(jnp.finfo(w.dtype).eps) * (jnp.abs(impulse) @ (jnp.abs(w)))
    solved = (impulse @ normal > 0) & (impulse @ (w + after) <= rounding)
    v = before + impulse @ responses
    v = project_velocities(system, t, State(state.q, v, state.z))
    return Collision(v, impulse, -(normal @ w), solved)


def _responses(
    system: AbstractSystem, c: AbstractConfiguration, J: Float[Array, "3 nv"]
) -> Float[Array, "3 nv"]:
    """Changes of the velocities by unit impulses at the point, with those of the constraints."""
    if constraints.n_constraints(system) == 0:
        return system.solve_mass(c, J.T).T
    g = constraints.residual(system, c)
    equations = saddle_point(system, c, g)
    return jax.vmap(lambda f: equations.solve(f, jnp.zeros_like(g))[0])(J)


def _impulse(W: Float[Array, "3 3"], w: Vector, n: Vector, law: Restitution) -> Vector:
    """The impulse of `Restitution`, from W and the velocity w before the impact."""
    e, mu = law.restitution.astype(w.dtype), law.friction.astype(w.dtype)
    approach = n @ w
    sticking = _solve(W, -e * approach * n - w)
    pressing = sticking @ n
    tangential = sticking - pressing * n
    direction = vector.direction(tangential)
    sticks = vector.length(tangential) <= mu * pressing
    cone = n + mu * direction
    slope = n @ W @ cone
    # A slope that is not positive has no impulse: infinite, which `solved` reports.
    size = jnp.where(slope > 0, -(1.0 + e) * approach / jnp.where(slope > 0, slope, 1.0), -1.0)
    return jnp.where(sticks, sticking, size * cone)


def _solve(W: Float[Array, "3 3"], b: Vector) -> Vector:
    """Solve W P = b, in the directions in which impulses change the velocity.

    In a plane mechanism W has no response out of the plane. A small multiple of 1 makes it regular,
    and one step of refinement removes the effect of this multiple.
    """
    small = float(jnp.finfo(b.dtype).eps) ** 0.75 * jnp.trace(W)
    regular = W + jax.lax.stop_gradient(small) * jnp.eye(3, dtype=b.dtype)
    first = jnp.linalg.solve(regular, b)
    return first + jnp.linalg.solve(regular, b - W @ first)
