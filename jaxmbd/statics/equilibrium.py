"""Static equilibrium: a state in which nothing moves."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scalarjit.with_room import with_room

from ..errors import EquilibriumError, ModelError, UnstableEquilibriumWarning, warn
from ..linear import after
from ..model.values import as_jax, as_mapping, as_names, is_concrete
from ..motion.arguments import as_start, as_system
from ..motion.results import RESULTS
from ..nonlinear import Automatic
from ..nonlinear.implicit_function import implicit
from ..programs import stored, with_progress
from ..programs.tracing import kernel, of_directions, stop_gradients, unwatched
from ..programs.with_slope import with_slope_of
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time, as_time
from ..system.acceleration import accelerations
from ..system.reactions import reactions_of
from .balance import (
    SLOW,
    Place,
    Scales,
    at_place,
    displacement,
    equations,
    factored,
    first_multipliers,
    kinds,
    parts,
    scales_of,
    unknowns,
)
from .held_joints import at_rest, with_loads
from .methods import Drainage, StaticNewton
from .search import LEAST_INERTIA, Methods
from .stability import Stability, stability, with_derivatives

# "auto" tries at most `MOST_TRIED` steps of Newton's method that go downhill. Unless they end at a
# stable equilibrium, it drains from the first state until residual force, increment and energy are
# at most `NEAR`, and then iterates by Newton's method. It leaves an unstable equilibrium by the
# displacement `NUDGE`, at most `MAX_NUDGES` times.
NEAR, NUDGE, MAX_NUDGES = 1e-3, 1e-2, 2


class Equilibrium(eqx.Module):
    """A static equilibrium, the result of `equilibrium`.

    - `state`: q, v = 0 and z.
    - `multipliers`: λ, shape `(ng,)`, of minimum norm if constraints are redundant. Multipliers of
      held joints follow those of drivers.
    - `reactions`: reaction wrench `[f, τ]` of every joint, by name, see `jaxmbd.reactions`.
    - `stable`: whether no admissible displacement has negative stiffness, and none flutters.
    - `eigenvalues`: of Nᵀ (K - ∂(Gᵀ λ)/∂q) N, in order [1/s²], with Nᵀ M N = 1: squares of the
      natural frequencies without damping. All of them, one for each degree of freedom; or the 10
      lowest of systems with a sparsity pattern and 100 unknowns or more. Under a transformation the
      shape is `(nv,)`, with infinity for directions that constraints hold. Real parts with loads
      that have no potential. They have first derivatives; second ones are NaN, and the first ones
      of the 10 lowest if the stiffness is not symmetric.
    - `imaginary`: imaginary parts of the eigenvalues, zero unless a direction flutters. No
      derivatives.
    - `residual`: largest acceleration from rest, by that under the loads by themselves.
    - `opening`: constraint residual, shape `(ng,)` [m or sine of an angle], zero for nonholonomic
      constraints.
    - `is_open`: whether a residual exceeds the square root of the float type's precision [rad, or
      part of the extent of the mechanism], shape `(ng,)`. An equilibrium has none.
    - `result`: one of `jaxmbd.RESULTS`.
    - `turned`: rotation [rad] or travel [m] of every joint velocity on the way, by joint, with the
      turns that it wound.
    - `left_unstable`: number of unstable equilibria that `method="auto"` left.
    - `steps`: number of steps of drainage and of Newton's method, shape `(2,)`.
    """

    state: State
    multipliers: Float[Array, "ng"]
    reactions: dict[str, Float[Array, "6"]]
    stable: Bool[Array, ""]
    eigenvalues: Float[Array, "k"]
    imaginary: Float[Array, "k"]
    residual: Float[Array, ""]
    opening: Float[Array, "ng"]
    is_open: Bool[Array, "ng"]
    result: RESULTS
    turned: dict[str, Float[Array, "..."]]
    left_unstable: Int[Array, ""]
    steps: Int[Array, "2"]
    free_motion: Float[Array, "n_joints"]
    unstable_motion: Float[Array, "n_joints"]
    falling_motion: Float[Array, "n_joints"]
    joints: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[str, ...] = eqx.field(static=True)

    @property
    def free(self) -> tuple[str, ...]:
        """Joints that can move without any stiffness (not under `jit`)."""
        return named_joints(self.joints, self.free_motion)

    @property
    def unstable(self) -> tuple[str, ...]:
        """Joints that move in unstable directions (not under `jit`)."""
        return named_joints(self.joints, self.unstable_motion)


@with_progress
def equilibrium(
    system: Any,
    state: Any = None,
    *,
    t: Any = 0.0,
    method: str | Drainage | StaticNewton = "auto",
    hold: str | Sequence[str] = (),
    load: Mapping[str, Any] | None = None,
    throw: bool = True,
) -> Equilibrium:
    """The static equilibrium at or near a state.

    Forces are those at rest at time `t`; drivers stay at their values, and first-order states are
    at rest too. Derivatives by every number of the system follow from the implicit function
    theorem, in forward and reverse mode, never through iterations.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `state`: where the search starts, a `State` or `{joint: coordinates}`, the `guess` of
      `assemble`; its velocities are ignored. Default: the reference position.
    - `t`: time at which signals and drivers are evaluated [s].
    - `method`: `"auto"`: tries some steps of Newton's method that go downhill. Unless they end at
      a stable equilibrium, drains energy from the first state until near an equilibrium, and
      iterates by Newton's method from there; if the equilibrium is unstable, it leaves along an
      unstable direction and starts again. `"drainage"` or `Drainage(...)`: the damped motion alone.
      `"newton"` or `StaticNewton(...)`: Newton's method alone, which finds the nearest equilibrium,
      stable or not. Default: `"auto"`.
    - `hold`: names of joints that keep their coordinates, or `"joint.0"` for one coordinate.
    - `load`: `{name: element}` replaces elements by others of the same kind; `{name: factor}`
      multiplies gravity, an applied force or torque, or the torque on a joint.
    - `throw`: whether a failure raises; if False, read `Equilibrium.result`.

    Directions without stiffness, such as that of a wheel on a level plane, keep their position as
    far as the motion towards equilibrium permits; `Equilibrium.free` names them. Nonholonomic
    constraints hold displacements as they hold velocities. With them, and with states that have no
    rate at rest (bristles, slips of tyres), the equilibrium depends on the way. With `"newton"`
    these states take one implicit step from the first state to the equilibrium, and derivatives
    are those of this step. If the first state is the equilibrium itself, or after drainage,
    derivatives by numbers of the system are the mean of those to either side.

    If nothing can move, the state itself is the equilibrium, with its reactions and no eigenvalues.

    **Raises** `ModelError` for invalid arguments, and `EquilibriumError`, naming joints, if no
    equilibrium is reached: forces move the mechanism for ever along directions without stiffness,
    or the iterations do not converge. Under a transformation it is an error at run time.

    **Warns** by `UnstableEquilibriumWarning`, naming joints, if the equilibrium is unstable, or if
    `"auto"` left an unstable one; not under a transformation.

    For example:

        rest = mbd.equilibrium(model, {"hinge": 0.3})
        rest.state.q, rest.stable, rest.reactions["hinge"]
    """
    system = as_system(system, "equilibrium")
    methods = _methods(method).as_arrays(system.mechanism.dtype)
    state = as_start(system, {} if state is None else state, t, "equilibrium")
    hold = as_names(hold, "equilibrium: hold")
    load = as_mapping(load, "equilibrium: load", "{name: element or factor}")
    time = as_time(t, system)
    system = at_rest(with_loads(system, load), time, state, hold)
    return reported(_equilibrium(system, time, state, methods), throw)


def nearest_rest(
    system: AbstractSystem, t: Time, state: State, hold: Sequence[str] = ()
) -> tuple[State, RESULTS]:
    """State and result of `equilibrium` by Newton's method alone, without further derivatives."""
    newton = _methods("newton").as_arrays(system.mechanism.dtype)
    end = _equilibrium(at_rest(system, t, state, hold), t, state, newton, True)
    return end.state, end.result


