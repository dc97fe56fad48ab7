"""Turning what users pass into float leaves, with an error that says what was wrong."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import ModelError


def is_concrete(x: Any) -> bool:
    """Whether the numbers of `x` can be looked at now (they are not being traced)."""
    return not isinstance(x, Tracer)


def as_leaf(value: Any, shape: tuple[int, ...] | None, name: str) -> Float[Array, "..."]:
    """`value` as a float array of the given shape; of any where it is None.

    **Raises** `ModelError` for another shape and for something that is no number; `name` says in
    the message which argument it was. Whether the numbers make sense is for `Model` to judge,
    which knows the name of the component.
    """
    try:
        leaf = jnp.asarray(value)
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            leaf = leaf.astype(jnp.result_type(float))
        elif leaf.weak_type:
            leaf = jnp.asarray(leaf, dtype=jnp.result_type(float))
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name} must be numeric, got {value!r}") from error
    if shape is not None and leaf.shape != shape:
        wanted = "a number" if shape == () else f"an array of shape {shape}"
        raise ModelError(f"{name} must be {wanted}, got shape {leaf.shape}")
    return leaf


def as_direction(value: Any, name: str) -> Float[Array, "3"]:
    """A direction as a unit vector; **raises** `ModelError` if its length is zero."""
    leaf = as_leaf(value, (3,), name)
    if is_concrete(leaf) and not np.linalg.norm(np.asarray(leaf)) > 0:
        raise ModelError(f"{name} must not be the zero vector")
    return leaf / jnp.sqrt(leaf @ leaf)
