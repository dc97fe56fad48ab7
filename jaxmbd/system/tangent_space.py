"""The tangent space of the constraints, and the tangent matrices of the equations of motion.

Displacements δ of q ⊞ δ that satisfy the constraints to first order are the null space of G. The
second derivative of the constraints acts through their multipliers: it is part of the stiffness.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..linear import ConstraintFactors
from ..model.values import all_concrete
from ..programs import stored
from ..programs.tracing import kernel, of_directions, slopes, stop_gradients
from . import constraints
from .abstract import AbstractSystem, State, States, Time, Velocities, as_state, as_time
from .configuration import AbstractConfiguration
from .equation_residuals import motion_residual
from .loads import state_rates
from .saddle_point import SaddlePoint, saddle_point


class TangentMatrices(eqx.Module):
    """Derivatives of R = M v̇ + b - f - Gᵀ λ and of the state rates r, at fixed v̇ and λ.

    - `stiffness`: ∂R/∂δ of q ⊞ δ, shape `(nv, k)`; `damping`: ∂R/∂v, shape `(nv, k)`. The k
      columns belong to the directions of the displacements and velocities.
    - `states`: ∂R/∂z, shape `(nv, nz)`.
    - `rates_by_position`, `rates_by_velocity`: ∂r/∂δ and ∂r/∂v, shape `(nz, k)`;
      `rates_by_states`: ∂r/∂z, shape `(nz, nz)`.
    """

    stiffness: Float[Array, "nv k"]
    damping: Float[Array, "nv k"]
    states: Float[Array, "nv nz"]
    rates_by_position: Float[Array, "nz k"]
    rates_by_velocity: Float[Array, "nz k"]
    rates_by_states: Float[Array, "nz nz"]


def n_free(system: AbstractSystem, c: AbstractConfiguration, holonomic: bool = False) -> int:
    """Dimension of the null space of G, from concrete values.

    Rank decisions are those of `accelerations`: the rows of tree joints are independent, the others
    are compared with the rounding errors of their terms and with the violation of the constraints.

    **Arguments:** `holonomic`: whether to omit nonholonomic rows. Default: False.

    **Raises** `ModelError` for traced values.
    """
    if not all_concrete((system, c)):
        raise ModelError(
            "the number of free directions is static and needs concrete numbers: compute it with "
            "n_free outside jit, and give it to null_space"
        )
    return system.nv - int(_rank(system, c, holonomic))


def null_space(
    system: AbstractSystem,
    c: AbstractConfiguration,
    n: int | None = None,
    holonomic: bool = False,
) -> Float[Array, "nv n"]:
    """Basis N of the null space of G, orthonormal in the kinetic metric: G N = 0, Nᵀ M N = 1.

    The derivative of N is that of N(θ) = P(θ) N₀ L⁻ᵀ with the M-orthogonal projector P onto the
    null space, N₀ constant, and L Lᵀ = N₀ᵀ Pᵀ M P N₀. Rows of G may be redundant, if they remain
    redundant as the parameters change. The basis itself is arbitrary up to an orthogonal matrix.

    **Arguments:**

    - `n`: number of columns. Default: `n_free`, which requires concrete values.
    - `holonomic`: whether to omit nonholonomic rows. Default: False.

    **Raises** `ModelError` for traced values without `n`, and for `n` outside 0 … nv.
    """
    n = n_free(system, c, holonomic) if n is None else n
    if not 0 <= n <= system.nv:
        raise ModelError(f"null_space: n must be from 0 to nv = {system.nv}, got {n}")
    return _null_space(system, c, n, holonomic)


def tangent_matrices(
    system: AbstractSystem,
    t: float | Time,
    state: State,
    lam: Float[Array, "ng"],
    vdot: Velocities | None = None,
    directions: Float[Array, "nv k"] | None = None,
) -> TangentMatrices:
    """Stiffness, damping and couplings to first-order states, see `TangentMatrices`.

    With multipliers λ held fixed, the stiffness contains the curvature of the constraints,
    -∂(Gᵀ λ)/∂δ. In equilibrium small motions δ = N η satisfy Nᵀ M N η̈ + Nᵀ D N η̇ + Nᵀ K N η = 0.

    **Arguments:**

    - `lam`: multipliers, shape `(ng,)`; `vdot`: accelerations, shape `(nv,)`. Default: zero.
    - `directions`: columns δ and v along which to differentiate. Default: all.
    """
    return _tangent_matrices(*_arguments(system, t, state, lam, vdot, directions))


@stored
def _tangent_matrices(system: AbstractSystem, *others: Any) -> TangentMatrices:
    return kernel(_derivatives)(system.prepared(), *others)


def _derivatives(
    system: AbstractSystem,
    t: Time,
    state: State,
    lam: Float[Array, "ng"],
    vdot: Velocities,
    columns: Float[Array, "nv k"],
) -> TangentMatrices:
    def equations(
        dq: Velocities, dv: Velocities, dz: States
    ) -> tuple[Float[Array, "nv"], Float[Array, "nz"]]:
        c = system.configuration(t, system.retract(state.q, dq), state.z + dz)
        v = state.v + dv
        return motion_residual(system, c, v, vdot, lam), state_rates(c, v)

    zeros = jnp.zeros_like(state.v), jnp.zeros_like(state.v), jnp.zeros_like(state.z)
    _, slope = jax.linearize(equations, *zeros)
    k, nz, dtype = columns.shape[1], system.nz, columns.dtype
    # One evaluation for all columns: its program is compiled once.
    along = (
        jnp.concatenate([columns, jnp.zeros((system.nv, k + nz), dtype)], axis=1),
        jnp.concatenate(
            [jnp.zeros_like(columns), columns, jnp.zeros((system.nv, nz), dtype)], axis=1
        ),
        jnp.concatenate([jnp.zeros((nz, 2 * k), dtype), jnp.eye(nz, dtype=dtype)], axis=1),
    )
    of_motion, of_rates = (x.T for x in of_directions(slope, *(x.T for x in along)))
    parts = (slice(0, k), slice(k, 2 * k), slice(2 * k, 2 * k + nz))
    return TangentMatrices(
        *(of_motion[:, part] for part in parts), *(of_rates[:, part] for part in parts)
    )


def tangent_stiffness(
    system: AbstractSystem,
    t: float | Time,
    state: State,
    lam: Float[Array, "ng"],
    vdot: Velocities | None = None,
    directions: Float[Array, "nv k"] | None = None,
) -> Float[Array, "nv k"]:
    """Stiffness K = ∂(M v̇ + b - f - Gᵀ λ)/∂δ alone, with the arguments of `tangent_matrices`."""
    return _tangent_stiffness(*_arguments(system, t, state, lam, vdot, directions))


@stored
def _tangent_stiffness(system: AbstractSystem, *others: Any) -> Float[Array, "nv k"]:
    return kernel(_along_columns)(system.prepared(), *others)


def _along_columns(
    system: AbstractSystem,
    t: Time,
    state: State,
    lam: Float[Array, "ng"],
    vdot: Velocities,
    columns: Float[Array, "nv k"],
) -> Float[Array, "nv k"]:
    def residual(dq: Velocities) -> Velocities:
        c = system.configuration(t, system.retract(state.q, dq), state.z)
        return motion_residual(system, c, state.v, vdot, lam)

    return slopes(residual, jnp.zeros_like(state.v), columns.T)[1].T


def _arguments(
    system: AbstractSystem,
    t: float | Time,
    state: State,
    lam: Float[Array, "ng"],
    vdot: Velocities | None,
    directions: Float[Array, "nv k"] | None,
) -> tuple[AbstractSystem, Time, State, Array, Velocities, Float[Array, "nv k"]]:
    """Arguments in the system's float type, with their defaults."""
    state = as_state(state, system)
    vdot = jnp.zeros_like(state.v) if vdot is None else vdot
    columns = jnp.eye(system.nv, dtype=state.v.dtype) if directions is None else directions
    return system, as_time(t, system), state, lam, vdot, columns


