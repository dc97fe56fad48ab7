"""Derivatives of the accelerations of rigid trees: -M⁻¹ times those of the equations of motion."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scalarjit import mostly_zeros, native_of

from ...linear import solve_spd
from ...system.abstract import State, Time
from ...system.acceleration import free_accelerations
from ...system.acceleration_derivatives import Matrices
from ...system.looked_up import with_values_looked_up
from .load_derivatives import Plan, plan_of
from .residual_derivatives import MAX_BY_ENTRIES, residual_derivatives
from .system import JointSystem
from .tree_factor import Packed, TreeFactor

Columns = Float[Array, "k nv"]
Factored = Callable[[Packed], Packed]


def in_closed_form(system: JointSystem, t: Time, state: State) -> Matrices | None:
    """∂v̇/∂q and ∂v̇/∂v; None for loops, flexible bodies and elements with states."""
    plan = plan_of(system)
    if plan is None or system.nv == 0:
        return None
    vdot, nv = free_accelerations(system, t, state), system.nv
    system = with_values_looked_up(system, t)
    found = _generated(plan, system, t, state, vdot)
    if found is not None:
        return found
    c = system.configuration(t, state.q, state.z)
    residual = jnp.concatenate(residual_derivatives(system, c, plan, state.v, vdot), axis=1)
    solved = solve_spd(system.mass_at(c), -_also_nan(residual, vdot))
    return solved[:, :nv], solved[:, nv:]


def _also_nan(x: Array, vdot: Float[Array, "nv"]) -> Array:
    """x, NaN where v̇ is: derivatives along velocities of the first bodies do not depend on v̇."""
    return x * jnp.where(jnp.isnan(vdot).any(), jnp.nan, 1.0).astype(x.dtype)


def _generated(
    plan: Plan, system: JointSystem, t: Time, state: State, vdot: Float[Array, "nv"]
) -> Matrices | None:
    """The derivatives by generated code: for the residual, and for one column after another."""
    if system.nv > MAX_BY_ENTRIES:
        return None
    tree = TreeFactor(system.layout.recursion.parents)
    args = system, t, state, vdot, jnp.ones((), vdot.dtype)
    elsewhere = partial(_residual, plan, tree, tree.factor_densely)
    residual = native_of(
        partial(_residual, plan, tree, tree.factor), *args, otherwise=elsewhere, linear=1
    )
    if residual is None:
        return None
    columns, L = residual(*args)
    solve = native_of(tree.solve, L, columns[0], otherwise=tree.solve_densely, linear=1)
    if solve is None:
        return None
    solved = jax.vmap(solve, (None, 0))(L, columns)
    matrices = native_of(_matrices, solved, linear=1)  # XLA copies batches twice.
    return _matrices(solved) if matrices is None else matrices(solved)


def _matrices(columns: Columns) -> Matrices:
    nv = columns.shape[1]
    return columns[:nv].T, columns[nv:].T


def _residual(
    plan: Plan,
    tree: TreeFactor,
    factor: Factored,
    system: JointSystem,
    t: Time,
    state: State,
    vdot: Float[Array, "nv"],
    unit: Float[Array, ""],
) -> tuple[Columns, Packed]:
    """Minus the derivatives of the equations of motion, by displacements of `unit`, and L."""

    def one(system: JointSystem, t: Time, state: State, vdot: Array) -> tuple[Columns, Packed]:
        c = system.configuration(t, state.q, state.z)
        by_q, by_v = residual_derivatives(system, c, plan, state.v, vdot)
        L = factor(tree.packed(system.mass_at(c)))
        return -_also_nan(jnp.concatenate([by_q.T, by_v.T]), vdot), L

    columns, L = mostly_zeros(one, system, t, state, vdot)
    return unit * columns, unit * L


__all__ = ["in_closed_form"]
