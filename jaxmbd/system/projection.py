"""Projection of positions and velocities onto the constraints."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..linear.constrained import threshold
from ..programs.tracing import kernel, stop_gradients
from ..programs.with_slope import converged
from . import constraints, sizes
from .abstract import AbstractSystem, Coordinates, State, Time, Velocities, as_time
from .acceleration import AbstractCorrection, Choice
from .equation_residuals import violations
from .saddle_point import row_lengths, saddle_point

if TYPE_CHECKING:
    from .abstract import AbstractSystem, State, Time


# Projection of positions and velocities onto the constraints --------------------------------------

MAX_STEPS = 10

# A step is rejected if the correction of its velocities exceeds these parts of the velocities and
# of their change in the step, in the kinetic metric. In steps of a fast four-bar the correction is
# up to 1e-5 of the velocity. If a passage through its singular position added energy, it was 0.03
# to 0.13 of the velocity and 0.4 to 0.9 of the change.
MAX_CORRECTION = 0.01, 0.1


class Projection(AbstractCorrection):
    """Projection of the state after each step onto g = 0 and G v + g_t = 0.

    The projected state is the nearest one in the kinetic metric: the correction of the velocities
    is that of impulses of the constraints. The projection preserves the order of the method. If the
    correction of a step is not small, its velocities are NaN: the step was too large, or the
    constraints became singular.
    """

    def choose(self, system: AbstractSystem, t: Time, state: State) -> Choice:
        return state.v

    def corrected(self, system: AbstractSystem, t: Time, state: State, choice: Choice) -> State:
        moved = projected(system, t, state, with_rounding=True)
        return small_correction(system, choice, state, moved)

    def placed(self, system: AbstractSystem, t: Time, state: State) -> State:
        return projected(system, t, state)


def small_correction(
    system: AbstractSystem, before: Velocities, given: State, moved: State
) -> State:
    """A corrected state, with velocities NaN if the correction is large.

    `given` is the state before the correction, `moved` the state after it. `before` are the
    velocities at the start of the step. Systems with drivers are not checked, since drivers may
    start to move within a step.
    """
    if system.mechanism.drivers:
        return moved
    changes = jnp.stack([moved.v - given.v, given.v, given.v - before])
    correction, size, change = _metric(system, given.q, changes)
    of_size, of_change = MAX_CORRECTION
    rejected = (correction > of_size**2 * size) & (correction > of_change**2 * change)
    return State(moved.q, jnp.where(rejected, jnp.nan, moved.v), moved.z)


@kernel
def _metric(system: AbstractSystem, q: Coordinates, v: Float[Array, "n nv"]) -> Float[Array, "n"]:
    """vᵀ M v of each row."""
    return jnp.sum((v @ system.mass(q)) * v, axis=1)


def projected(
    system: AbstractSystem,
    t: Time,
    state: State,
    movable: Bool[Array, "nv"] | None = None,
    *,
    with_rounding: bool = False,
) -> State:
    """The projection of a state onto the constraints, positions first.

    Residuals that are rounding errors are not corrected: near singular positions, the correction
    would be their square root. A motion with such a residual in all of its steps, however, is one
    of links of slightly other lengths, which turns into another branch where the given links pass
    a singular position straight on. `with_rounding` corrects these residuals of positions, too.
    """
    t = as_time(t, system)
    scale = sizes.scales_at(system, t, state.q)
    q = project_positions(system, t, state.q, movable, scale, with_rounding)
    v = project_velocities(system, t, State(q, state.v, state.z), movable, scale)
    return State(q, v, state.z)


def as_rigid(system: AbstractSystem, t: Time, state: State) -> tuple[AbstractSystem, State]:
    """The system with rigid bodies for artificial springs, and the nearest state of these."""
    rigid = system.rigid()
    if system.artificial_energy_limit is None:
        return rigid, state
    return rigid, projected(rigid, t, state)


def project_velocities(
    system: AbstractSystem,
    t: Time,
    state: State,
    movable: Bool[Array, "nv"] | None = None,
    scale: Float[Array, "ng"] | None = None,
) -> Velocities:
    """The velocities nearest to `state.v` that satisfy G v + g_t = 0.

    They are v - M⁻¹ Gᵀ (G M⁻¹ Gᵀ)⁺ (G v + g_t), nearest in the kinetic metric. With `movable` only
    these velocities change, and the result is nearest in the Euclidean norm. `scale`: scales of the
    constraints near `state.q`. Default: those there.
    """
    if constraints.n_constraints(system) == 0:
        return state.v
    t = as_time(t, system)
    scale = sizes.scales_at(system, t, state.q) if scale is None else scale
    return kernel(_velocities)(system, t, state, scale, movable)


def _velocities(
    system: AbstractSystem,
    t: Time,
    state: State,
    scale: Float[Array, "ng"],
    movable: Bool[Array, "nv"] | None,
) -> Velocities:
    v, c = state.v, system.configuration(t, state.q)
    residual, rates, speed = violations(system, c, v, scale)
    equations = saddle_point(system, c, residual, movable)
    rates = sizes.above_rounding(c, rates, scale, speed)
    change, _ = equations.solve(jnp.zeros_like(v), rates)
    return v - change


def project_positions(
    system: AbstractSystem,
    t: Time,
    q: Coordinates,
    movable: Bool[Array, "nv"] | None = None,
    scale: Float[Array, "ng"] | None = None,
    with_rounding: bool = False,
) -> Coordinates:
    """Coordinates near `q` that satisfy g(t, q) = 0.

    Gauss-Newton steps q ⊞ -M⁻¹ Gᵀ (G M⁻¹ Gᵀ)⁺ g are iterated until g is a rounding error, or no
    longer decreases. The derivative is that of one more such step. It is exact if `q` satisfies
    g = 0; otherwise its relative error is about the size of the correction, which is the error of a
    step (7e-7 for midpoint steps of 20 ms of a four-bar). `scale` as of `project_velocities`,
    `with_rounding` as of `projected`.
    """
    if constraints.n_constraints(system) == 0:
        return q
    t = as_time(t, system)
    scale = sizes.scales_at(system, t, q) if scale is None else scale
    constant, time, start = stop_gradients((system, t, q))

    def corrected(end: Array, args: tuple[AbstractSystem, Time, Array, Array]) -> Array:
        system, t, q, scale = args
        end = q + jax.lax.stop_gradient(end - q)
        return kernel(_correct)(system, t, end, scale, movable, with_rounding)[0]

    end = _closed(constant, time, start, scale, movable, with_rounding)
    return converged(corrected, end, (system, t, q, scale))


def _closed(
    system: AbstractSystem,
    t: Time,
    q: Coordinates,
    scale: Float[Array, "ng"],
    movable: Bool[Array, "nv"] | None,
    with_rounding: bool,
) -> Coordinates:
    tolerance = 10 * float(jnp.finfo(q.dtype).eps) if with_rounding else 0.0

    def unfinished(now: tuple[Any, ...]) -> Bool[Array, ""]:
        _, error, before, n = now  # `error` is the residual before the last correction.
        return (error > tolerance) & (error < 0.5 * before) & (n < MAX_STEPS)

    def step(now: tuple[Any, ...]) -> tuple[Any, ...]:
        q, before, _, n = now
        q, error = kernel(_correct)(system, t, q, scale, movable, with_rounding)
        return q, error, before, n + 1

    largest = jnp.array(jnp.finfo(q.dtype).max, q.dtype)
    start = (q, largest, jnp.array(jnp.inf, q.dtype), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, step, start)[0]


def _correct(
    system: AbstractSystem,
    t: Time,
    q: Coordinates,
    scale: Float[Array, "ng"],
    movable: Bool[Array, "nv"] | None,
    with_rounding: bool,
) -> tuple[Coordinates, Float[Array, ""]]:
    """Coordinates after one Gauss-Newton step, and the largest residual by `scale` before it.

    Residuals that are rounding errors count as zero, unless `with_rounding`.
    """
    c = system.configuration(t, q)
    holonomic = np.flatnonzero(constraints.is_holonomic(system))
    g = constraints.residual(system, c)
    equations = saddle_point(system, c, g, movable, rows=holonomic)
    g = g if with_rounding else sizes.above_rounding(c, g, scale)
    change, _ = equations.solve(jnp.zeros(system.nv, dtype=q.dtype), -g[holonomic])
    return system.retract(q, change), jnp.max(jnp.abs(g) / scale)


def scattered_jacobian(system: AbstractSystem, t: Time, q: Array) -> Float[Array, "nv ng"]:
    """M⁻¹ Gᵀ, shape `(nv, ng)`: the changes of velocity per unit impulse of each constraint."""
    c = system.configuration(t, q)
    return jnp.asarray(system.solve_mass(c, constraints.jacobian(system, c).T))


# Independent and dependent coordinates (Wehage and Haug 1982), by complete pivoting ---------------


class CoordinatePartitioning(AbstractCorrection):
    """Integration of independent coordinates, as many as there are degrees of freedom.

    In every stage the dependent coordinates follow from the independent ones: positions by Newton's
    method on g = 0, velocities from G v + g_t = 0. Complete pivoting of G selects the dependent
    coordinates anew in each step, so that its pivots never degrade. Pivoting does not mix loops
    that share no joint, and skips redundant constraints. A step with a large correction is rejected
    as in `Projection`: its velocities are NaN.
    """

    def choose(self, system: AbstractSystem, t: Time, state: State) -> Choice:
        return dependent(system, t, state.q), state.v

    def stage(self, system: AbstractSystem, t: Time, state: State, choice: Choice) -> State:
        return projected(system, t, state, choice[0])

    def corrected(self, system: AbstractSystem, t: Time, state: State, choice: Choice) -> State:
        movable, before = choice
        moved = projected(system, t, state, movable, with_rounding=True)
        return small_correction(system, before, state, moved)

    def placed(self, system: AbstractSystem, t: Time, state: State) -> State:
        return projected(system, t, state, dependent(system, t, state.q))


def dependent(system: AbstractSystem, t: Time, q: Float[Array, "nq"]) -> Bool[Array, "nv"]:
    """Mask of the dependent velocities, one for each independent constraint.

    Columns of G are scaled by the inertia of their velocities, since lengths and angles have
    different units, and rows by their lengths.
    """
    c = system.configuration(t, q)
    redundant = constraints.possibly_redundant(system)
    inertia = jnp.diagonal(system.mass_at(c))
    rows = constraints.jacobian(system, c) / jnp.sqrt(inertia)[None]
    length = row_lengths(system, c, rows.T)
    violation = sizes.violation(c, constraints.residual(system, c))
    scaled, violation = stop_gradients((rows / length[:, None], violation))
    return pivot_columns(scaled, redundant, threshold(rows.shape, violation))


def pivot_columns(
    A: Float[Array, "m n"], redundant: Bool[np.ndarray, "m"], smallest: Float[Array, ""]
) -> Bool[Array, "n"]:
    """Columns of the pivots of Gaussian elimination with complete pivoting, as many as the rank.

    Rows that are independent by construction are eliminated first; each has a pivot. Pivots of the
    possibly `redundant` rows count as zero below `smallest`.
    """
    m, n = A.shape
    if m == 0:
        return jnp.zeros(n, dtype=bool)
    n_first = int(np.sum(~redundant))

    def eliminate(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        A, chosen = carry
        first = k < n_first
        candidates = jnp.asarray(redundant) != first
        place = jnp.argmax(jnp.where(candidates[:, None], jnp.abs(A), -1.0))
        i, j = place // n, place % n
        pivot = A[i, j]
        accepted = jnp.abs(pivot) > jnp.where(first, 0.0, smallest)
        rest = A - jnp.outer(A[:, j], A[i] / jnp.where(accepted, pivot, 1.0))
        rest = rest.at[i].set(0.0).at[:, j].set(0.0)
        return jnp.where(accepted, rest, A), chosen.at[j].set(chosen[j] | accepted)

    return jax.lax.fori_loop(0, min(m, n), eliminate, (A, jnp.zeros(n, dtype=bool)))[1]
