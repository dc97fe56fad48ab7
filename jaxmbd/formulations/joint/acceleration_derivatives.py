"""Derivatives of the accelerations of rigid trees: -M⁻¹ times those of the equations of motion."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from scalarjit import mostly_zeros, native_of

from ...linear import solve_spd
from ...mechanism.groups import IndexSet
from ...system import constraints
from ...system.abstract import State, Time
from ...system.acceleration import Matrices, free_accelerations
from ...system.loads import with_values_looked_up
from .load_derivatives import Plan, plan_of
from .residual_derivatives import MAX_BY_ENTRIES, residual_derivatives
from .system import JointSystem
from .tree_recursion import ROOT

# Factors M = Lᵀ L of mass matrices of trees, which are zero where M is ----------------------------
# Featherstone (2005), "Efficient factorization of the joint-space inertia matrix for branched
# kinematic trees": eliminated from the tips on, a velocity changes the entries of its ancestors
# only. The entries of M and L between a velocity and itself or its ancestors are packed into one
# array.

Packed = Float[Array, "n_pairs"]


@dataclass(frozen=True)
class TreeFactor:
    """Factorization and substitutions, unrolled, for generated code; and by dense matrices.

    - `parents`: parent of each velocity, as in `TreeRecursion`.
    """

    parents: tuple[int, ...]

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Ancestors of each velocity, from the root on, and itself."""
        paths: list[tuple[int, ...]] = []
        for i, parent in enumerate(self.parents):
            paths.append((*(paths[parent] if parent != ROOT else ()), i))
        return tuple(paths)

    @cached_property
    def pairs(self) -> tuple[IndexSet, IndexSet]:
        """Velocities and their ancestors, of the packed entries."""
        both = [(i, j) for i, path in enumerate(self.paths) for j in path]
        return IndexSet.of(i for i, _ in both), IndexSet.of(j for _, j in both)

    @cached_property
    def _places(self) -> dict[tuple[int, int], int]:
        return {pair: k for k, pair in enumerate(zip(*(x.index for x in self.pairs), strict=True))}

    def _row(self, i: int) -> slice:
        end = self._places[i, i] + 1
        return slice(end - len(self.paths[i]), end)

    def packed(self, M: Float[Array, "nv nv"]) -> Packed:
        """The entries of a matrix between velocities and their ancestors."""
        rows, columns = (x.array for x in self.pairs)
        return IndexSet.of(rows * len(self.parents) + columns).take(M.ravel())

    def factor(self, M: Packed) -> Packed:
        """L, with the reciprocals of its diagonal; NaN if M is not positive definite."""
        n, rows = M.size, [M[:0]] * len(self.parents)
        for k in reversed(range(len(self.parents))):
            row, path = M[self._row(k)], self.paths[k]
            reciprocal = 1.0 / jnp.sqrt(row[-1:])
            row = row[:-1] * reciprocal
            rows[k], above = jnp.concatenate([row, reciprocal]), range(len(path) - 1)
            lower = [(a, b) for a in above for b in range(a + 1)]
            if lower:
                products = IndexSet.of(a for a, _ in lower).take(row)
                products = products * IndexSet.of(b for _, b in lower).take(row)
                at = {self._places[path[a], path[b]]: m for m, (a, b) in enumerate(lower)}
                M = M - _spread(products, at, n)
        return jnp.concatenate(rows)

    def solve(self, L: Packed, x: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """M⁻¹ x, by Lᵀ y = x and L z = y."""
        n, y, z = x.size, [x[:0]] * x.size, [x[:0]] * x.size
        for k in reversed(range(n)):
            row = L[self._row(k)]
            y[k] = x[k : k + 1] * row[-1]
            places = {j: m for m, j in enumerate(self.paths[k][:-1])}
            x = x - _spread(row[:-1] * y[k], places, n) if places else x
        for k, path in enumerate(self.paths):
            row, rest = L[self._row(k)], y[k]
            if len(path) > 1:
                above = jnp.concatenate([z[j] for j in path[:-1]])
                rest = rest - jnp.sum(row[:-1] * above, keepdims=True)
            z[k] = rest * row[-1]
        return jnp.concatenate(z)

    def factor_densely(self, M: Packed) -> Packed:
        """The same as `factor`, by a dense matrix."""
        dense = self._dense(M)
        upside_down = (dense + jnp.tril(dense, -1).T)[::-1, ::-1]
        rows, columns = (x.array for x in self.pairs)
        L = self.packed(jnp.linalg.cholesky(upside_down)[::-1, ::-1].T)
        return jnp.where(jnp.asarray(rows == columns), 1.0 / L, L)

    def solve_densely(self, L: Packed, x: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """The same as `solve`, by a dense matrix."""
        dense = self._dense(L)
        dense = jnp.tril(dense, -1) + jnp.diag(1.0 / jnp.diagonal(dense))
        y = jsl.solve_triangular(dense, x, trans="T", lower=True)
        return jsl.solve_triangular(dense, y, lower=True)

    def _dense(self, packed: Packed) -> Float[Array, "nv nv"]:
        """The lower triangle with packed entries."""
        n, (rows, columns) = len(self.parents), (x.array for x in self.pairs)
        return jnp.zeros((n, n), packed.dtype).at[rows, columns].set(packed)


def _spread(values: Float[Array, "k"], places: dict[int, int], n: int) -> Float[Array, "n"]:
    """An array of `n` entries with some of the values, by their numbers; other entries are zero."""
    padded = jnp.concatenate([values, jnp.zeros(1, values.dtype)])
    return IndexSet.of(places.get(k, values.size) for k in range(n)).take(padded)


Columns = Float[Array, "k nv"]
Factored = Callable[[Packed], Packed]


def in_closed_form(system: JointSystem, t: Time, state: State) -> Matrices | None:
    """∂v̇/∂q and ∂v̇/∂v; None for constraints, flexible bodies and elements with states."""
    plan = plan_of(system)
    if plan is None or system.nv == 0 or constraints.n_constraints(system) > 0:
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
