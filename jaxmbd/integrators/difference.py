"""Weights of difference formulas for derivatives and extrapolation."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import Polynomial

# Radau's right nodes. The last node is the end of the step.
RADAU = {
    1: np.array([1.0]),
    2: np.array([1.0 / 3.0, 1.0]),
    3: np.array([(4.0 - np.sqrt(6.0)) / 10.0, (4.0 + np.sqrt(6.0)) / 10.0, 1.0]),
}


def backward_weights(ages: Float[Array, "k"]) -> Float[Array, "k"]:
    """w of y'(0) ≈ Σ w_j (y(-age_j) - y(0)), exact for polynomials of degree k.

    The backward differentiation formula for variable steps: derivatives of Lagrange's polynomials.
    """
    apart = ages[:, None] - ages[None, :] + jnp.diag(ages)  # The factor j = i is age_i itself.
    # ∏ over the other nodes l of age_l / (age_l - age_j), divided by -age_j.
    ratios = jnp.where(jnp.eye(ages.size, dtype=bool), 1.0, -ages[None, :] / apart)
    return -jnp.prod(ratios, axis=1) / ages


def extrapolation_weights(ages: Float[Array, "k"]) -> Float[Array, "k"]:
    """w of y(0) ≈ Σ w_j y(-age_j), exact for polynomials of degree k - 1."""
    apart = ages[:, None] - ages[None, :] + jnp.diag(ages)
    ratios = jnp.where(jnp.eye(ages.size, dtype=bool), 1.0, -ages[None, :] / apart)
    return jnp.prod(ratios, axis=1)


def collocation_weights(nodes: Float[np.ndarray, "s"]) -> Float[np.ndarray, "s+1 s+1"]:
    """Differentiation matrix of polynomials given by their values at 0 and at the nodes."""
    points = np.concatenate([[0.0], nodes])
    columns = []
    for j, x in enumerate(points):
        others = np.delete(points, j)
        lagrange = Polynomial.fromroots(others) / np.prod(x - others)
        columns.append(lagrange.deriv()(points))
    return np.stack(columns, axis=1)


__all__ = ["RADAU", "backward_weights", "collocation_weights", "extrapolation_weights"]
