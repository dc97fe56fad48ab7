"""Functions that JAX traces once for each shape, however often a program calls them.

Tracing takes most of the time before a first result, and half of the operations of a program belong
to a few small functions of rotations. With `inlined_jit`, JAX traces such a function once, caches
the operations with their batched and differentiated forms, and inlines them into each program that
calls the function. The programs do not change.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import jax

P = ParamSpec("P")
R = TypeVar("R")


def inlined_jit(function: Callable[P, R]) -> Callable[P, R]:
    """Cache the trace of a function of arrays and pytrees of arrays; inline it into its callers."""
    return cast(Callable[P, R], jax.jit(function, inline=True))