def _methods(method: Any) -> Methods:
    if isinstance(method, str) and method == "auto":
        return Methods(Drainage(tolerance=NEAR), StaticNewton())
    if method == "drainage" or isinstance(method, Drainage):
        return Methods(method if isinstance(method, Drainage) else Drainage(), None)
    if method == "newton" or isinstance(method, StaticNewton):
        return Methods(None, method if isinstance(method, StaticNewton) else StaticNewton())
    raise ModelError(
        f'equilibrium: method must be "auto", "drainage", "newton", a Drainage or a StaticNewton, '
        f"got {method!r}"
    )


# Largest correction of a position that is as exact as its numbers, in units of their precision.
EXACT = 1e5


class Found(eqx.Module):
    """A place at which the iterations ended.

    - `falling`: last increment of iterations that did not converge, otherwise zero.
    - `left`: number of unstable equilibria that the iterations left.
    - `tried`: whether Newton's method converged without drainage before it.
    - `size`: of its last correction, as a part of the mechanism; infinite without one.
    """

    place: Place
    stability: Stability
    converged: Bool[Array, ""]
    falling: Float[Array, "nv"]
    turned: Float[Array, "n_joint_velocities"]
    steps: Int[Array, "2"]
    left: Int[Array, ""]
    tried: Bool[Array, ""]
    size: Float[Array, ""]


