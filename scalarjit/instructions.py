"""Instructions of single operations.

Sums of a product are fused multiplications and additions, as XLA's are on the CPU.
Nothing else is reordered: infinities, both zeros and what is not a number stay as they are.
"""

from .elementwise import LIBRARY
from .graph import COMPARISONS, Node
from .ir import REGISTER, Writer, suffix

ROUNDINGS = frozenset({"sqrt", "floor", "ceil", "round", "roundeven"})
VECTORIZED = frozenset({"sin", "cos", "exp", "log", "tanh"})


def instruct(w: Writer, node: Node, x: list[str], once: bool = False) -> str:
    """Write the instructions of a node with these operands; the name of the result.

    - `once`: whether another node, but no more than one, uses the result.
    """
    op, kind = node.op, node.type
    if op in VECTORIZED or op in LIBRARY:
        T = w.type(kind)
        given = ", ".join(f"{T} {y}" for y in x)
        return w.put(f"call {T} {w.module.function(op, kind, w.lanes)}({given})")
    if op in COMPARISONS:
        return _compared(w, op, node.args[0].type, x)
    if op == "select":
        which, T = w.type("i1"), w.type(kind)
        return w.put(f"select {which} {x[0]}, {T} {x[1]}, {T} {x[2]}")
    if op == "convert":
        return _converted(w, node.args[0].type, kind, x[0])
    if op == "bits":
        return w.put(f"bitcast {w.type(node.args[0].type)} {x[0]} to {w.type(kind)}")
    if op == "is_finite":
        own = node.args[0].type
        size = w.call(own, "fabs", x[0])
        return w.put(f"fcmp olt {w.type(own)} {size}, {w.constant(own, float('inf'))}")
    if kind.startswith("f"):
        return _of_floats(w, op, kind, x, once)
    return _of_integers(w, op, kind, x)


def _of_floats(w: Writer, op: str, kind: str, x: list[str], once: bool) -> str:
    T = w.type(kind)
    if op == "add":
        return w.sum_of(kind, *x)
    if op == "sub":
        return w.difference_of(kind, *x)
    if op == "mul":
        return w.product(kind, x[0], x[1], once, only=True)
    if op == "fdiv":
        return w.put(f"fdiv {T} {x[0]}, {x[1]}")
    if op in ROUNDINGS:
        return w.call(kind, op, x[0])
    if op == "neg":
        return w.put(f"fneg {T} {x[0]}")
    if op == "abs":
        return w.call(kind, "fabs", x[0])
    if op in ("max", "min"):
        # The first one if it is larger or not a number, the second one if that is not a number.
        first = w.put(f"fcmp {'uge' if op == 'max' else 'ule'} {T} {x[0]}, {x[1]}")
        best = w.put(f"select {w.type('i1')} {first}, {T} {x[0]}, {T} {x[1]}")
        none = w.put(f"fcmp uno {T} {x[1]}, {x[1]}")
        return w.put(f"select {w.type('i1')} {none}, {T} {x[1]}, {T} {best}")
    raise AssertionError(f"no instruction for {op} of {kind}")


def _of_integers(w: Writer, op: str, kind: str, x: list[str]) -> str:
    T, signed = w.type(kind), kind.startswith("i") and kind != "i1"
    if op in ("add", "sub", "mul", "and", "or", "xor"):
        return w.put(f"{op} {T} {x[0]}, {x[1]}")
    if op == "neg":
        return w.put(f"sub {T} {w.constant(kind, 0)}, {x[0]}")
    if op in ("max", "min", "abs"):
        below = w.constant(kind, 0) if op == "abs" else x[1]
        order = ("s" if signed else "u") + ("lt" if op == "min" else "gt")
        first = w.put(f"icmp {order} {T} {x[0]}, {below}")
        other = w.put(f"sub {T} {below}, {x[0]}") if op == "abs" else x[1]
        return w.put(f"select {w.type('i1')} {first}, {T} {x[0]}, {T} {other}")
    if op in ("idiv", "irem"):
        return _divided(w, op, kind, x)
    raise AssertionError(f"no instruction for {op} of {kind}")


def _divided(w: Writer, op: str, kind: str, x: list[str]) -> str:
    """Integer division as in XLA: x / 0 = -1, x % 0 = x, the most negative number / -1 wraps."""
    T, C, signed = w.type(kind), w.type("i1"), kind.startswith("i")
    one, none = w.constant(kind, 1), w.put(f"icmp eq {T} {x[1]}, {w.constant(kind, 0)}")
    guard = none
    if signed:
        least = w.constant(kind, -(2 ** (int(kind[1:]) - 1)))
        lowest = w.put(f"icmp eq {T} {x[0]}, {least}")
        minus = w.put(f"icmp eq {T} {x[1]}, {w.constant(kind, -1)}")
        wraps = w.put(f"and {C} {lowest}, {minus}")
        guard = w.put(f"or {C} {none}, {wraps}")
    divisor = w.put(f"select {C} {guard}, {T} {one}, {T} {x[1]}")
    name = ("s" if signed else "u") + ("div" if op == "idiv" else "rem")
    found = w.put(f"{name} {T} {x[0]}, {divisor}")
    otherwise = w.constant(kind, -1) if op == "idiv" else x[0]
    return w.put(f"select {C} {none}, {T} {otherwise}, {T} {found}")


ORDERED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


def _compared(w: Writer, op: str, kind: str, x: list[str]) -> str:
    if kind.startswith("f"):
        return w.put(f"fcmp {ORDERED[op]} {w.type(kind)} {x[0]}, {x[1]}")
    sign = "" if op in ("eq", "ne") else "s" if kind.startswith("i") and kind != "i1" else "u"
    return w.put(f"icmp {sign}{op} {w.type(kind)} {x[0]}, {x[1]}")


def _converted(w: Writer, given: str, kind: str, x: str) -> str:
    """Floats to integers saturate, and what is not a number becomes 0, as in XLA."""
    A, B = w.type(given), w.type(kind)
    signed = given.startswith("i") and given != "i1"
    if given.startswith("f") and kind.startswith("f"):
        return w.put(f"{'fpext' if kind == 'f64' else 'fptrunc'} {A} {x} to {B}")
    if given.startswith("f"):
        name = f"llvm.fpto{'s' if kind.startswith('i') else 'u'}i.sat"
        ending = ".".join(suffix(k, w.lanes) for k in (kind, given))
        w.module.declare(f"declare {B} @{name}.{ending}({A})")
        return w.put(f"call {B} @{name}.{ending}({A} {x})")
    if kind.startswith("f"):
        return w.put(f"{'s' if signed else 'u'}itofp {A} {x} to {B}")
    before, after = int(REGISTER[given][1:]), int(REGISTER[kind][1:])
    if before == after:
        return x
    if before > after:
        return w.put(f"trunc {A} {x} to {B}")
    return w.put(f"{'sext' if signed else 'zext'} {A} {x} to {B}")
