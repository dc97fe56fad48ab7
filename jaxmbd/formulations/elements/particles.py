"""Masses of particles that move like a rigid body.

Any three points of a plane, or four of space, that do not lie in a line or plane carry a body's
mass, centre and inertia together with the points halfway between them; some masses may be negative
(Attia, "equivalent particles", eqs (2.1) and section 2 on spatial bodies).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Every particle from the primary ones: these themselves, then points halfway between two.
SPATIAL = np.vstack(
    [np.eye(4), *(0.5 * (np.eye(4)[i] + np.eye(4)[j]) for i in range(4) for j in range(i))]
)
PLANAR = np.vstack([np.eye(3), [[0.5, 0.0, 0.5]]])  # Halfway between the first and the third.
ROD = np.vstack([np.eye(2), [[0.5, 0.5]]])


def spatial_masses(
    points: Float[Array, "4 3"], mass: Float[Array, ""], second: Float[Array, "3 3"]
) -> Float[Array, "10"]:
    """Masses of four particles and of the six halfway between them, the 10 × 10 system.

    Σ m_i = m, Σ m_i s_i = 0, Σ m_i s_i s_iᵀ = A, points and `second` moments A [kg m²] being taken
    about the centre of mass. NaN or infinite where the points lie in a plane.
    """
    s = jnp.asarray(SPATIAL, dtype=points.dtype) @ points
    i, j = np.triu_indices(3)
    rows = jnp.concatenate([jnp.ones_like(s[:, :1]), s, s[:, i] * s[:, j]], axis=1).T
    wanted = jnp.concatenate([mass[None], jnp.zeros(3, dtype=points.dtype), second[i, j]])
    return jnp.linalg.solve(rows, wanted)


def planar_masses(
    points: Float[Array, "3 2"], mass: Float[Array, ""], moment: Float[Array, ""]
) -> Float[Array, "4"]:
    """Masses of three particles and of the one halfway between the first and the third, eq. (2.1).

    Σ m_i = m, Σ m_i s_i = 0, Σ m_i s_i² = J, points and the moment of inertia J [kg m²] being taken
    about the centre of mass.
    """
    s = jnp.asarray(PLANAR, dtype=points.dtype) @ points
    squares = jnp.sum(s * s, axis=1, keepdims=True)
    rows = jnp.concatenate([jnp.ones_like(squares), s, squares], axis=1).T
    wanted = jnp.stack([mass, jnp.zeros_like(mass), jnp.zeros_like(mass), moment])
    return jnp.linalg.solve(rows, wanted)


def rod_masses(
    ends: Float[Array, "2 2"], mass: Float[Array, ""], moment: Float[Array, ""]
) -> Float[Array, "3"]:
    """Masses of the two ends of a rod and of its middle; its centre of mass lies on its line."""
    d = ends[1] - ends[0]
    length = jnp.sqrt(d @ d)
    along = jnp.asarray(ROD, dtype=ends.dtype) @ (ends @ d / length)
    rows = jnp.stack([jnp.ones_like(along), along, along * along])
    return jnp.linalg.solve(rows, jnp.stack([mass, jnp.zeros_like(mass), moment]))


def node_mass(shape: np.ndarray, masses: Float[Array, "p"]) -> Float[Array, "k k"]:
    """M = Sᵀ diag(m) S of the primary particles, for each direction alike."""
    S = jnp.asarray(shape, dtype=masses.dtype)
    return S.T @ (masses[:, None] * S)