@stored
@with_room
def _equilibrium(
    system: AbstractSystem, t: Time, state: State, methods: Methods, state_alone: bool = False
) -> Equilibrium:
    """With `state_alone` only the state has derivatives."""
    rest = State(state.q, jnp.zeros_like(state.v), state.z)
    fixed, time, start = stop_gradients((system, t, rest))
    found = stop_gradients(_search(fixed, time, start, methods))
    return _finished(system, t, rest, found, methods, state_alone)


def _search(system: AbstractSystem, t: Time, state: State, methods: Methods) -> Found:
    """Search; with both methods again from near each unstable equilibrium."""
    if system.artificial_energy_limit is None:
        return _beyond_unstable(system, t, _start(system, t, state), methods)
    # Stiff springs instead of rigidity would confine displacements to tiny steps.
    near = _search(system.rigid(), t, state, methods)
    place = _start(system, t, State(near.place.q, state.v, near.place.z))
    newton = methods.newton if methods.newton is not None else StaticNewton()
    found = _beyond_unstable(system, t, place, Methods(None, newton))
    falling = jnp.where(near.converged, found.falling, near.falling)
    changed = found.converged & near.converged, falling, near.turned, near.steps + found.steps
    return eqx.tree_at(
        lambda f: (f.converged, f.falling, f.turned, f.steps, f.left), found, (*changed, near.left)
    )


def _start(system: AbstractSystem, t: Time, state: State) -> Place:
    lam = first_multipliers(system, t, state)
    return Place(state.q, lam, state.z, jnp.zeros_like(state.v))


def _beyond_unstable(system: AbstractSystem, t: Time, start: Place, methods: Methods) -> Found:
    """March to rest, and again from near unstable equilibria if both methods are given."""
    first = State(after(start.q, start.lam), jnp.zeros_like(start.travelled), start.z)
    scales = scales_of(system, t, first)
    blocks = kinds(system, scales)
    factorization = Automatic().select(blocks)

    def once(place: Place, trying: Bool[Array, ""]) -> Found:
        begin = methods.begin(system, place, scales, trying)
        end = methods.march(system, t, begin, scales, blocks, factorization)
        judged = stability(system, t, end.place, scales, blocks, factorization)
        falling = jnp.where(end.done, 0.0, end.increment)
        left = jnp.array(-1, jnp.int32)
        return Found(
            *(end.place, judged, end.done, falling, end.turned, end.steps, left, end.trying),
            end.size,
        )

    # Without velocities there is no direction in which to leave.
    if methods.drain is None or methods.newton is None or system.nv == 0:
        return eqx.tree_at(lambda f: f.left, once(start, jnp.array(False)), jnp.array(0, jnp.int32))

    # With nonholonomic constraints or states the equilibrium depends on the way.
    may_try = bool(constraints.is_holonomic(system).all()) and system.nz == 0

    def again(now: Found) -> Found:
        beside = kernel(_beside)(system, t, now.place, now.stability, scales)
        # Newton's method may end at an unstable equilibrium that drainage passes: drainage starts
        # where the trial started.
        first = now.left < 0
        anew = first | now.tried
        place = jax.tree.map(lambda a, b: jnp.where(anew, a, b), start, beside)
        new = once(place, first & may_try)
        turned = new.turned + jnp.where(anew, 0.0, now.turned)
        left = jnp.where(now.tried, now.left, now.left + 1)
        changed = turned, now.steps + new.steps, left
        return eqx.tree_at(lambda f: (f.turned, f.steps, f.left), new, changed)

    def unstable(now: Found) -> Bool[Array, ""]:
        left = now.converged & ~now.stability.stable & (now.left < MAX_NUDGES)
        return left | (now.left < 0)

    # The first search is a pass of the loop, so that the program contains it once.
    shapes = eqx.filter_eval_shape(once, start, jnp.array(False))
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    first = eqx.tree_at(lambda f: (f.place, f.left), none, (start, jnp.array(-1, jnp.int32)))
    return jax.lax.while_loop(unstable, again, first)


