"""Projection of positions and velocities onto the constraints."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..programs.stop_gradients import stop_gradients
from ..programs.with_slope import converged
from . import constraints
from .abstract import AbstractSystem, Coordinates, State, Time, Velocities, as_time
from .kernels import kernel
from .residuals import violations
from .saddle_point import saddle_point
from .stabilization import AbstractCorrection, Choice

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
        return small_correction(system, choice, state, projected(system, t, state))

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
    system: AbstractSystem, t: Time, state: State, movable: Bool[Array, "nv"] | None = None
) -> State:
    """The projection of a state onto the constraints, positions first.

    Residuals that are rounding errors are not corrected: near singular positions, the correction
    would be their square root.
    """
    q = project_positions(system, t, state.q, movable)
    v = project_velocities(system, t, State(q, state.v, state.z), movable)
    return State(q, v, state.z)


def project_velocities(
    system: AbstractSystem, t: Time, state: State, movable: Bool[Array, "nv"] | None = None
) -> Velocities:
    """The velocities nearest to `state.v` that satisfy G v + g_t = 0.

    They are v - M⁻¹ Gᵀ (G M⁻¹ Gᵀ)⁺ (G v + g_t), nearest in the kinetic metric. With `movable` only
    these velocities change, and the result is nearest in the Euclidean norm.
    """
    if constraints.n_constraints(system) == 0:
        return state.v
    return kernel(_velocities)(system, as_time(t, system), state, movable)


def _velocities(
    system: AbstractSystem, t: Time, state: State, movable: Bool[Array, "nv"] | None
) -> Velocities:
    v, c = state.v, system.configuration(t, state.q)
    residual, rates, scale, speed = violations(system, c, v)
    equations = saddle_point(system, c, residual, movable)
    rates = constraints.above_rounding(c, rates, scale, speed)
    change, _ = equations.solve(jnp.zeros_like(v), rates)
    return v - change


def project_positions(
    system: AbstractSystem, t: Time, q: Coordinates, movable: Bool[Array, "nv"] | None = None
) -> Coordinates:
    """Coordinates near `q` that satisfy g(t, q) = 0.

    Gauss-Newton steps q ⊞ -M⁻¹ Gᵀ (G M⁻¹ Gᵀ)⁺ g are iterated until g is a rounding error, or no
    longer decreases. The derivative is that of one more such step. It is exact if `q` satisfies
    g = 0; otherwise its relative error is about the size of the correction, which is the error of a
    step (7e-7 for midpoint steps of 20 ms of a four-bar).
    """
    if constraints.n_constraints(system) == 0:
        return q
    constant, time, start = stop_gradients((system, as_time(t, system), q))
    scale = kernel(_scales)(constant, time, start)

    def corrected(end: Array, args: tuple[AbstractSystem, Time, Array, Array]) -> Array:
        system, t, q, scale = args
        end = q + jax.lax.stop_gradient(end - q)
        return kernel(_correct)(system, t, end, scale, movable)[0]

    end = _closed(constant, time, start, scale, movable)
    return converged(corrected, end, (system, as_time(t, system), q, scale))


def _scales(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, "ng"]:
    c = system.configuration(t, q)
    return constraints.scales(system, c, constraints.jacobian(system, c))


def _closed(
    system: AbstractSystem,
    t: Time,
    q: Coordinates,
    scale: Float[Array, "ng"],
    movable: Bool[Array, "nv"] | None,
) -> Coordinates:
    def unfinished(now: tuple[Any, ...]) -> Bool[Array, ""]:
        _, error, before, n = now  # `error` is the residual before the last correction.
        return (error > 0) & (error < 0.5 * before) & (n < MAX_STEPS)

    def step(now: tuple[Any, ...]) -> tuple[Any, ...]:
        q, before, _, n = now
        q, error = kernel(_correct)(system, t, q, scale, movable)
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
) -> tuple[Coordinates, Float[Array, ""]]:
    """Coordinates after one Gauss-Newton step, and the largest residual by `scale` before it.

    Residuals that are rounding errors count as zero.
    """
    c = system.configuration(t, q)
    holonomic = np.flatnonzero(constraints.is_holonomic(system))
    g = constraints.residual(system, c)
    equations = saddle_point(system, c, g, movable, rows=holonomic)
    g = constraints.above_rounding(c, g, scale)
    change, _ = equations.solve(jnp.zeros(system.nv, dtype=q.dtype), -g[holonomic])
    return system.retract(q, change), jnp.max(jnp.abs(g) / scale)


def scattered_jacobian(system: AbstractSystem, t: Time, q: Array) -> Float[Array, "nv ng"]:
    """M⁻¹ Gᵀ, shape `(nv, ng)`: the changes of velocity per unit impulse of each constraint."""
    c = system.configuration(t, q)
    return jnp.asarray(system.solve_mass(c, constraints.jacobian(system, c).T))
