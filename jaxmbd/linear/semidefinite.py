"""Symmetric positive semidefinite systems, whose solutions may not be unique."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .spd import solve_spd

# Eigenvalues below about the shift count as zero; the filter is raised to this power of two.
SQUARINGS = 4


def solve_semidefinite(A: Float[Array, "n n"], b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """The minimum-norm least-squares solution A⁺ b of A x = b.

    Eigenvalues of A below about the square root of the machine epsilon, relative to the mean of the
    diagonal, count as zero. The part of b outside the range of A affects x by about this tolerance.
    Derivatives are those of the pseudoinverse at constant rank.

    The method works for any rank and under all JAX transformations, by a factorization of A + s 1
    and a few products. B = s (A + s 1)⁻¹ is one on the null space of A and small elsewhere.
    Therefore N = B^16 projects onto the null space, and A⁺ = (A + s 1)⁻¹ (1 + B + …) (1 - N).
    """
    if A.shape[0] == 0:
        return b
    return _solve(A, b)


def solve_scaled(A: Float[Array, "n n"], b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """A least-squares solution x of A x = b, with A scaled to a unit diagonal.

    The tolerance of zero eigenvalues then does not depend on units.
    """
    if A.shape[0] == 0:
        return b
    scale = equilibration(jnp.diagonal(A))
    rows = scale.reshape(-1, *[1] * (b.ndim - 1))
    return rows * solve_semidefinite(scale[:, None] * A * scale[None, :], rows * b)


def equilibration(diagonal: Float[Array, "n"]) -> Float[Array, "n"]:
    """Diagonal equilibration: factors of rows and columns of A that make its `diagonal` one.

    Rows whose diagonal is a rounding error, relative to the largest one, remain small.
    """
    largest = jnp.max(diagonal)
    nonzero = diagonal > largest * float(jnp.finfo(diagonal.dtype).eps) ** 0.9
    typical = jnp.where(largest > 0, largest, 1.0)
    return jnp.where(nonzero, diagonal, typical) ** -0.5


@jax.custom_jvp
def _solve(A: Float[Array, "n n"], b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    n = A.shape[0]
    mean = jnp.trace(A) / n
    shift = jnp.where(mean > 0, mean, 1.0) * float(jnp.finfo(A.dtype).eps) ** 0.5
    unit = jnp.eye(n, dtype=A.dtype)
    inverse = solve_spd(A + shift * unit, unit)
    powers = [shift * inverse]
    for _ in range(SQUARINGS):
        powers.append(powers[-1] @ powers[-1])
    N = powers.pop()

    def apply(b: Array) -> Array:
        b = b - N @ b
        for power in reversed(powers):
            b = b + power @ b
        x = inverse @ b
        return x - N @ x

    x = apply(b)
    return x + apply(b - A @ x)  # Refinement: the inverse of A + s 1 has large rounding errors.


@_solve.defjvp
def _(primals, tangents):
    """d(A⁺ b) of a symmetric A whose rank does not change (Golub and Pereyra 1973), b in range."""
    (A, b), (dA, db) = primals, tangents
    x = _solve(A, b)
    outside = dA @ _solve(A, x)
    return x, _solve(A, db - dA @ x) + outside - _solve(A, A @ outside)


__all__ = ["equilibration", "solve_scaled", "solve_semidefinite"]