def _beside(system: AbstractSystem, t: Time, at: Place, judged: Stability, scales: Scales) -> Place:
    """A place displaced by `NUDGE` along its first unstable direction."""
    y = judged.directions[:, jnp.argmax(judged.unstable)]
    size = displacement(system, system.configuration(t, at.q, at.z), y, scales)
    y = NUDGE * y / jnp.where(size > 0, size, 1.0)
    return Place(system.retract(at.q, y), at.lam, at.z, at.travelled + y)


def _finished(
    system: AbstractSystem,
    t: Time,
    start: State,
    found: Found,
    methods: Methods,
    state_alone: bool,
) -> Equilibrium:
    """The equilibrium at a place, with derivatives by the system, the time and the first state."""
    fixed, time = stop_gradients((system, t))
    q = after(found.place.q, found.stability.basis)
    place = State(q, start.v, found.place.z)
    scales = stop_gradients(scales_of(fixed, time, place))
    end = state = _differentiable(system, t, start, found, scales, methods)
    state = State(after(state.q, scales.rate), state.v, state.z)
    if state_alone:
        system, t, state = fixed, time, stop_gradients(state)
    solved = accelerations(system, t, state)
    own = found.stability, found.falling
    read = kernel(_readings)(system, t, state, solved, scales, *own)
    residual, opening, wrenches, (free, unstable, falling) = read
    result: Any = RESULTS.successful
    bad: Any = RESULTS.equilibrium_unstable
    result = RESULTS.where(found.stability.stable, result, bad)
    bad = RESULTS.no_equilibrium
    is_open = ~(jnp.abs(opening) <= float(jnp.finfo(opening.dtype).eps) ** 0.5 * scales.residuals)
    # Rounding errors of positions accelerate bodies that stiff springs hold more than loads do.
    exact = found.size <= EXACT * float(jnp.finfo(state.q.dtype).eps)
    small = (residual <= methods.limit(state.q.dtype)) | exact
    result = RESULTS.where(found.converged & ~jnp.any(is_open) & small, result, bad)
    bad = RESULTS.unbounded_motion
    loose = jnp.any(found.stability.free | found.stability.unstable)
    result = RESULTS.where(~found.converged & loose, bad, result)
    names = tuple(name for group in system.mechanism.joints for name in group.names)
    return Equilibrium(
        end,
        solved[1],
        wrenches,
        found.stability.stable,
        with_derivatives(
            *(found.stability.eigenvalues, found.stability.basis, system, t, state, solved[1]),
            SLOW * jnp.sqrt(scales.rate),
        ),
        found.stability.imaginary,
        residual,
        opening,
        is_open,
        result,
        _by_joint(system, found.turned),
        found.left,
        found.steps,
        free,
        unstable,
        falling,
        names,
        tuple(constraints.row_names(system)),
    )


