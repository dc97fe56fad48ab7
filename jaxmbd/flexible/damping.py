"""Damping matrices of elastic coordinates."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.values import as_leaf


class Rayleigh(eqx.Module):
    """Damping D = α M + β K, with the mass matrix M of the elastic coordinates at η = 0.

    **Arguments:** `alpha` [1/s]; `beta` [s].
    """

    alpha: Float[Array, ""]
    beta: Float[Array, ""]

    def __init__(self, alpha: Any = 0.0, beta: Any = 0.0):
        self.alpha = as_leaf(alpha, (), "Rayleigh: alpha")
        self.beta = as_leaf(beta, (), "Rayleigh: beta")


def damping_matrix(
    damping: Any, K: Float[Array, "k k"], M: Float[Array, "k k"]
) -> Float[Array, "k k"]:
    """D from a `Rayleigh`, or from damping ratios: a number, or one for each elastic coordinate.

    The ratio ζ of a coordinate with stiffness κ and mass μ gives it the damping 2 ζ √(κ μ).
    """
    if isinstance(damping, Rayleigh):
        alpha, beta = (jnp.asarray(x, dtype=K.dtype) for x in (damping.alpha, damping.beta))
        return alpha * M + beta * K
    ratio = as_leaf(damping, None, "damping").astype(K.dtype)
    ratio = jnp.broadcast_to(jnp.atleast_1d(ratio), (K.shape[0],))
    return jnp.diag(2.0 * ratio * jnp.sqrt(jnp.diagonal(K) * jnp.diagonal(M)))
