"""Rotations: unit quaternions (w x y z), rotation matrices and rotation vectors.

A quaternion of any non-zero length represents the rotation of the normalized quaternion. A drift of
the length in integration therefore does not affect the motion.

Source of the formulas: Solà, Deray & Atchuthan (2018), "A micro Lie theory for state estimation in
robotics", appendices A and B.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..programs.tracing import inlined_jit
from . import series

Vector = Float[Array, "3"]
Matrix = Float[Array, "3 3"]
Quaternion = Float[Array, "4"]


def identity() -> Quaternion:
    """The identity quaternion."""
    return jnp.array([1.0, 0.0, 0.0, 0.0])


@inlined_jit
def cross(a: Float[Array, "*n 3"], b: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """Cross product of vectors along the last axis, with half of the operations of `jnp.cross`."""
    # The difference has the components z, x, y of the product; the last shift orders them.
    return _next(a * _next(b) - _next(a) * b)


def _next(x: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """The entries y, z, x of vectors."""
    return jnp.concatenate([x[..., 1:], x[..., :1]], axis=-1)


@inlined_jit
def hat(w: Vector) -> Matrix:
    """The skew matrix of `w`: `hat(w) @ x == cross(w, x)`."""
    x, y, z = w
    zero = jnp.zeros_like(x)
    return jnp.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3)


@inlined_jit
def vee(W: Matrix) -> Vector:
    """The vector of the skew part of `W`; inverse of `hat`."""
    return 0.5 * jnp.stack([W[2, 1] - W[1, 2], W[0, 2] - W[2, 0], W[1, 0] - W[0, 1]])


@inlined_jit
def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """Hamilton product `a ⊗ b`: first rotate by `b`, then by `a`."""
    vector = a[0] * b[1:] + b[0] * a[1:] + cross(a[1:], b[1:])
    return jnp.concatenate([(a[0] * b[0] - a[1:] @ b[1:])[None], vector])


@inlined_jit
def conjugate(q: Quaternion) -> Quaternion:
    """The inverse rotation of a unit quaternion."""
    return jnp.concatenate([q[:1], -q[1:]])


@inlined_jit
def normalize(q: Quaternion) -> Quaternion:
    """`q` scaled to length one."""
    return q / jnp.sqrt(q @ q)


@inlined_jit
def to_matrix(q: Quaternion) -> Matrix:
    """Rotation matrix of a quaternion of any non-zero length."""
    # Homogeneous of degree zero in q: the matrix does not depend on the length of q.
    s = 2.0 / (q @ q)
    w, u = q[0], q[1:]
    return (1.0 - s * (u @ u)) * jnp.eye(3, dtype=q.dtype) + s * (jnp.outer(u, u) + w * hat(u))


@inlined_jit
def from_matrix(R: Matrix) -> Quaternion:
    """Unit quaternion of a rotation matrix, with `w ≥ 0` up to round-off.

    The result is the longest of the four columns of `4 q qᵀ`, normalized (Shepperd 1978), so that
    value and gradient are accurate for every rotation.
    """
    trace = R[0, 0] + R[1, 1] + R[2, 2]
    antisymmetric = 2.0 * vee(R)
    symmetric = R + R.T
    vector_block = symmetric + (1.0 - trace) * jnp.eye(3, dtype=R.dtype)
    scalar_row = jnp.concatenate([(1.0 + trace)[None], antisymmetric])
    outer = jnp.concatenate(
        [scalar_row[None], jnp.concatenate([antisymmetric[:, None], vector_block], axis=1)]
    )
    # A choice, whose transpose is one too; that of an index that is computed has no code.
    is_longest = jnp.arange(4) == jnp.argmax(jnp.diagonal(outer))
    q = normalize(jnp.sum(jnp.where(is_longest[None], outer, 0.0), axis=1))
    return jnp.where(q[0] < 0, -q, q)


@inlined_jit
def exp(phi: Vector) -> Quaternion:
    """Unit quaternion of the rotation vector `phi` [rad]."""
    x = (phi @ phi) / 4.0
    return jnp.concatenate([series.cos_theta(x)[None], 0.5 * series.sinc(x) * phi])


@inlined_jit
def log(q: Quaternion) -> Vector:
    """Rotation vector [rad] of length at most π; inverse of `exp`."""
    q = jnp.where(q[0] < 0, -q, q)
    w, u = q[0], q[1:]
    n2 = u @ u
    small = n2 < 1e-6 * w * w
    # `where` differentiates both branches: the operands of the unused one are replaced by ones.
    # Near zero 2 arctan(x) / x is a series, whose next term 2/7 x⁶ is below rounding.
    n = jnp.sqrt(jnp.where(small, 1.0, n2))
    ratio2 = jnp.where(small, n2, 0.0) / jnp.where(small, w * w, 1.0)
    near = 2.0 * (1.0 - ratio2 / 3.0 + ratio2 * ratio2 / 5.0) / jnp.where(small, w, 1.0)
    return jnp.where(small, near, 2.0 * jnp.arctan2(n, w) / n) * u


@inlined_jit
def rate(q: Quaternion, omega: Vector) -> Quaternion:
    """Time derivative `q̇ = ½ q ⊗ ω` for the body angular velocity `omega` [rad/s]."""
    return 0.5 * multiply(q, jnp.concatenate([jnp.zeros_like(omega[:1]), omega]))


@inlined_jit
def velocity(q: Quaternion, q_dot: Quaternion) -> Vector:
    """Body angular velocity `ω = 2 (q⁻¹ ⊗ q̇)` [rad/s]; inverse of `rate`.

    The part of `q_dot` that changes the length of `q` is ignored.
    """
    return 2.0 * multiply(conjugate(q), q_dot)[1:] / (q @ q)


@inlined_jit
def exp_matrix(phi: Vector) -> Matrix:
    """Rotation matrix of the rotation vector `phi` (Rodrigues' formula)."""
    x = phi @ phi
    W = hat(phi)
    return jnp.eye(3, dtype=phi.dtype) + series.sinc(x) * W + series.versine(x) * (W @ W)


@inlined_jit
def about(axis: Vector, angle: Float[Array, ""]) -> Matrix:
    """Rotation matrix of `angle` [rad] about the unit vector `axis`."""
    W = hat(axis)
    return jnp.eye(3, dtype=axis.dtype) + jnp.sin(angle) * W + (1.0 - jnp.cos(angle)) * (W @ W)


@inlined_jit
def dexp(phi: Vector) -> Matrix:
    """Right (body) tangent: body angular velocity `ω = dexp(φ) φ̇` of `R = exp(φ)`."""
    x = phi @ phi
    W = hat(phi)
    return jnp.eye(3, dtype=phi.dtype) - series.versine(x) * W + series.cubic(x) * (W @ W)


@inlined_jit
def unit(axis: Vector) -> Vector:
    """The direction of an axis of any length but zero."""
    return axis / jnp.sqrt(axis @ axis)


@inlined_jit
def basis(axis: Vector) -> Matrix:
    """A right-handed orthonormal basis, as columns, whose third vector points along `axis`.

    The basis is the identity for the z axis. It is smooth in `axis` except for a jump of the first
    two vectors if the z component changes sign. Source: Duff et al. (2017), "Building an
    orthonormal basis, revisited".
    """
    n = unit(axis)
    x, y, z = n
    sign = jnp.where(z >= 0, 1.0, -1.0).astype(axis.dtype)
    # No direction is singular: |sign + z| ≥ 1.
    a = -1.0 / (sign + z)
    b, c = x * y * a, sign * x
    first = jnp.stack([1.0 + c * x * a, sign * b, -c])
    second = jnp.stack([b, sign + y * y * a, -y])
    return jnp.stack([first, second, n], axis=1)
