"""Queries about fused programs for reports, without compilation."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from .inline_and_unroll import inline_and_unroll
from .supported import LARGE, refusal
from .switch import fuses
from .wide import is_wide, target

FUSED = frozenset({"fused_program", "batch_of_kernels"})


def holds_fused_program(fn: Callable[..., Any], *args: Any) -> bool:
    """True if a function, traced for arguments of these shapes, calls a fused program."""
    return holds(FUSED, jax.make_jaxpr(fn)(*args).jaxpr)


def holds(primitives: frozenset[str], program: Jaxpr) -> bool:
    """True if a program, or one within it, has a primitive of one of these names."""
    for equation in program.eqns:
        if equation.primitive.name in primitives:
            return True
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_program):
            inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
            if isinstance(inner, Jaxpr) and holds(primitives, inner):
                return True
    return False


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def refused_operation(fn: Callable[..., Any], *args: Any) -> str | None:
    """The first operation that prevents a function from being one fused program, or None.

    **Arguments:** `args`: arrays, or shapes and types of arrays.
    """
    return refusal(inline_and_unroll(jax.make_jaxpr(fn)(*args), LARGE).jaxpr)


def why_no_fused_programs() -> str | None:
    """Reason for which no program is fused here, or None if programs may be fused."""
    if not fuses():
        return "fused programs are switched off"
    return f"fused programs are for the CPU, not for {target()!r}" if is_wide() else None


__all__ = ["holds", "holds_fused_program", "refused_operation", "why_no_fused_programs"]
