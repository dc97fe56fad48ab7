"""One float type for all numbers of a model, and for the states of its system."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..bodies import AbstractBody
from ..errors import FloatTypeWarning, ModelError, warn
from ..model import Frame, Model
from ..model.values import as_leaf

MAX_LISTED = 6  # Leaves that a warning lists.


def float_type(tree: PyTree) -> np.dtype:
    """The widest float type among the leaves; JAX's default one if no leaf is a float.

    A Python float counts as JAX's default type: float64 if `jax_enable_x64` is on, else float32.
    """
    types = {own for x in jax.tree.leaves(tree) if (own := _float_type_of(x)) is not None}
    return _widest(types) if types else jax.dtypes.canonicalize_dtype(float)


def in_float_type(tree: PyTree, dtype: np.dtype) -> PyTree:
    """Convert the float leaves of a tree to `dtype`; leaves of this type remain the same objects.

    Integers are converted in bodies and frames only, whose leaves are all floats.
    """

    def converted(x: Any) -> Any:
        own = _float_type_of(x)  # Compared with None by `is`: NumPy's float64 equals None.
        return x if own is None or own == dtype else jnp.asarray(x, dtype)

    def all_floats(x: Any) -> Any:
        own = _float_type_of(x)
        return x if own is not None and own == dtype else jnp.asarray(x, dtype)

    def component(x: Any) -> Any:
        return jax.tree.map(all_floats, x) if isinstance(x, AbstractBody | Frame) else converted(x)

    return jax.tree.map(component, tree, is_leaf=lambda x: isinstance(x, AbstractBody | Frame))


def in_one_float_type(model: Model, dtype: Any = None, caller: str = "formulate") -> Model:
    """Convert all floats of a model to `dtype`. Default: the widest float type of the model.

    `caller` names the calling function in messages.

    **Warns** by `FloatTypeWarning`, naming the leaves of narrower types, if `dtype` is None and the
    model has several float types.

    **Raises** `ModelError` for a type other than float32 and float64, and for float64 if
    `jax_enable_x64` is off.
    """
    if not isinstance(model, Model):
        raise ModelError(f"{caller} needs a Model, got a {type(model).__name__}")
    if dtype is not None:
        return in_float_type(model, _checked(dtype))
    widest = float_type(model)
    if widest not in (np.float32, np.float64):
        raise ModelError(
            f"{caller}: all floats of the model are {widest}, in which no formulation computes; "
            "convert them to float32, or pass dtype=jnp.float32 to formulate"
        )
    narrower = [
        f"{name} ({own})" for name, own in _named_types(model) if own is not None and own != widest
    ]
    if narrower:
        n_more = len(narrower) - MAX_LISTED
        more = f" and {n_more} more" if n_more > 0 else ""
        warn(
            f"{caller}: the model mixes float types and is computed in {widest}, its widest; "
            f"narrower are {', '.join(narrower[:MAX_LISTED])}{more}; convert them, or pass "
            f"dtype=jnp.{widest} to formulate to accept this",
            FloatTypeWarning,
        )
    return in_float_type(model, widest)


def as_own(x: Any, system: Any, name: str) -> jax.Array:
    """Convert `x`, called `name` in messages, to an array of the system's float type.

    **Raises** `ModelError` for a wider float type, whose digits would be lost.
    """
    own = system.mechanism.dtype
    if not isinstance(x, jax.Array):
        x = as_leaf(x, None, name)
    if x.dtype == own:
        return x
    if jnp.issubdtype(x.dtype, jnp.floating) and _widest({x.dtype, own}) != own:
        raise ModelError(
            f"{name} is {x.dtype}, but the system computes in {own}; convert it with "
            f"{name}.astype(jnp.{own}), or formulate the model with dtype=jnp.{x.dtype}"
        )
    return x.astype(own)


def _checked(dtype: Any) -> np.dtype:
    try:
        checked = np.dtype(dtype)
    except TypeError as error:
        raise ModelError(f"formulate: dtype must be a float type, got {dtype!r}") from error
    if checked not in (np.float32, np.float64):
        raise ModelError(f"formulate: dtype must be float32 or float64, got {checked}")
    if jax.dtypes.canonicalize_dtype(checked) != checked:
        raise ModelError(
            "formulate: dtype float64 needs jax.config.update('jax_enable_x64', True) before the "
            "model is created"
        )
    return checked


def _float_type_of(x: Any) -> np.dtype | None:
    """The float type in which JAX computes with a leaf, or None if the leaf is not a float."""
    dtype = float if isinstance(x, float) else getattr(x, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        return None
    return jax.dtypes.canonicalize_dtype(dtype)


def _widest(types: set[Any]) -> np.dtype:
    with jax.numpy_dtype_promotion("standard"):  # Also if the user forbids implicit promotion.
        return functools.reduce(jnp.promote_types, types)


def _named_types(model: Model) -> Iterator[tuple[str, np.dtype | None]]:
    for kind, components in model.components():
        for name, component in components.items():
            for path, leaf in jax.tree_util.tree_leaves_with_path(component):
                where = jax.tree_util.keystr(path).lstrip(".")
                yield f"{kind} {name!r}: {where}", _float_type_of(leaf)
