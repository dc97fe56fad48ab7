"""Factors M = Lᵀ L of mass matrices of trees, which are zero where M is.

Featherstone (2005), "Efficient factorization of the joint-space inertia matrix for branched
kinematic trees": eliminated from the tips on, a velocity changes the entries of its ancestors only.
The entries of M and L between a velocity and itself or its ancestors are packed into one array.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from ...mechanism.rows import Rows
from .tree_recursion import ROOT

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
    def pairs(self) -> tuple[Rows, Rows]:
        """Velocities and their ancestors, of the packed entries."""
        both = [(i, j) for i, path in enumerate(self.paths) for j in path]
        return Rows.of(i for i, _ in both), Rows.of(j for _, j in both)

    @cached_property
    def _places(self) -> dict[tuple[int, int], int]:
        return {pair: k for k, pair in enumerate(zip(*(x.index for x in self.pairs), strict=True))}

    def _row(self, i: int) -> slice:
        end = self._places[i, i] + 1
        return slice(end - len(self.paths[i]), end)

    def packed(self, M: Float[Array, "nv nv"]) -> Packed:
        """The entries of a matrix between velocities and their ancestors."""
        rows, columns = (x.array for x in self.pairs)
        return Rows.of(rows * len(self.parents) + columns).take(M.ravel())

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
                products = Rows.of(a for a, _ in lower).take(row)
                products = products * Rows.of(b for _, b in lower).take(row)
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
    return Rows.of(places.get(k, values.size) for k in range(n)).take(padded)


__all__ = ["TreeFactor"]
