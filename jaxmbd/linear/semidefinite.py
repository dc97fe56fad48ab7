"""Symmetric positive semidefinite systems, whose solutions may not be unique."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .spd import solve_spd

# An eigenvalue below about the shift counts as zero; the filter is raised to this power of two.
SQUARINGS = 4


def solve_semidefinite(A: Float[Array, "n n"], b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """The least-squares solution x of A x = b, and of several the smallest: A⁺ b.

    Eigenvalues of A below about the square root of the float type's precision, relative to the
    mean of its diagonal, count as zero; what of b is out of reach gets through by about that much.
    Derivatives are those of the pseudoinverse where its rank stays what it is.

    No library has this for A of any rank under all transformations; a factorization of A + s 1
    and a few products do it. With B = s (A + s 1)⁻¹, which is one where A is zero and small
    elsewhere, N = B^16 projects on what A does not see, and A⁺ = (A + s 1)⁻¹ (1 + B + …) (1 - N).
    """
    if A.shape[0] == 0:
        return b
    return _solve(A, b)


def solve_scaled(A: Float[Array, "n n"], b: Float[Array, "n *k"]) -> Float[Array, "n *k"]:
    """A least-squares solution x of A x = b, its rows scaled so that the diagonal of A is one.

    What counts as zero then does not depend on units.
    """
    if A.shape[0] == 0:
        return b
    scale = equilibration(jnp.diagonal(A))
    rows = scale.reshape(-1, *[1] * (b.ndim - 1))
    return rows * solve_semidefinite(scale[:, None] * A * scale[None, :], rows * b)


def equilibration(diagonal: Float[Array, "n"]) -> Float[Array, "n"]:
    """What rows and columns of A are multiplied by so that its `diagonal` becomes one.

    Rows whose diagonal is that of rounding, relative to the largest one, are left as small as they
    are.
    """
    largest = jnp.max(diagonal)
    is_row = diagonal > largest * float(jnp.finfo(diagonal.dtype).eps) ** 0.9
    typical = jnp.where(largest > 0, largest, 1.0)
    return jnp.where(is_row, diagonal, typical) ** -0.5


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
    return x + apply(b - A @ x)  # What rounding in the inverse of a nearly singular matrix left.


@_solve.defjvp
def _(primals, tangents):
    """d(A⁺ b) of a symmetric A whose rank does not change (Golub and Pereyra 1973), b in range."""
    (A, b), (dA, db) = primals, tangents
    x = _solve(A, b)
    turned = dA @ _solve(A, x)
    return x, _solve(A, db - dA @ x) + turned - _solve(A, A @ turned)


__all__ = ["equilibration", "solve_scaled", "solve_semidefinite"]
