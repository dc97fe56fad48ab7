"""Positions and velocities that the constraints allow, nearest to given ones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._stop_gradients import stop_gradients
from . import constraints
from .abstract import AbstractSystem, Coordinates, State, Time, Velocities
from .residuals import constraint_rates
from .saddle_point import saddle_point
from .stabilization import AbstractCorrection, Choice

MAX_STEPS = 10

# A step is lost whose velocities have to be corrected by more than these parts of themselves and of
# their change in the step, in the kinetic metric. Steps of a fast four-bar are corrected by up to
# 1e-5 of the velocity; where a passage through its singular position added energy, by 0.03 to 0.13
# of it and by 0.4 to 0.9 of the change.
LOST = 0.01, 0.1


class Projection(AbstractCorrection):
    """After each step the state is moved to the nearest one with g = 0 and G v + g_t = 0.

    Nearest in the kinetic metric: bodies move as if the constraints had struck them. The order of
    the method stays, and so does the motion but for the error of a step. Where a correction is no
    longer small the step is lost, and its velocities are NaN: it was too large, or the constraints
    have become singular.
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
    """The end of a step as it was `moved`; NaN where that was far from the one `given`.

    `before` are the velocities at the start of the step. Drivers may start to move in a step, and
    are left to themselves.
    """
    if system.mechanism.drivers:
        return moved
    M = system.mass(given.q)
    correction, whole, change = (x @ M @ x for x in (moved.v - given.v, given.v, given.v - before))
    lost = (correction > LOST[0] ** 2 * whole) & (correction > LOST[1] ** 2 * change)
    return State(moved.q, jnp.where(lost, jnp.nan, moved.v), moved.z)


def projected(
    system: AbstractSystem, t: Time, state: State, movable: Bool[Array, "nv"] | None = None
) -> State:
    """The state on the constraints near another one, positions first."""
    q = project_positions(system, t, state.q, movable)
    v = project_velocities(system, t, State(q, state.v, state.z), movable)
    return State(q, v, state.z)


def project_velocities(
    system: AbstractSystem, t: Time, state: State, movable: Bool[Array, "nv"] | None = None
) -> Velocities:
    """The velocities nearest to `v` that satisfy G v + g_t = 0.

    v - M⁻¹ Gᵀ (G M⁻¹ Gᵀ)⁺ (G v + g_t), in the kinetic metric; where only some are `movable`, those
    that change least.
    """
    if constraints.n_constraints(system) == 0:
        return state.v
    q, v = state.q, state.v
    c = system.configuration(t, q)
    equations = saddle_point(system, c, constraints.residual(system, c), movable)
    change, _ = equations.solve(jnp.zeros_like(v), constraint_rates(system, c, v))
    return v - change


def project_positions(
    system: AbstractSystem, t: Time, q: Coordinates, movable: Bool[Array, "nv"] | None = None
) -> Coordinates:
    """Coordinates near `q` that satisfy g(t, q) = 0.

    Gauss-Newton steps q ⊞ -M⁻¹ Gᵀ (G M⁻¹ Gᵀ)⁺ g, until g no longer shrinks. The derivative is that
    of one more such step, which is exact where `q` satisfied g = 0 already, and else off by a part
    of about the size of the correction: that of the error of a step (7e-7 of a derivative where
    midpoint steps of 20 ms move a four-bar).
    """
    if constraints.n_constraints(system) == 0:
        return q
    still, time, start = stop_gradients((system, t, q))
    moved = _closed(still, time, start, movable) - start
    return _correct(system, t, q + moved, movable)[0]


def _closed(
    system: AbstractSystem, t: Time, q: Coordinates, movable: Bool[Array, "nv"] | None
) -> Coordinates:
    enough = 10 * float(jnp.finfo(q.dtype).eps)

    def unfinished(now: tuple[Any, ...]) -> Bool[Array, ""]:
        _, gap, before, n = now  # The gap is that before the last correction.
        return (gap > enough) & (gap < 0.5 * before) & (n < MAX_STEPS)

    def step(now: tuple[Any, ...]) -> tuple[Any, ...]:
        q, before, _, n = now
        q, gap = _correct(system, t, q, movable)
        return q, gap, before, n + 1

    most = jnp.array(jnp.finfo(q.dtype).max, q.dtype)
    start = (q, most, jnp.array(jnp.inf, q.dtype), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, step, start)[0]


def _correct(
    system: AbstractSystem, t: Time, q: Coordinates, movable: Bool[Array, "nv"] | None
) -> tuple[Coordinates, Float[Array, ""]]:
    """Coordinates after one step, and the largest residual before it."""
    c = system.configuration(t, q)
    holonomic = np.flatnonzero(constraints.is_holonomic(system))
    g = constraints.residual(system, c)
    equations = saddle_point(system, c, g, movable, rows=holonomic)
    change, _ = equations.solve(jnp.zeros(system.nv, dtype=q.dtype), -g[holonomic])
    return system.retract(q, change), jnp.max(jnp.abs(g))


def scattered_jacobian(system: AbstractSystem, t: Time, q: Array) -> Float[Array, "nv ng"]:
    """M⁻¹ Gᵀ: the velocities that impulses of the constraints cause."""
    c = system.configuration(t, q)
    return jnp.asarray(system.solve_mass(c, constraints.jacobian(system, c).T))


__all__ = [
    "Projection",
    "project_positions",
    "project_velocities",
    "projected",
    "scattered_jacobian",
    "small_correction",
]
