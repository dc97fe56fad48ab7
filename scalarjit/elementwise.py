"""Rules of operations that compute each entry of the result from entries at the same index."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.lax import RoundingMethod

from .graph import NUMPY_TYPES, TYPES, Graph, Node

# A rule takes the graph, the parameters of the primitive and one scalar of each argument.
Rule = Callable[..., Node]

# Functions of the mathematical library, called for each lane, and their names there.
LIBRARY = {
    **{name: name for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cosh")},
    **{name: name for name in ("erf", "erfc", "exp2", "expm1", "log1p", "log2", "sinh", "tan")},
    "atan2": "atan2",
    "pow": "pow",
    "fmod": "fmod",
}


def is_float(x: Node) -> bool:
    """True if a node is a float."""
    return x.type in ("f32", "f64")


def is_value(x: Node, value: int) -> bool:
    """True if a node is a constant of this value; 0 stands for both zeros."""
    return x.op == "const" and bool(x.data == value)


def add(graph: Graph, a: Node, b: Node) -> Node:
    """a + b. As in XLA, x + 0 is x for both zeros."""
    if is_value(a, 0):
        return b
    if is_value(b, 0):
        return a
    if is_float(a):
        if b.op == "neg":
            return sub(graph, a, b.args[0])
        if a.op == "neg":
            return sub(graph, b, a.args[0])
    return graph.node("add", a.type, (a, b))


def sub(graph: Graph, a: Node, b: Node) -> Node:
    if is_value(b, 0):
        return a
    if is_float(a) and b.op == "neg":
        return add(graph, a, b.args[0])
    return graph.node("sub", a.type, (a, b))


def mul(graph: Graph, a: Node, b: Node) -> Node:
    """Node of a b. A factor 0 is simplified in derivatives only, since 0 times infinity is NaN."""
    if a.op == "const":
        a, b = b, a
    if b.op == "const":
        if is_value(b, 1):
            return a
        if is_float(a) and is_value(b, -1):
            return neg(graph, a)
        if is_value(b, 0) and (graph.is_linear or not is_float(a)):
            return b
    return graph.node("mul", a.type, (a, b))


def neg(graph: Graph, a: Node) -> Node:
    return a.args[0] if a.op == "neg" and is_float(a) else graph.node("neg", a.type, (a,))


def div(graph: Graph, a: Node, b: Node) -> Node:
    if not is_float(a):
        return graph.node("idiv", a.type, (a, b))
    if is_value(b, 1):
        return a
    if b.op == "const" and np.frexp(b.data)[0] in (0.5, -0.5):  # A power of two: exact.
        inverse = 1 / b.data
        if np.finfo(b.data.dtype).tiny <= abs(inverse) < np.inf:
            return mul(graph, a, graph.constant(inverse, b.type))
    return graph.node("fdiv", a.type, (a, b))


def select(graph: Graph, which: Node, yes: Node, no: Node) -> Node:
    """`yes` if `which` is true, otherwise `no`."""
    if which.op == "const":
        return yes if which.data else no
    return yes if yes is no else graph.node("select", yes.type, (which, yes, no))


def compare(graph: Graph, op: str, a: Node, b: Node) -> Node:
    """A comparison of this name."""
    return graph.node(op, "i1", (a, b))


def compare_total(graph: Graph, op: str, a: Node, b: Node) -> Node:
    """A comparison in the total order: -NaN < -∞ < … < -0 < +0 < … < ∞ < NaN."""
    return compare(graph, op, _ordinal(graph, a), _ordinal(graph, b))


def _ordinal(graph: Graph, x: Node) -> Node:
    """An integer of the same order: the bits of a float, those of magnitude inverted below zero."""
    if not is_float(x):
        return x
    bits = graph.node("bits", "i64" if x.type == "f64" else "i32", (x,))
    zero = graph.constant(0, bits.type)
    magnitude = graph.constant(np.iinfo(NUMPY_TYPES[bits.type]).max, bits.type)
    below = logic(graph, "xor", bits, magnitude)
    return select(graph, compare(graph, "lt", bits, zero), below, bits)


def logic(graph: Graph, op: str, a: Node, b: Node) -> Node:
    """`and`, `or` or `xor` of the bits of integers, or of truth values."""
    if a.type == "i1":
        for x, y in ((a, b), (b, a)):
            if x.op == "const" and op != "xor":
                return (y if x.data else x) if op == "and" else (x if x.data else y)
    return graph.node(op, a.type, (a, b))


def invert(graph: Graph, a: Node) -> Node:
    ones = True if a.type == "i1" else ~np.zeros((), NUMPY_TYPES[a.type])[()]
    return graph.node("xor", a.type, (a, graph.constant(ones, a.type)))


def power(graph: Graph, x: Node, y: int) -> Node:
    """x to an integer power by repeated squares."""
    if y < 0:
        return div(graph, graph.constant(1, x.type), power(graph, x, -y))
    if y == 0:
        return graph.constant(1, x.type)
    half = power(graph, x, y // 2) if y > 1 else None
    if half is None:
        return x
    square = mul(graph, half, half)
    return mul(graph, square, x) if y % 2 else square


def sign(graph: Graph, x: Node) -> Node:
    zero, one = graph.constant(0, x.type), graph.constant(1, x.type)
    above = compare(graph, "gt", x, zero)
    if x.type.startswith("u"):
        return select(graph, above, one, zero)
    below = select(graph, compare(graph, "lt", x, zero), graph.constant(-1, x.type), x)
    return select(graph, above, one, below)  # Zeros and what is not a number stay.


def convert(graph: Graph, x: Node, kind: str) -> Node:
    if x.type == kind:
        return x
    if kind == "i1":
        return compare(graph, "ne", x, graph.constant(0, x.type))
    return graph.node("convert", kind, (x,))


def round_(graph: Graph, x: Node, method: RoundingMethod) -> Node:
    even = method == RoundingMethod.TO_NEAREST_EVEN
    return graph.node("roundeven" if even else "round", x.type, (x,))


def clamp(graph: Graph, low: Node, x: Node, high: Node) -> Node:
    above = graph.node("max", x.type, (x, low))
    return graph.node("min", x.type, (above, high))


def absolute(graph: Graph, x: Node) -> Node:
    return x if x.type.startswith("u") else graph.node("abs", x.type, (x,))


def remainder(graph: Graph, a: Node, b: Node) -> Node:
    return graph.node("fmod" if is_float(a) else "irem", a.type, (a, b))


def logistic(graph: Graph, x: Node) -> Node:
    one = graph.constant(1, x.type)
    e = graph.node("exp", x.type, (neg(graph, x),))
    return div(graph, one, add(graph, one, e))


def rsqrt(graph: Graph, x: Node) -> Node:
    return div(graph, graph.constant(1, x.type), graph.node("sqrt", x.type, (x,)))


def _plain(op: str) -> Rule:
    return lambda graph, params, *args: graph.node(op, args[0].type, args)


def _of(fn: Callable[..., Node]) -> Rule:
    return lambda graph, params, *args: fn(graph, *args)


def _with(fn: Callable[..., Node], *given: str) -> Rule:
    """A rule of a function whose first argument is a name of an operation."""
    return lambda graph, params, *args: fn(graph, *given, *args)


def _converted(graph: Graph, params: Any, x: Node) -> Node:
    return convert(graph, x, TYPES[np.dtype(params["new_dtype"])])


RULES: dict[str, Rule] = {
    "add": _of(add),
    "add_any": _of(add),
    "sub": _of(sub),
    "mul": _of(mul),
    "div": _of(div),
    "rem": _of(remainder),
    "neg": _of(neg),
    "abs": _of(absolute),
    "sign": _of(sign),
    "square": lambda graph, params, x: mul(graph, x, x),
    "integer_pow": lambda graph, params, x: power(graph, x, params["y"]),
    "rsqrt": _of(rsqrt),
    "logistic": _of(logistic),
    "clamp": _of(clamp),
    "not": _of(invert),
    "copy": lambda graph, params, x: x,
    "copy_p": lambda graph, params, x: x,
    "convert_element_type": _converted,
    "is_finite": lambda graph, params, x: graph.node("is_finite", "i1", (x,)),
    "round": lambda graph, params, x: round_(graph, x, params["rounding_method"]),
    **{name: _with(logic, name) for name in ("and", "or", "xor")},
    **{name: _with(compare, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{f"{name}_to": _with(compare_total, name) for name in ("lt", "le")},
    **{name: _plain(name) for name in ("max", "min", "sqrt", "floor", "ceil")},
    **{name: _plain(name) for name in ("sin", "cos", "exp", "log", "tanh")},
    **{name: _plain(name) for name in LIBRARY if name != "fmod"},
}

__all__ = [
    "LIBRARY",
    "RULES",
    "add",
    "compare",
    "is_float",
    "logic",
    "mul",
    "select",
]
