"""Masses of particles that move like a rigid body.

Particles anywhere, as many as fix the body and not in one line or plane, carry its mass, centre and
second moments together with the points halfway between every two of them; some masses may be
negative. After Attia, "equivalent particles", eq. (2.1) and the remark on spatial bodies.

In a plane he takes one point halfway, between the first and the third particle, and asks for the
moment of inertia alone. That has one solution too, but its mass matrix need not be positive: for a
uniform rod hinged at its ends it never is. Here two more points, and with them two more conditions,
leave the second moments equal in both directions. How they are divided does not matter: in a rigid
motion |ḃ₁| = |ḃ₂| and ḃ₁ · ḃ₂ = 0.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def from_primary(k: int) -> np.ndarray:
    """S: every particle from the k primary ones, first these, then those halfway between two."""
    i, j = np.triu_indices(k, 1)
    return np.vstack([np.eye(k), 0.5 * (np.eye(k)[i] + np.eye(k)[j])])


def masses(
    points: Float[Array, "k d"], mass: Float[Array, ""], second: Float[Array, "d d"]
) -> Float[Array, "n"]:
    """Masses [kg] of k = d + 1 primary particles, then of those halfway between every two.

    Σ m_i = m, Σ m_i s_i = 0, Σ m_i s_i s_iᵀ = A: 10 conditions in space (d = 3), 6 in a plane, 3 on
    a line. Points [m] and the `second` moments A [kg m²] are taken about the centre of mass. Not
    finite where the points lie in one plane (line, point).
    """
    k, d = points.shape
    s = jnp.asarray(from_primary(k), dtype=points.dtype) @ points
    i, j = np.triu_indices(d)
    rows = jnp.concatenate([jnp.ones_like(s[:, :1]), s, s[:, i] * s[:, j]], axis=1).T
    wanted = jnp.concatenate([mass[None], jnp.zeros(d, dtype=points.dtype), second[i, j]])
    return jnp.linalg.solve(rows, wanted)


def primary_mass(
    points: Float[Array, "k d"], mass: Float[Array, ""], second: Float[Array, "d d"]
) -> Float[Array, "k k"]:
    """M = Sᵀ diag(m) S of the primary particles, for each direction alike."""
    S = jnp.asarray(from_primary(points.shape[0]), dtype=points.dtype)
    return S.T @ (masses(points, mass, second)[:, None] * S)
