"""Functions that JAX traces once for each shape, however often a program calls them.

Most of the time before a first result goes into tracing, and half of the operations of a program
stand in a few small functions of rotations. Under `inlined_jit` JAX runs such a function once,
keeps the operations and their batched and differentiated forms, and writes them into each program
that calls it: the programs are the same as without.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import jax

P = ParamSpec("P")
R = TypeVar("R")


def inlined_jit(function: Callable[P, R]) -> Callable[P, R]:
    """`function` of arrays and pytrees of them, its operations kept."""
    return cast(Callable[P, R], jax.jit(function, inline=True))