def _readings(
    system: AbstractSystem,
    t: Time,
    state: State,
    solved: tuple[Float[Array, "nv"], Float[Array, "ng"]],
    scales: Scales,
    judged: Stability,
    increment: Float[Array, "nv"],
) -> tuple[Float[Array, ""], Float[Array, "ng"], dict[str, Float[Array, "6"]], tuple]:
    """Largest acceleration, constraint residuals, reactions, and motions of joints.

    These are their largest motions in free and in unstable directions, and in an increment, as
    parts of the largest displacement of the mechanism; without derivatives.
    """
    c = system.configuration(t, state.q, state.z)
    residual = displacement(system, c, solved[0], scales) / scales.rate
    opening = jnp.where(constraints.is_holonomic(system), constraints.residual(system, c), 0.0)
    fixed, at = stop_gradients((system, c))

    def motion(y: Float[Array, "nv"]) -> Float[Array, "n_joints"]:
        each = [jnp.max(jnp.abs(x), axis=1, initial=0.0) for x in at.joint_rates(y)]
        size = displacement(fixed, at, y, scales)
        return jnp.concatenate(each) / jnp.where(size > 0, size, 1.0)

    along = of_directions(motion, judged.directions.T)
    free, unstable = (
        jnp.max(jnp.where(of[:, None], along, 0.0), axis=0, initial=0.0)
        for of in (judged.free, judged.unstable)
    )
    reactions = reactions_of(system, t, state, solved)
    return residual, opening, reactions, (free, unstable, motion(increment))


def _differentiable(
    system: AbstractSystem, t: Time, start: State, found: Found, scales: Scales, methods: Methods
) -> State:
    """The state at a place, as an implicit function of the arguments."""
    known = jnp.concatenate([found.place.q, found.place.z])
    end = with_slope_of(_near, known, (system, t, start, found, scales, methods))
    # A slice without entries makes XLA of jaxlib 0.10 reject all calls of generated code.
    z = end[system.nq :] if system.nz else found.place.z
    return State(end[: system.nq], jnp.zeros_like(start.v), z)


def _near(
    args: tuple[AbstractSystem, Time, State, Found, Scales, Methods],
) -> Float[Array, "n"]:
    """q and z at the solution of the equations near a place.

    Rates of first-order states may have a kink at rest. If the way from the first state is known,
    the derivative is that of the side from which the mechanism came; otherwise, and if the
    displacement consists of rounding errors, it is the mean of both sides.
    """
    system, t, start, found, scales, methods = args
    place = found.place
    constant = stop_gradients(start)
    # Zero, with the derivative of the first state.
    offset = State(
        start.q,
        system.velocities(constant.q, start.q - constant.q),
        start.z - constant.z,
    )
    blocks = kinds(system, scales)
    factorization = Automatic().select(blocks)
    none = jnp.zeros_like(scales.rate)
    slow = SLOW * jnp.sqrt(scales.rate)
    is_known = methods.is_direct and system.artificial_energy_limit is None
    first = constant.z if is_known else None
    at = kernel(at_place)(system, t, place, scales, none, slow, None, first)
    if is_known:
        size = displacement(system, stop_gradients(at.start), place.travelled, scales)
        has_direction = size > float(jnp.finfo(size.dtype).eps) ** 0.5
        before = jax.tree.map(partial(jnp.where, has_direction), at.before, at.offset)
        at = eqx.tree_at(lambda b: b.before, at, before)
    at = eqx.tree_at(lambda b: b.offset, at, offset)
    x0 = unknowns(system, place.lam)
    # Factors with a little inertia are regular if directions have no stiffness.
    near = eqx.tree_at(lambda b: b.inertia, stop_gradients(at), LEAST_INERTIA * scales.rate)
    _, factors = kernel(factored)(near, place.lam, blocks, factorization)
    x = implicit(kernel(equations), x0, at, stop_gradients(factors), blocks, factorization)
    delta, _, dz = parts(system, x)
    delta = delta + kernel(_carried)(system, t, place, found.stability, offset.v)
    return jnp.concatenate([system.retract(place.q, delta), place.z + dz])


def _carried(
    system: AbstractSystem, t: Time, place: Place, found: Stability, offset: Float[Array, "nv"]
) -> Float[Array, "nv"]:
    """The part of a displacement along directions without stiffness."""
    system, t = stop_gradients((system, t))
    c = system.configuration(t, place.q, place.z)
    along = jnp.where(found.free, found.duals.T @ system.apply_mass(c, offset), 0.0)
    return found.directions @ along


def _by_joint(system: AbstractSystem, values: Float[Array, "n"]) -> dict[str, Float[Array, "..."]]:
    by_name, start = {}, 0
    for group in system.mechanism.joints:
        nv = group.joint.sizes()[1]
        for name in group.names:
            own = values[start : start + nv]
            by_name[name] = own[0] if nv == 1 else own
            start += nv
    return by_name