@stored
def _rank(system: AbstractSystem, c: AbstractConfiguration, holonomic: bool) -> Array:
    return _rank_of(constraint_equations(system.prepared(), c, holonomic))


def _rank_of(equations: SaddlePoint | None) -> Array:
    if equations is None:
        return jnp.zeros((), dtype=int)
    factors = equations.factors
    if not isinstance(factors, ConstraintFactors):
        # Without possibly redundant rows the factors are Cholesky's, and all rows are independent.
        return jnp.array(len(equations.G))
    return factors.Q.shape[1] + jnp.sum(factors.nonzero)


def free_velocities(
    system: AbstractSystem, c: AbstractConfiguration, holonomic: bool
) -> tuple[Array, Float[Array, "nv nv"]]:
    """Dimension of the null space of G, and L⁻ᵀ P with the projector P onto the null space of Bᵀ.

    M = L Lᵀ and B = L⁻¹ Gᵀ. The columns span the null space, and for each covector r the length of
    r L⁻ᵀ P is that of r N with the basis N of `null_space`. Unlike N they have a static shape.

    **Arguments:** `holonomic`: whether to omit nonholonomic rows.
    """
    equations, nv = constraint_equations(system, c, holonomic), system.nv
    P = jnp.eye(nv, dtype=c.q.dtype) if equations is None else equations.projector()
    factor = system.mass_factor(c)
    columns = jax.vmap(lambda y: system.unwhiten(factor, y), in_axes=1, out_axes=1)(P)
    return nv - _rank_of(equations), columns


