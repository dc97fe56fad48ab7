"""How Newton's linear systems are solved: a factorization that the transposed system reuses."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

Residual = Callable[[Float[Array, "n"]], Float[Array, "n"]]


class AbstractLinearization(eqx.Module):
    """Factors the Jacobian of a residual at a point, and solves with the factors."""

    @abstractmethod
    def factor(self, fn: Residual, x: Float[Array, "n"]) -> tuple[Float[Array, "n"], Any]:
        """fn(x), and factors of ∂fn/∂x there."""

    @abstractmethod
    def solve(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        """y of J y = b."""

    @abstractmethod
    def solve_transposed(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        """y of Jᵀ y = b."""


class Dense(AbstractLinearization):
    """The full Jacobian by forward-mode differentiation, factored by a solver of lineax.

    Each row is scaled by its largest entry first: rows are forces, lengths and angles, and the
    pivots should not depend on their units.
    """

    solver: lx.AbstractLinearSolver = lx.LU()

    def factor(self, fn: Residual, x: Float[Array, "n"]) -> tuple[Float[Array, "n"], Any]:
        J, value = jax.jacfwd(lambda x: 2 * (fn(x),), has_aux=True)(x)
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


__all__ = ["AbstractLinearization", "Dense"]
