"""Conversion of arguments to float leaves, and checks of values."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import ModelError


class Constant(eqx.Module):
    """A function, or another value that is not an array, instead of a leaf; call it likewise."""

    value: Any = eqx.field(static=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)


def is_constant(x: Any) -> bool:
    """True for a `Constant`; for use as `is_leaf`."""
    return isinstance(x, Constant)


def is_concrete(x: Any) -> bool:
    """True if the values of `x` are available (`x` is not being traced)."""
    return not isinstance(x, Tracer)


def all_concrete(tree: Any) -> bool:
    """True if `is_concrete` holds for all leaves of a tree."""
    return all(is_concrete(x) for x in jax.tree.leaves(tree))


def require_concrete(caller: str, tree: Any, remedy: str = "call it outside jit") -> None:
    """Check that nothing is traced.

    **Raises** `ModelError` if something is.
    """
    if not all_concrete(tree):
        raise ModelError(f"{caller} needs concrete numbers; {remedy}")


def not_positive(component: Any, *names: str) -> str | None:
    """A message about the first named field of a component that is not positive, or None.

    Neither this function nor `negative` checks traced values.
    """
    return _refused(component, names, "be positive", lambda x: x > 0)


def negative(component: Any, *names: str) -> str | None:
    """A message about the first named field of a component that is negative, or None."""
    return _refused(component, names, "not be negative", lambda x: x >= 0)


def batched(component: Any, name: str) -> str | None:
    """A message if a field that is a number has axes of a batch, or None."""
    shape = np.shape(getattr(component, name))
    if shape == ():
        return None
    return f"{name} has shape {shape}; a batch of models goes through the function under jax.vmap"


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
        leaf: Any = np.asarray(value) if _is_plain(value) else jnp.asarray(value)
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise ModelError(f"{name} must be real, got {value!r}")
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            leaf = leaf.astype(jnp.result_type(float))
        elif getattr(leaf, "weak_type", False):
            leaf = jnp.asarray(leaf, dtype=jnp.result_type(float))
        leaf = as_jax(leaf)
    except ModelError:
        raise
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name} must be numeric, got {value!r}") from error
    if shape is not None and leaf.shape != shape:
        required = "a number" if shape == () else f"an array of shape {shape}"
        raise ModelError(f"{name} must be {required}, got shape {leaf.shape}")
    return leaf


def _is_plain(value: Any) -> bool:
    """True for arrays of NumPy, and for numbers of Python and lists of them."""
    if isinstance(value, np.ndarray | np.generic):
        return True
    return all(isinstance(x, int | float) for x in jax.tree.leaves(value, is_leaf=_is_none))


def _is_none(x: Any) -> bool:
    return x is None


def as_jax(x: Any) -> Array:
    """`jnp.asarray`, which compiles a program for each shape of arrays of NumPy; this does not."""
    # A copy: JAX may use the memory of the array, which others may write to.
    return jax.device_put(np.array(x)) if isinstance(x, np.ndarray | np.generic) else jnp.asarray(x)


def on_host(x: Any) -> Any:
    """`x` as an array of NumPy, whose operations compile nothing, unless it is traced."""
    return np.asarray(x) if is_concrete(x) else x


def direction() -> Any:
    """A dataclass field that holds a direction, of any length but zero.

    `Model` rejects zero vectors in it; `replace` and `load_model` convert values by `as_direction`.
    """
    return eqx.field(metadata={"direction": True})


@functools.cache
def directions_of(component: type) -> tuple[str, ...]:
    """Names of the fields of a class that are directions."""
    fields = getattr(component, "__dataclass_fields__", {})
    return tuple(name for name, field in fields.items() if field.metadata.get("direction"))


def zero_direction(component: Any) -> str | None:
    """A message about the first direction of a component that is zero, or None."""
    for name in directions_of(type(component)):
        value = getattr(component, name)
        if is_concrete(value) and not np.any(np.asarray(value)):
            return f"{name} must not be the zero vector"
    return None


def as_direction(value: Any, name: str) -> Float[Array, "3"]:
    """A direction as a unit vector; **raises** `ModelError` if its length is zero.

    A unit vector stays the same to the last bit.
    """
    leaf = as_leaf(value, (3,), name)
    if not is_concrete(leaf):
        return leaf / jnp.sqrt(leaf @ leaf)
    x = np.asarray(leaf)
    if not np.any(x):
        raise ModelError(f"{name} must not be the zero vector")
    with np.errstate(all="ignore"):
        if abs(x @ x - 1.0) <= 4.0 * float(jnp.finfo(x.dtype).eps):
            return leaf
        x = (
            x / np.abs(x).max()
        )  # Squares of the largest numbers are infinite, of the smallest zero.
        return jnp.asarray(x / np.sqrt(x @ x))
