"""How Newton's linear systems are solved: a factorization that the transposed system reuses."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from .blocks import Blocks
from .residual import KernelResidual

Residual = Callable[[Float[Array, "n"]], Float[Array, "n"]]


class AbstractLinearization(eqx.Module):
    """How Newton's linear systems are solved, which may depend on the unknowns."""

    @abstractmethod
    def chosen(self, blocks: Blocks) -> "AbstractFactorization":
        """What is used for unknowns of these kinds."""


class AbstractFactorization(AbstractLinearization):
    """Factors the Jacobian of a residual at a point, and solves with the factors."""

    def chosen(self, blocks: Blocks) -> "AbstractFactorization":
        return self

    @abstractmethod
    def factor(
        self, fn: Residual, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"], Any]:
        """fn(x), and factors of ∂fn/∂x there.

        From row and column `blocks.first` on, if there is one, equations are constraints and
        unknowns their multipliers, either of which may depend on one another; the factors are then
        those of a regular matrix that is nearly the same.
        """

    @abstractmethod
    def solve(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        """y of J y = b."""

    @abstractmethod
    def solve_transposed(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        """y of Jᵀ y = b."""


class Dense(AbstractFactorization):
    """The full Jacobian by forward-mode differentiation, factored by a solver of lineax.

    Each row is scaled by its largest entry first: rows are forces, lengths and angles, and the
    pivots should not depend on their units.

    Dependent constraints get a small compliance: their rows a diagonal of about the square root of
    the float type's precision, relative to what they would have after eliminating everything else.
    """

    solver: lx.AbstractLinearSolver = lx.LU()

    def factor(
        self, fn: Residual, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"], Any]:
        value, J = _jacobian(fn, x)
        if blocks.first is not None:
            J = _compliant(J, blocks.first)
        largest = jnp.max(jnp.abs(J), axis=1)
        scale = 1.0 / jnp.where(largest > 0, largest, 1.0)
        operator = lx.MatrixLinearOperator(J * scale[:, None])
        return value, (scale, self.solver.init(operator, {}))

    def solve(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        scale, state = factors
        return self.solver.compute(state, scale * b, {})[0]

    def solve_transposed(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        scale, state = factors
        transposed, options = self.solver.transpose(state, {})
        return scale * self.solver.compute(transposed, b, options)[0]


def _jacobian(fn: Residual, x: Float[Array, "n"]) -> tuple[Float[Array, "n"], Float[Array, "n n"]]:
    if isinstance(fn, KernelResidual):
        found = fn.derivatives(x, jnp.eye(x.size, dtype=x.dtype))
        if found is not None:
            return found[0], found[1].T
    J, value = jax.jacfwd(lambda x: 2 * (fn(x),), has_aux=True)(x)
    return value, J


def _compliant(J: Float[Array, "n n"], first: int) -> Float[Array, "n n"]:
    diagonal = jnp.diagonal(J)[:first]
    safe = jnp.where(diagonal == 0, 1.0, diagonal)
    # -(G H⁻¹ B) of [[H, B], [G, 0]], as if H were diagonal.
    schur = -jnp.sum(J[first:, :first] / safe[None] * J[:first, first:].T, axis=1)
    at = jnp.arange(first, J.shape[0])
    return J.at[at, at].add(compliances(schur))


def compliances(schur: Float[Array, "m"]) -> Float[Array, "m"]:
    """What the diagonal of dependent constraints gets, of about what elimination leaves there."""
    typical = jnp.max(jnp.abs(schur), initial=0.0)
    eps = float(jnp.finfo(schur.dtype).eps)
    is_row = jnp.abs(schur) > typical * eps**0.9  # Others hold nothing but rounding.
    size = jnp.where(is_row, schur, jnp.where(typical > 0, typical, 1.0))
    return eps**0.5 * size


__all__ = ["AbstractFactorization", "AbstractLinearization", "Dense", "compliances"]
