"""One object for all traces of the same program.

Functions are traced anew wherever they are called. Programs with equal operations, parameters and
constants are replaced by the first one of them, so that code is generated once.
"""

from collections import OrderedDict
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

# Largest number of programs that are remembered.
REMEMBERED = 256

# Types whose equal values are the same; most parameters have them.
PLAIN = frozenset({bool, int, str, type(None)})

_first: OrderedDict[Any, ClosedJaxpr] = OrderedDict()


def canonical(program: ClosedJaxpr) -> ClosedJaxpr:
    """The first program that was given with the same operations, parameters and constants."""
    key = _of_closed(program)
    found = _first.setdefault(key, program)
    _first.move_to_end(key)
    if len(_first) > REMEMBERED:
        _first.popitem(last=False)
    return found


def _of_closed(program: ClosedJaxpr) -> Any:
    return _of_jaxpr(program.jaxpr), tuple(map(_of_value, program.consts))


def _of_jaxpr(jaxpr: Jaxpr) -> Any:
    numbers: dict[Any, int] = {}

    def of_variable(x: Any) -> Any:
        if isinstance(x, Literal):
            return _of_value(x.val), x.aval
        if x not in numbers:
            numbers[x] = len(numbers)
        return numbers[x], x.aval

    heads = [tuple(map(of_variable, xs)) for xs in (jaxpr.constvars, jaxpr.invars)]
    equations = []
    for equation in jaxpr.eqns:
        params = tuple((name, _of_value(x)) for name, x in sorted(equation.params.items()))
        given = tuple(map(of_variable, equation.invars))
        made = tuple(map(of_variable, equation.outvars))
        equations.append((equation.primitive, params, given, made))
    return *heads, tuple(equations), tuple(map(of_variable, jaxpr.outvars))


def _of_value(x: Any) -> Any:
    """A key of the value of a parameter or constant; that of an unknown object is itself."""
    if type(x) in PLAIN:
        return type(x), x
    if isinstance(x, ClosedJaxpr):
        return _of_closed(x)
    if isinstance(x, Jaxpr):
        return _of_jaxpr(x)
    if isinstance(x, tuple | list):
        return type(x), tuple(map(_of_value, x))
    if isinstance(x, bool | int | float | complex | np.generic | np.ndarray) or hasattr(
        x, "__array__"
    ):
        array = np.asarray(x)
        return type(x), array.dtype.str, array.shape, array.tobytes()
    try:
        hash(x)
    except TypeError:
        return _Itself(x)
    return type(x), x


class _Itself:
    """An object that equals itself alone."""

    def __init__(self, x: Any):
        self.x = x

    def __hash__(self) -> int:
        return id(self.x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.x is self.x
