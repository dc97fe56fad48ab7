"""Optimization barriers around results that a program uses more than once.

XLA's fusion on the CPU repeats cheap operations, such as products and sums, in each operation that
uses their result. Results that several parts of a kernel use, such as rotation matrices, are then
computed several times, and LLVM takes long to compile the kernel. A barrier around such a result
stores it as a separate array.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

from .inline_and_unroll import blank, literal

# Smallest number of operations since the last barrier for which a result gets a barrier.
WORTH = 8

# Operations that only rearrange numbers.
ARRANGES = frozenset(
    {
        *("broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "gather"),
        *("iota", "pad", "reshape", "rev", "slice", "split", "squeeze", "stack", "tile"),
        *("transpose", "unstack"),
    }
)


def with_barriers(program: ClosedJaxpr) -> Callable[..., Sequence[Any]]:
    """The function of a program, with barriers around results that are used more than once."""
    jaxpr = program.jaxpr
    needed = Counter(x for equation in jaxpr.eqns for x in _variables(equation.invars))
    needed.update(_variables(jaxpr.outvars))

    def evaluate(*args: Any) -> list[Any]:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, program.consts, strict=True))
        known.update(zip(jaxpr.invars, args, strict=True))
        behind: Counter[Any] = Counter()

        def read(x: Any) -> Any:
            return literal(x) if isinstance(x, Literal) else known[x]

        for equation in jaxpr.eqns:
            found = _found(equation, [read(x) for x in equation.invars])
            own = 0 if equation.primitive.name in ARRANGES else 1
            size = own + sum(behind[x] for x in _variables(equation.invars))
            for x, value in zip(equation.outvars, found, strict=True):
                apart = needed[x] > 1 and size >= WORTH
                known[x] = jax.lax.optimization_barrier(value) if apart else value
                behind[x] = 0 if apart else size
        return [read(x) for x in jaxpr.outvars]

    return evaluate


def _variables(values: Sequence[Any]) -> set[Any]:
    return {x for x in values if not isinstance(x, Literal)}


def _found(equation: Any, values: list[Any]) -> Sequence[Any]:
    primitive, params = equation.primitive, equation.params
    if primitive.name == "scan":
        body = params["jaxpr"]
        body = jax.make_jaxpr(with_barriers(body))(*map(blank, body.in_avals))
        params = params | {"jaxpr": body}
    found = primitive.bind(*values, **params)
    return found if primitive.multiple_results else [found]


__all__ = ["with_barriers"]
