"""Symmetric positive definite linear systems of small and medium size."""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from ..programs.tracing import inlined_jit

# Up to this size an unrolled factorization of scalars, which XLA fuses with other operations, is
# faster than the library call, which has an overhead of about a microsecond.
UNROLLED_SIZE = 8


def solve_spd(A: Float[Array, "n n"], b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Solve A x = b; NaN if `A` is not positive definite. Only the lower triangle is used."""
    return spd_solver(A)(b)


def spd_solver(A: Float[Array, "n n"]) -> Callable[[Float[Array, "n *k"]], Float[Array, "n *k"]]:
    """`solve_spd` of one matrix, which is factored once."""
    if A.shape[0] > UNROLLED_SIZE:
        return partial(jsl.cho_solve, jsl.cho_factor(A, lower=True))
    return partial(_solve_unrolled, A)  # XLA removes the second one of two equal factorizations.


@inlined_jit
def _solve_unrolled(A: Float[Array, "n n"], b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """Cholesky factorization and two substitutions, entry by entry."""
    n = A.shape[0]
    if n == 0:
        return b
    lower = [[A[i, j] for j in range(i + 1)] for i in range(n)]
    inverse_diagonal = []
    for j in range(n):
        for k in range(j):
            for i in range(j, n):
                lower[i][j] = lower[i][j] - lower[i][k] * lower[j][k]
        scale = 1.0 / jnp.sqrt(lower[j][j])
        inverse_diagonal.append(scale)
        for i in range(j + 1, n):
            lower[i][j] = lower[i][j] * scale
    x = [b[i] for i in range(n)]
    for i in range(n):
        for k in range(i):
            x[i] = x[i] - lower[i][k] * x[k]
        x[i] = x[i] * inverse_diagonal[i]
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            x[i] = x[i] - lower[k][i] * x[k]
        x[i] = x[i] * inverse_diagonal[i]
    return jnp.stack(x)
