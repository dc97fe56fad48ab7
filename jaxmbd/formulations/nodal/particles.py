"""Masses of particles that are equivalent to a rigid body.

Primary particles, which determine the pose of the body and are not on one line or plane, and the
midpoints between every two of them have the mass, the centre and the second moments of the body.
Some masses may be negative. Source: Attia, "equivalent particles", eq. (2.1) and the remark on
spatial bodies.

In a plane Attia uses one midpoint, between the first and the third particle, and matches the moment
of inertia only. The solution is unique, but its mass matrix need not be positive definite, and for
a uniform rod hinged at its ends it never is. Here two more midpoints, with two more conditions,
make the second moments equal in both directions. The motion does not depend on their distribution,
since |ḃ₁| = |ḃ₂| and ḃ₁ · ḃ₂ = 0 in a rigid motion.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def from_primary(k: int) -> np.ndarray:
    """S: maps the k primary particles to all particles, the primary ones first, then midpoints."""
    i, j = np.triu_indices(k, 1)
    return np.vstack([np.eye(k), 0.5 * (np.eye(k)[i] + np.eye(k)[j])])


def masses(
    points: Float[Array, "k d"], mass: Float[Array, ""], second: Float[Array, "d d"]
) -> Float[Array, "n"]:
    """Masses [kg] of k = d + 1 primary particles, then of the midpoints between every two.

    Σ m_i = m, Σ m_i s_i = 0, Σ m_i s_i s_iᵀ = A: 10 conditions in space (d = 3), 6 in a plane, 3 on
    a line. Points [m] and the `second` moments A [kg m²] are about the centre of mass. The result
    is not finite if the points lie in one plane (line, point).
    """
    k, d = points.shape
    s = jnp.asarray(from_primary(k), dtype=points.dtype) @ points
    i, j = np.triu_indices(d)
    rows = jnp.concatenate([jnp.ones_like(s[:, :1]), s, s[:, i] * s[:, j]], axis=1).T
    target = jnp.concatenate([mass[None], jnp.zeros(d, dtype=points.dtype), second[i, j]])
    return jnp.linalg.solve(rows, target)


def primary_mass(
    points: Float[Array, "k d"], mass: Float[Array, ""], second: Float[Array, "d d"]
) -> Float[Array, "k k"]:
    """Mass matrix M = Sᵀ diag(m) S of the primary particles, the same for each direction."""
    S = jnp.asarray(from_primary(points.shape[0]), dtype=points.dtype)
    return S.T @ (masses(points, mass, second)[:, None] * S)
