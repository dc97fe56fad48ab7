"""Carries of loops with tangents for all arrays as soon as any input has a tangent."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


def with_joint_tangents(carry: Any, others: Any) -> Any:
    """`carry` with the same values, and with zero derivatives by all arrays of `others`.

    JAX differentiates a scan again each time that it detects another part of the carry with a
    tangent; each repetition takes as long as tracing the body several times.
    """
    arrays = jax.tree.leaves(eqx.filter(others, eqx.is_inexact_array))
    if not arrays:
        return carry
    nothing = jnp.where(False, sum(jnp.sum(x).astype(arrays[0].dtype) for x in arrays), 0.0)
    moving, rest = eqx.partition(carry, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: x + nothing.astype(x.dtype), moving), rest)
