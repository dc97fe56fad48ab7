"""Lengths and directions of vectors, with derivatives at the zero vector."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def length(d: Float[Array, "n"]) -> Float[Array, ""]:
    """Length |d|, with a derivative of zero at d = 0."""
    squared = d @ d
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


def direction(d: Float[Array, "n"]) -> Float[Array, "n"]:
    """Direction d / |d|; zero, with a derivative of zero, at d = 0."""
    squared = d @ d
    positive = squared > 0
    return jnp.where(positive, d / jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)
