"""Carries of loops, all of which have derivatives as soon as anything about them has."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


def with_joint_tangents(carry: Any, others: Any) -> Any:
    """`carry` as it is, but with derivatives, that are zero, by all arrays of `others`.

    JAX differentiates a scan once more whenever another part of its carry turns out to depend on
    what it differentiates by; each time takes as long as tracing the body several times.
    """
    arrays = jax.tree.leaves(eqx.filter(others, eqx.is_inexact_array))
    if not arrays:
        return carry
    nothing = jnp.where(False, sum(jnp.sum(x).astype(arrays[0].dtype) for x in arrays), 0.0)
    moving, rest = eqx.partition(carry, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: x + nothing.astype(x.dtype), moving), rest)


__all__ = ["with_joint_tangents"]
