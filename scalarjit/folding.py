"""Values of operations on constants.

Operations that are not listed, and integer divisions, are computed by the program.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def _of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """An operation whose result has the type of its first argument."""
    return lambda kind, *args: kind.type(fn(*args))


def _converted(kind: np.dtype, x: Any) -> Any:
    """Floats to integers: not a number to zero, and saturated, as XLA converts."""
    if kind.kind in "iu" and x.dtype.kind == "f":
        if np.isnan(x):
            return kind.type(0)
        limits = np.iinfo(kind)
        if float(x) <= limits.min or float(x) >= limits.max:
            return kind.type(limits.min if x < 0 else limits.max)
        return kind.type(int(x))
    return x.astype(kind)


def _select(kind: np.dtype, which: Any, yes: Any, no: Any) -> Any:
    return yes if which else no


FOLDED: dict[str, Callable[..., Any]] = {
    "add": _of(np.add),
    "sub": _of(np.subtract),
    "mul": _of(np.multiply),
    "fdiv": _of(np.divide),
    "neg": _of(np.negative),
    "abs": _of(np.abs),
    "max": _of(np.maximum),
    "min": _of(np.minimum),
    "lt": _of(np.less),
    "le": _of(np.less_equal),
    "gt": _of(np.greater),
    "ge": _of(np.greater_equal),
    "eq": _of(np.equal),
    "ne": _of(np.not_equal),
    "and": _of(np.bitwise_and),
    "or": _of(np.bitwise_or),
    "xor": _of(np.bitwise_xor),
    "convert": _converted,
    "bits": lambda kind, x: x.view(kind),
    "select": _select,
    "is_finite": _of(np.isfinite),
    "sqrt": _of(np.sqrt),
    "floor": _of(np.floor),
    "ceil": _of(np.ceil),
    "roundeven": _of(np.rint),
    "sin": _of(np.sin),
    "cos": _of(np.cos),
    "exp": _of(np.exp),
    "log": _of(np.log),
    "tanh": _of(np.tanh),
}

__all__ = ["FOLDED"]
