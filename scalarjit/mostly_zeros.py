"""Programs whose arrays are zero but for a few entries, such as derivatives along unit vectors.

Generated code has no operations on zeros, but a program is measured before it is converted.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax

MOSTLY_ZEROS = "mostly_zeros"

R = TypeVar("R")


def mostly_zeros(fn: Callable[..., R], *args: Any) -> R:
    """Call a function most of whose operations are on zeros; its results must be arrays."""
    arrays, rest = eqx.partition(args, eqx.is_array)

    def named(arrays: Any) -> R:
        return fn(*eqx.combine(arrays, rest))

    named.__name__ = MOSTLY_ZEROS
    return jax.jit(named)(arrays)