@stored
def _null_space(
    system: AbstractSystem, c: AbstractConfiguration, n: int, holonomic: bool
) -> Float[Array, "nv n"]:
    system = system.prepared()
    return null_space_of(system, c, constraint_equations(system, c, holonomic), n)


def null_space_of(
    system: AbstractSystem, c: AbstractConfiguration, equations: SaddlePoint | None, n: int
) -> Float[Array, "nv n"]:
    """`null_space` of a saddle point, the result of `constraint_equations`."""
    if n == 0:
        return jnp.zeros((system.nv, 0), dtype=c.q.dtype)
    start = _null_columns(system, c, equations, n)
    if equations is None:
        projected = start
    else:
        zeros = jnp.zeros(len(equations.G), dtype=c.q.dtype)

        # M y - Gᵀ λ = M x, G y = 0: y is the projection of x onto the null space, in the metric M.
        # Its derivative is that of the solve, which makes the derivative of N.
        def projection(x: Velocities) -> Velocities:
            return equations.solve(system.apply_mass(c, x), zeros)[0]

        projected = jax.vmap(projection, in_axes=1, out_axes=1)(start)
    momenta = jax.vmap(lambda x: system.apply_mass(c, x), in_axes=1, out_axes=1)(projected)
    L = jnp.linalg.cholesky(projected.T @ momenta)
    return jsl.solve_triangular(L, projected.T, lower=True).T


def constraint_equations(
    system: AbstractSystem, c: AbstractConfiguration, holonomic: bool
) -> SaddlePoint | None:
    """M and G, factored; None without constraints."""
    rows = np.arange(constraints.n_constraints(system))
    if holonomic:
        rows = rows[constraints.is_holonomic(system)]
    if rows.size == 0:
        return None
    g = constraints.residual(system, c)
    return saddle_point(system, c, g, rows=rows if holonomic else None)


def _null_columns(
    system: AbstractSystem, c: AbstractConfiguration, equations: SaddlePoint | None, n: int
) -> Float[Array, "nv n"]:
    """n columns of the null space at the present values, orthonormal in the kinetic metric.

    They are the complement of the rows that are independent by construction and of the singular
    vectors with the largest singular values of the others. Their derivative is zero.
    """
    system, c, equations = stop_gradients((system, c, equations))
    nv, dtype = system.nv, c.q.dtype
    factor = system.mass_factor(c)
    complement = jnp.eye(nv, dtype=dtype)
    if equations is not None and n < nv:
        ranges = equations.B
        if isinstance(equations.factors, ConstraintFactors):
            Q, U = equations.factors.Q, equations.factors.U
            ranges = jnp.concatenate([Q, U[:, : max(nv - n - Q.shape[1], 0)]], axis=1)
        complement = jnp.linalg.qr(ranges, mode="complete")[0][:, nv - n :]
    unwhiten = jax.vmap(lambda y: system.unwhiten(factor, y), in_axes=1, out_axes=1)
    return jax.lax.stop_gradient(unwhiten(complement[:, -n:]))
