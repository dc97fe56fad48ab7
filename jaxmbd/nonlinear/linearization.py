"""Solvers of Newton's linear systems: factorizations that the transposed system reuses."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Bool, Float

from .blocks import Blocks
from .residual import Residual

Function = Callable[[Float[Array, "n"]], Float[Array, "n"]]


class AbstractLinearization(eqx.Module):
    """A solver of Newton's linear systems, or a choice of one that depends on the unknowns."""

    @abstractmethod
    def chosen(self, blocks: Blocks) -> "AbstractFactorization":
        """The factorization for unknowns of these kinds."""


class AbstractFactors(eqx.Module):
    """Factors of a Jacobian whose rows are scaled to a largest entry of one.

    - `compliance`: diagonal added to possibly redundant constraints, in units of the largest entry
      of their rows; None without possibly redundant constraints.
    """

    compliance: eqx.AbstractVar[Float[Array, "n"] | None]

    def missed(self, change: Float[Array, "n"]) -> Float[Array, ""]:
        """Constraint residual that remains after a change because of `compliance`."""
        if self.compliance is None:
            return jnp.zeros((), dtype=change.dtype)
        return jnp.max(jnp.abs(self.compliance * change), initial=0.0)


class AbstractFactorization(AbstractLinearization):
    """Factors the Jacobian of a residual at a point, and solves with the factors."""

    def chosen(self, blocks: Blocks) -> "AbstractFactorization":
        return self

    def factor(
        self, fn: Function, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"], AbstractFactors]:
        """fn(x), and factors of ∂fn/∂x there."""
        value, J = self.jacobian(fn, x, blocks)
        return fn(x) if value is None else value, self.factors(J, blocks)

    @abstractmethod
    def jacobian(
        self, fn: Function, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"] | None, Float[Array, "k n"]]:
        """fn(x), and the entries of J = ∂fn/∂x there, for `product` and `factors`.

        None in the place of fn(x) if it is not computed beside J.
        """

    @abstractmethod
    def n_entries(self, blocks: Blocks) -> tuple[int, int]:
        """Shape of the entries of J."""

    @abstractmethod
    def product(
        self, J: Float[Array, "k n"], y: Float[Array, "n"], blocks: Blocks
    ) -> Float[Array, "n"]:
        """J y."""

    @abstractmethod
    def factors(self, J: Float[Array, "k n"], blocks: Blocks) -> AbstractFactors:
        """Factors of J.

        Rows `blocks.compliant`, if any, are possibly redundant constraints, with their multipliers
        as unknowns. The factors are then those of a regular matrix close to J.
        """

    def no_factors(self, blocks: Blocks, dtype: Any) -> AbstractFactors:
        """Zeros of the shapes of factors."""
        J = jax.ShapeDtypeStruct(self.n_entries(blocks), dtype)
        shapes = eqx.filter_eval_shape(self.factors, J, blocks)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    @abstractmethod
    def solve(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        """Solve J y = b."""

    @abstractmethod
    def solve_transposed(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        """Solve Jᵀ y = b."""


class DenseFactors(AbstractFactors):
    """Scale of the rows, and the inverse or the state of a lineax solver of the scaled Jacobian."""

    scale: Float[Array, "n"]
    state: Any
    compliance: Float[Array, "n"] | None


class Dense(AbstractFactorization):
    """The full Jacobian by forward-mode differentiation, factored by a solver of lineax.

    Each row is first divided by its largest entry: rows are forces, lengths and angles, and the
    choice of pivots does not depend on their units.

    Possibly redundant constraints get a small compliance: a diagonal of about the square root of
    the float type's precision, relative to its value after eliminating the velocities.

    **Arguments:**

    - `solver`: a solver of lineax. Default: the inverse, by a factorization with pivots. Newton's
      iterations correct its rounding errors, and a solve is one product.
    """

    solver: lx.AbstractLinearSolver | None = None

    def jacobian(
        self, fn: Function, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"] | None, Float[Array, "n n"]]:
        if isinstance(fn, Residual):
            along_all = fn.derivatives(x, jnp.eye(x.size, dtype=x.dtype))
            if along_all is not None:
                return None, along_all.T
            fn = fn.differentiable
        J, value = jax.jacfwd(lambda x: 2 * (fn(x),), has_aux=True)(x)
        return value, J

    def n_entries(self, blocks: Blocks) -> tuple[int, int]:
        return sum(blocks.counts), sum(blocks.counts)

    def product(
        self, J: Float[Array, "n n"], y: Float[Array, "n"], blocks: Blocks
    ) -> Float[Array, "n"]:
        return J @ y

    def factors(self, J: Float[Array, "n n"], blocks: Blocks) -> DenseFactors:
        added = None
        if blocks.compliant is not None:
            added = _compliances(J, blocks, blocks.compliant)
            J = J + jnp.diag(added)
        largest = jnp.max(jnp.abs(J), axis=1, initial=0.0)
        scale = 1.0 / jnp.where(largest > 0, largest, 1.0)
        scaled = J * scale[:, None]
        added = relative_compliance(added, largest, blocks)
        if self.solver is None:
            return DenseFactors(scale, jnp.linalg.inv(scaled), added)
        return DenseFactors(scale, self.solver.init(lx.MatrixLinearOperator(scaled), {}), added)

    def solve(self, factors: DenseFactors, b: Float[Array, "n"]) -> Float[Array, "n"]:
        if self.solver is None:
            return factors.state @ (factors.scale * b)
        return self.solver.compute(factors.state, factors.scale * b, {})[0]

    def solve_transposed(self, factors: DenseFactors, b: Float[Array, "n"]) -> Float[Array, "n"]:
        scale, state = factors.scale, factors.state
        if self.solver is None:
            return scale * (b @ state)
        transposed, options = self.solver.transpose(state, {})
        return scale * self.solver.compute(transposed, b, options)[0]


def _compliances(
    J: Float[Array, "n n"], blocks: Blocks, rows: Bool[np.ndarray, "n"]
) -> Float[Array, "n"]:
    first, own = blocks.counts[0], blocks.multipliers
    columns = jnp.arange(first, dtype=jnp.int32)[:, None]
    diagonal = inertias(J[blocks.same_velocity, columns], jnp.diagonal(J)[:first])
    safe = jnp.where(diagonal == 0, 1.0, diagonal)
    # -(G H⁻¹ B) of [[H, B], [G, 0]], as if H were diagonal.
    schur = -jnp.sum(J[own, :first] / safe[None] * J[:first, own].T, axis=1)
    # A row with unit entries for the softest velocity.
    unit = jnp.max(jnp.where(diagonal == 0, 0.0, 1.0 / jnp.abs(safe)), initial=0.0)
    added = compliances(schur, rows[own], unit)
    zeros = [jnp.zeros(n, J.dtype) for n in (first, blocks.others)]
    return jnp.concatenate([zeros[0], added, zeros[1]])


def inertias(entries: Float[Array, "n s"], diagonal: Float[Array, "n"]) -> Float[Array, "n"]:
    """Size of each column of H, with the sign of the diagonal.

    The diagonal alone is no size if a step has several nodes: it is zero at the first of the two
    nodes of Radau.

    **Arguments:** `entries`: of each column, in the rows of the same velocity at all nodes.
    """
    return jnp.where(diagonal < 0, -1.0, 1.0) * jnp.max(jnp.abs(entries), axis=1)


def relative_compliance(
    added: Float[Array, "n"] | None, largest: Float[Array, "n"], blocks: Blocks
) -> Float[Array, "n"] | None:
    """`AbstractFactors.compliance`, from the added diagonal and the largest entry of each row."""
    if added is None:
        return None
    typical = jnp.max(largest[blocks.multipliers])
    return added / jnp.where(typical > 0, typical, 1.0)


def compliances(
    schur: Float[Array, "m"], rows: Bool[np.ndarray, "m"], unit: Float[Array, ""] | float = 0.0
) -> Float[Array, "m"]:
    """Diagonal to add for possibly redundant constraints, from that of the Schur complement.

    **Arguments:** `unit`: entry of a row of ones; rows of rounding errors, all of a loop's rows
    perhaps, are far smaller. Default: unknown.
    """
    largest = jnp.max(jnp.abs(schur), initial=0.0)
    eps = float(jnp.finfo(schur.dtype).eps)
    # Other rows are rounding errors only.
    is_row = (jnp.abs(schur) > largest * eps**0.9) & (jnp.abs(schur) > unit * eps**1.5)
    typical = jnp.max(jnp.where(is_row, jnp.abs(schur), 0.0), initial=0.0)
    size = jnp.where(is_row, schur, jnp.where(typical > 0, typical, 1.0))
    return jnp.where(rows, eps**0.5 * size, 0.0)


__all__ = [
    "AbstractFactorization",
    "AbstractFactors",
    "AbstractLinearization",
    "Dense",
    "Function",
    "compliances",
    "inertias",
    "relative_compliance",
]
