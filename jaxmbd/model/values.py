"""Conversion of arguments to float leaves, and checks of values and of other arguments."""

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
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
    return all(
        isinstance(x, int | float) for x in jax.tree.leaves(value, is_leaf=lambda x: x is None)
    )


def as_jax(x: Any) -> Array:
    """`jnp.asarray`, which compiles a program for each shape of arrays of NumPy; this does not."""
    # A copy: JAX may use the memory of the array, which others may write to.
    return jax.device_put(np.array(x)) if isinstance(x, np.ndarray | np.generic) else jnp.asarray(x)


def on_host(x: Any) -> Any:
    """`x` as an array of NumPy, whose operations compile nothing, unless it is traced."""
    return np.asarray(x) if is_concrete(x) else x


def library_of(*arrays: Any) -> Any:
    """NumPy, whose operations compile nothing, or `jax.numpy` if arrays are traced."""
    return np if all_concrete(arrays) else jnp


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


# Checks of arguments that are not arrays: counts, instances, mappings, names and paths ------------
#
# Every function `as_…` returns the argument, or raises `ModelError` with `name`, the argument in
# messages.


def described(x: Any) -> str:
    """Text of a message for a value of a wrong type: name of a class, or type of another value."""
    return f"the class {x.__name__}" if isinstance(x, type) else f"a {type(x).__name__}"


def is_count(n: Any, least: int = 1) -> bool:
    """True if something is a whole number from `least` on, of Python or NumPy."""
    return isinstance(n, int | np.integer) and not isinstance(n, bool) and int(n) >= least


def as_count(n: Any, name: str, least: int = 1) -> int:
    """A whole number from `least` on."""
    if not is_count(n, least):
        raise ModelError(f"{name} must be a whole number from {least} on, got {n!r:.60}")
    return int(n)


def as_host_number(x: Any, name: str) -> float:
    """A finite number that is not traced."""
    if not np.isfinite(_as_real(x, name)):
        raise ModelError(f"{name} must be finite, got {x}")
    return float(x)


def as_positive(x: Any, name: str) -> float:
    """A positive number that is not traced."""
    if not 0 < _as_real(x, name) < np.inf:
        raise ModelError(f"{name} must be positive, got {x}")
    return float(x)


def is_positive(x: Any) -> bool:
    """Whether x is a positive, finite number of Python or NumPy."""
    return isinstance(x, int | float | np.number) and bool(0 < x < np.inf)


def _as_real(x: Any, name: str) -> float:
    if isinstance(x, bool) or not isinstance(x, int | float | np.number | np.ndarray | jax.Array):
        raise ModelError(f"{name} must be a number, got {described(x)}")
    if np.shape(x) != () or not np.isrealobj(x):
        raise ModelError(f"{name} must be a real number, got {x!r:.60}")
    return float(x)


def as_instance(x: Any, base: type | tuple[type, ...], name: str, example: str) -> Any:
    """An instance of a class; `example` describes one."""
    if not isinstance(x, base):
        hint = f"; pass an instance, {x.__name__}(...)" if isinstance(x, type) else ""
        raise ModelError(f"{name} must be {example}, got {described(x)}{hint}")
    return x


def as_mapping(
    x: Any, name: str, form: str, error: type[ValueError] = ModelError
) -> dict[str, Any]:
    """A dict with names as keys; `form` is such as `{name: position}`. None is an empty one.

    `error` is the exception instead of `ModelError`.
    """
    if x is None:
        return {}
    if not isinstance(x, Mapping):
        raise error(f"{name} must be a dict {form}, got {described(x)}")
    for key in x:
        if not isinstance(key, str) or not key:
            raise error(f"{name}: {key!r:.60} cannot be a name; names are texts")
    return dict(x)


def as_text(x: Any, name: str) -> str:
    """A text that is not empty."""
    if not isinstance(x, str) or not x:
        raise ModelError(f"{name} must be a text, got {described(x) if x != '' else 'none'}")
    return x


def as_names(x: Any, name: str) -> tuple[str, ...]:
    """Names as a tuple; one text is one name."""
    if isinstance(x, str):
        return (x,)
    if not isinstance(x, Iterable) or isinstance(x, bytes):
        raise ModelError(f"{name} must be names, such as ['hinge'], got {described(x)}")
    return tuple(as_text(each, f"{name}: {each!r:.60}") for each in x)


def as_path(x: Any, name: str) -> Path:
    """The path of a file."""
    if not isinstance(x, str | os.PathLike) or x == "":
        raise ModelError(f"{name} must be the path of a file, got {described(x)}")
    return Path(x)
