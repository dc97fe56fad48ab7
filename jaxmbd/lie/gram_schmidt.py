"""Gram–Schmidt orthonormalization of three vectors that are nearly orthonormal.

The direction of the first vector, and the plane of the first two, do not change: R = B U⁻¹ with the
upper triangular U of BᵀB = Uᵀ U. The relative rotation of two frames therefore depends on scalar
products of their vectors only.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..programs.tracing import inlined_jit

Matrix = Float[Array, "3 3"]


@inlined_jit
def triangle(gram: Matrix) -> Matrix:
    """U⁻¹ from the scalar products BᵀB; NaN if the columns of B are linearly dependent."""
    u11 = jnp.sqrt(gram[0, 0])
    u12, u13 = gram[0, 1] / u11, gram[0, 2] / u11
    u22 = jnp.sqrt(gram[1, 1] - u12 * u12)
    u23 = (gram[1, 2] - u12 * u13) / u22
    u33 = jnp.sqrt(gram[2, 2] - u13 * u13 - u23 * u23)
    zero = jnp.zeros_like(u11)
    t12, t23 = -u12 / (u11 * u22), -u23 / (u22 * u33)
    t13 = (u12 * u23 - u13 * u22) / (u11 * u22 * u33)
    rows = [[1.0 / u11, t12, t13], [zero, 1.0 / u22, t23], [zero, zero, 1.0 / u33]]
    return jnp.stack([jnp.stack(row) for row in rows])


@inlined_jit
def orthonormal(B: Matrix) -> Matrix:
    """The rotation matrix R from the columns of B."""
    return B @ triangle(B.T @ B)


@inlined_jit
def angular_velocity(B: Matrix, B_dot: Matrix) -> Float[Array, "3"]:
    """Angular velocity of `orthonormal(B)` along its own axes [rad/s]; linear in `B_dot`.

    Rᵀ Ḃ U⁻¹ is the sum of the skew matrix of the angular velocity and an upper triangular matrix.
    """
    T = triangle(B.T @ B)
    K = (B @ T).T @ B_dot @ T
    return jnp.stack([K[2, 1], -K[2, 0], K[1, 0]])
