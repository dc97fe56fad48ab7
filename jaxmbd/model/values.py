"""Conversion of arguments to float leaves, and checks of values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import ModelError


def is_concrete(x: Any) -> bool:
    """True if the values of `x` are available (`x` is not being traced)."""
    return not isinstance(x, Tracer)


def all_concrete(tree: Any) -> bool:
    """True if `is_concrete` holds for all leaves of a tree."""
    return all(is_concrete(x) for x in jax.tree.leaves(tree))


def not_positive(component: Any, *names: str) -> str | None:
    """A message about the first named field of a component that is not positive, or None.

    Neither this function nor `negative` checks traced values.
    """
    return _refused(component, names, "be positive", lambda x: x > 0)


def negative(component: Any, *names: str) -> str | None:
    """A message about the first named field of a component that is negative, or None."""
    return _refused(component, names, "not be negative", lambda x: x >= 0)


def _refused(
    component: Any,
    names: tuple[str, ...],
    required: str,
    is_valid: Callable[[np.ndarray], np.ndarray],
) -> str | None:
    for name in names:
        value = getattr(component, name)
        if is_concrete(value) and not np.all(is_valid(np.asarray(value))):
            return f"{name} must {required}, got {value}"
    return None


def as_leaf(value: Any, shape: tuple[int, ...] | None, name: str) -> Float[Array, "..."]:
    """Convert `value` to a float array of `shape`, or of any shape if `shape` is None.

    `name` denotes the argument in messages. `Model` checks whether the numbers are valid, since
    its messages name the component.

    **Raises** `ModelError` for another shape and for values that are not real numbers.
    """
    if isinstance(value, str | bytes):  # NumPy takes some texts for names of types.
        raise ModelError(f"{name} must be numeric, got {value!r}")
    try:
        leaf = jnp.asarray(value)
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise ModelError(f"{name} must be real, got {value!r}")
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            leaf = leaf.astype(jnp.result_type(float))
        elif leaf.weak_type:
            leaf = jnp.asarray(leaf, dtype=jnp.result_type(float))
    except ModelError:
        raise
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name} must be numeric, got {value!r}") from error
    if shape is not None and leaf.shape != shape:
        required = "a number" if shape == () else f"an array of shape {shape}"
        raise ModelError(f"{name} must be {required}, got shape {leaf.shape}")
    return leaf


def as_direction(value: Any, name: str) -> Float[Array, "3"]:
    """A direction as a unit vector; **raises** `ModelError` if its length is zero."""
    leaf = as_leaf(value, (3,), name)
    if is_concrete(leaf) and not np.linalg.norm(np.asarray(leaf)) > 0:
        raise ModelError(f"{name} must not be the zero vector")
    return leaf / jnp.sqrt(leaf @ leaf)