# Failures and warnings of the search for equilibrium, in words ------------------------------------

# Joints that move by less than this part of the largest displacement are not named.
VISIBLE = 1e-2


def named_joints(names: Sequence[str], motion: Any) -> tuple[str, ...]:
    """Joints whose motion is visible, by name, the largest first."""
    size = np.asarray(motion)
    order = np.argsort(-size, kind="stable")
    return tuple(names[int(i)] for i in order if size[i] > VISIBLE)


def is_rest(result: RESULTS) -> Any:
    """True if an equilibrium was found, stable or not."""
    return (result == RESULTS.successful) | (result == RESULTS.equilibrium_unstable)


def reported(found: "Equilibrium", throw: bool) -> "Equilibrium":
    """The result, after an error for a failure and a warning if it is unstable.

    **Raises** `EquilibriumError` if `throw`; under a transformation at run time.
    """
    okay = is_rest(found.result)
    if not is_concrete(okay):
        if not throw:
            return found
        with unwatched():
            state = found.result.error_if(found.state, ~okay)
        return eqx.tree_at(lambda f: f.state, found, state)
    if np.ndim(okay):
        return found
    found = _of_free_directions(found)
    if not okay:
        if throw:
            raise EquilibriumError(f"equilibrium: {_failure(found)}")
        return found
    if found.result == RESULTS.equilibrium_unstable:
        warn(
            f"the equilibrium is unstable: {_listed(found.unstable)} moves away from it "
            f"({_fastest(found)})",
            UnstableEquilibriumWarning,
        )
    elif int(found.left_unstable):
        warn(
            "an unstable equilibrium was found first and left along an unstable direction; start "
            "from a state near it to choose the direction, or with method='newton' to stay",
            UnstableEquilibriumWarning,
        )
    return found


def _of_free_directions(found: "Equilibrium") -> "Equilibrium":
    """The result without the infinite eigenvalues of directions that constraints hold."""
    if not is_concrete(found.eigenvalues):
        return found
    free = np.flatnonzero(~np.isposinf(np.asarray(found.eigenvalues)))
    values = tuple(as_jax(np.asarray(x)[free]) for x in (found.eigenvalues, found.imaginary))
    return eqx.tree_at(lambda f: (f.eigenvalues, f.imaginary), found, values)


def _fastest(found: "Equilibrium") -> str:
    """The fastest of the motions exp(s t), s² = -κ, that grow without damping."""
    values, imaginary = np.asarray(found.eigenvalues), np.asarray(found.imaginary)
    known = np.isfinite(values)
    s: Any = np.sqrt(-(values[known] + 1j * imaginary[known]))
    k = int(np.argmax(s.real))
    growth = f"without damping it grows at {s[k].real:.3g} 1/s"
    if imaginary[known][k] == 0:
        return f"eigenvalue {values[known][k]:.3g} 1/s²; {growth}"
    return f"flutter at {abs(s[k].imag) / (2 * np.pi):.3g} Hz; {growth}"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
    return f"joint {shown}" if names else "the mechanism"


def _failure(found: "Equilibrium") -> str:
    moving = _listed(named_joints(found.joints, found.falling_motion))
    look = "pass throw=False to look at the last state"
    if found.result == RESULTS.unbounded_motion:
        return (
            f"no equilibrium was reached: {moving} moves on without stiffness that would stop it; "
            f"add a support, a spring or `hold`, or start nearer; {look}"
        )
    if not np.isfinite(float(found.residual)):
        return f"the equations are not finite at the last state; {look}"
    opening, apart = np.abs(np.asarray(found.opening)), np.asarray(found.is_open)
    if apart.any():
        names = tuple(dict.fromkeys(found.rows[int(i)] for i in np.flatnonzero(apart)))
        return (
            f"no equilibrium was reached: {_listed(names)} stays open by up to "
            f"{opening.max():.3g} (m or sine of an angle); check that joints, drivers and held "
            f"coordinates permit a common position, or start nearer; {look}"
        )
    return (
        f"no equilibrium was reached: {moving} still moves (acceleration from rest "
        f"{float(found.residual):.3g} of that under the loads); start nearer, allow more steps, or "
        f"check that the loads can be in balance; {look}"
    )
