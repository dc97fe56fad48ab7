"""Independent and dependent coordinates (Wehage and Haug 1982), by complete pivoting."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..linear.constrained import threshold
from ..programs.stop_gradients import stop_gradients
from . import constraints
from .abstract import AbstractSystem, State, Time
from .projection import projected, small_correction
from .saddle_point import row_lengths
from .stabilization import AbstractCorrection, Choice


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
        return small_correction(system, before, state, projected(system, t, state, movable))

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
    violation = constraints.violation(c, constraints.residual(system, c))
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
