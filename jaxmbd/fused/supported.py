"""Programs that XLA's CPU compiler can compile as one kernel."""

import math
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from .batch_last import KNOWN
from .parameters import unsupported

# Operations on small arrays that XLA can put into a kernel. Others raise an error at compile time:
# scatters, sorts, library calls, callbacks, and large matrix products.
SUPPORTED = KNOWN | {"iota"}

# Reductions of about 4,000 numbers or more become library calls as well.
LARGE = 4000


def refusal(jaxpr: Jaxpr) -> str | None:
    """The operation that prevents the compilation of a program as one kernel, or None."""
    for equation in jaxpr.eqns:
        name, reason = equation.primitive.name, unsupported(equation)
        if reason is not None or name not in SUPPORTED:
            return reason or name
        if name.startswith("reduce"):
            shape: tuple[int, ...] = getattr(equation.invars[0].aval, "shape")  # noqa: B009
            adds = any(shape[axis] > 1 for axis in equation.params["axes"])
            if adds and math.prod(shape) > LARGE:
                return f"{name} of {math.prod(shape)} numbers"
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_program):
            inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
            reason = refusal(inner) if isinstance(inner, Jaxpr) else None
            if reason is not None:
                return reason
    return None


def is_empty(jaxpr: Jaxpr) -> bool:
    """True if all arguments or all results are empty: XLA compiles no kernel then."""
    given, results = (
        sum(math.prod(getattr(x.aval, "shape")) for x in variables)  # noqa: B009
        for variables in (jaxpr.invars, jaxpr.outvars)
    )
    return given == 0 or results == 0


def is_supported(jaxpr: Jaxpr) -> bool:
    """True if a program compiles as one kernel."""
    return not is_empty(jaxpr) and refusal(jaxpr) is None


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


__all__ = ["LARGE", "is_supported", "refusal"]
