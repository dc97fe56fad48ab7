"""Checks of arguments that are not arrays: counts, instances, mappings, names and paths.

Every function returns the argument, or **raises** `ModelError` with `name`, the argument in
messages.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import ModelError


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
