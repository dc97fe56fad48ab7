"""Lengths and directions that stay differentiable where the vector vanishes."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def length(d: Float[Array, "n"]) -> Float[Array, ""]:
    """|d|; its derivative at zero is taken as zero."""
    squared = d @ d
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


def direction(d: Float[Array, "n"]) -> Float[Array, "n"]:
    """d / |d|; zero, with zero derivative, where d is zero."""
    squared = d @ d
    positive = squared > 0
    return jnp.where(positive, d / jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)
