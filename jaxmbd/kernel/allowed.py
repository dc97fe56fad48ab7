"""What XLA's CPU compiler can make one kernel of."""

import math
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from .batch_last import KNOWN

# Operations that XLA can put into one, of small arrays. Not among them, and an error while
# compiling: scatters, sorts, library calls, callbacks, and large matrix products.
ALLOWED = KNOWN | {"iota"}

# Reductions of about 4,000 numbers or more become library calls as well.
LARGE = 4000


def is_allowed(jaxpr: Jaxpr) -> bool:
    """Whether it compiles as one kernel."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name not in ALLOWED:
            return False
        if name.startswith("reduce"):
            shape: tuple[int, ...] = getattr(equation.invars[0].aval, "shape")  # noqa: B009
            adds = any(shape[axis] > 1 for axis in equation.params["axes"])
            if adds and math.prod(shape) > LARGE:
                return False
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=_is_program):
            inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
            if isinstance(inner, Jaxpr) and not is_allowed(inner):
                return False
    return True


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


__all__ = ["LARGE", "is_allowed"]
