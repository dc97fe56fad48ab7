"""Programs of scalars: nodes, each computed once, and loops.

A node belongs to the innermost loop that it depends on, so that invariant nodes leave loops. A node
varies if it depends on an argument that differs between the states of a batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# NumPy's types by their names in programs, and the names by the types. NumPy puts together the name
# of a type each time that it is read.
NUMPY_TYPES = {
    short: np.dtype(name)
    for name, short in {
        "bool": "i1",
        "float32": "f32",
        "float64": "f64",
        **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
        **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
    }.items()
}
TYPES = {dtype: short for short, dtype in NUMPY_TYPES.items()}

COMMUTATIVE = frozenset({"add", "mul", "and", "or", "xor", "eq", "ne"})
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})

# Loops of more iterations in total compute everything for each state: the values that states share
# would take too much memory.
MAX_SHARED_ITERATIONS = 256


# Number of iterations of a loop without a limit, and how many of them count as work.
UNLIMITED, EXPECTED = 2**40, 16


class Node:
    """One scalar: an operation on other scalars."""

    __slots__ = ("args", "data", "index", "op", "region", "type", "varies")

    def __init__(self, op: str, kind: str, args: Any, data: Any, region: Any, varies: bool):
        self.op, self.type, self.args, self.data = op, kind, args, data
        self.region, self.varies = region, varies
        self.index = -1


@dataclass(eq=False)
class Region:
    """The body of a loop; the root region is the program.

    - `rows`: for each array that is read row by row, its entries by iteration, or `AbstractRows`.
    - `carried`: nodes of the carried values at the beginning of an iteration.
    - `start`, `end`: their values before the first iteration, and at the end of an iteration.
    - `stacked`: for each array that is written row by row, the entries of a row.
    - `enters`, `repeats`: whether there is a first iteration, and another one after an iteration;
      None for a fixed number of iterations.
    """

    parent: "Region | None"
    length: int = 1
    reverse: bool = False
    index: int = -1
    rows: list[Any] = field(default_factory=list)
    carried: list[Node] = field(default_factory=list)
    start: list[Node] = field(default_factory=list)
    end: list[Node] = field(default_factory=list)
    stacked: list[list[Node]] = field(default_factory=list)
    enters: Node | None = None
    repeats: Node | None = None
    depth: int = field(init=False)

    def __post_init__(self):
        self.depth = 0 if self.parent is None else self.parent.depth + 1

    @property
    def iterations(self) -> int:
        """Iterations in total, with those of the surrounding loops."""
        return self.length * (1 if self.parent is None else self.parent.iterations)

    @property
    def work(self) -> int:
        """Expected iterations in a call; loops without a limit count as short ones."""
        own = EXPECTED if self.length == UNLIMITED else self.length
        return own * (1 if self.parent is None else self.parent.work)


class Graph:
    """Nodes and loops in an order in which they can be computed.

    - `batched`: for each argument, whether it differs between states.
    - `is_linear`: whether the program is a derivative. A product with a constant zero is zero then,
      as JAX takes it for tangents and cotangents that it knows to be zero.
    - `varies`: whether all that is not constant counts as varying.
    """

    def __init__(self, batched: tuple[bool, ...], is_linear: bool = False, *, varies: bool = False):
        self.batched, self.is_linear, self.varies = batched, is_linear, varies
        self.root = Region(None)
        self.nodes: list[Node] = []
        self.regions: list[Region] = []
        self.count = 0
        self._known: dict[Any, Node] = {}

    def node(self, op: str, kind: str, args: tuple[Node, ...] = (), data: Any = None) -> Node:
        """The node of an operation; one that exists already, or a constant, if there is one."""
        if op in COMMUTATIVE and args[0].index > args[1].index:
            args = args[::-1]
        key = (op, kind, data, *[x.index for x in args])
        known = self._known.get(key)
        if known is not None:
            return known
        constant, varies, region = op in FOLDED, self.varies, self.root
        for x in args:  # Half of the time to convert a program is spent here.
            if constant and x.op != "const":
                constant = False
            if x.varies:
                varies = True
            if x.region is not region and x.region.depth > region.depth:
                region = x.region
        if constant and args:
            with np.errstate(all="ignore"):
                value = FOLDED[op](NUMPY_TYPES[kind], *(x.data for x in args))
            made = self.constant(value, kind)
        else:
            made = self._added(Node(op, kind, args, data, region, varies))
        self._known[key] = made
        return made

    def constant(self, value: Any, kind: str) -> Node:
        """A constant of this type; constants with the same bits are the same node."""
        value = NUMPY_TYPES[kind].type(value)
        key = ("const", kind, value.tobytes())
        if key not in self._known:
            self._known[key] = self._added(Node("const", kind, (), value, self.root, False))
        return self._known[key]

    def argument(self, number: int, entry: int, kind: str) -> Node:
        """Node of entry `entry` of argument `number`."""
        key = ("arg", kind, number, entry)
        if key not in self._known:
            node = Node("arg", kind, (), (number, entry), self.root, self.batched[number])
            self._known[key] = self._added(node)
        return self._known[key]

    def load(self, number: int, first: Node, entry: int, kind: str) -> Node:
        """The entry of an argument that follows the computed one `first` by `entry` entries."""
        if first.op == "const":
            return self.argument(number, int(first.data) + entry, kind)
        key = ("load", kind, (number, entry), first.index)
        if key not in self._known:
            varies = self.batched[number] or first.varies
            node = Node("load", kind, (first,), (number, entry), first.region, varies)
            self._known[key] = self._added(node)
        return self._known[key]

    def block(self, entries: Sequence[Node], varies: bool) -> Node:
        """Entries, row by row in memory: the result of a call if they are all of it."""
        found = self.known_block(entries, varies)
        if found is None:
            region = max((x.region for x in entries), key=lambda region: region.depth)
            node = Node("block", entries[0].type, tuple(entries), None, region, varies)
            found = self._known[self._key_of(entries, varies)] = self._added(node)
        return found

    def known_block(self, entries: Sequence[Node], varies: bool) -> Node | None:
        """These entries if they are in memory already, otherwise None."""
        first = entries[0]
        if first.op == "part" and first.data == 0 and first.varies == varies:
            result = first.args[0]
            if len(entries) == result.args[0].data.found[result.data] and all(
                x.op == "part" and x.args[0] is result and x.data == k
                for k, x in enumerate(entries)
            ):
                return result
        return self._known.get(self._key_of(entries, varies))

    def _key_of(self, entries: Sequence[Node], varies: bool) -> Any:
        return ("block", varies, *[x.index for x in entries])

    def call(self, routine: Any, blocks: Sequence[Node]) -> list[list[Node]]:
        """Nodes of the entries of each result of a routine on blocks in memory."""
        call = self.node("call", "i64", tuple(blocks), routine)
        kinds = routine.kinds(blocks)
        results = [self.node("result", kind, (call,), k) for k, kind in enumerate(kinds)]
        return [
            [self.node("part", x.type, (x,), k) for k in range(count)]
            for x, count in zip(results, routine.found, strict=True)
        ]

    def row_of_loop(self, loop: "Region", number: int, k: int, row: Node) -> Node:
        """Entry k of the row with a computed number that a loop has written."""
        x = loop.stacked[number][k]
        key = ("stacked_at", loop.index, number, k, row.index)
        if key not in self._known:
            varies = x.varies or row.varies
            node = Node("stacked_at", x.type, (row,), (loop, number, k), row.region, varies)
            self._known[key] = self._added(node)
        return self._known[key]

    def of_loop(self, op: str, kind: str, loop: Region, data: Any, varies: bool) -> Node:
        """A value that a loop defines: in its body, or after it for results."""
        inside, varies = op in ("carry", "row"), varies or self.varies
        region = loop if inside else loop.parent
        return self._added(Node(op, kind, (), (loop, *data), region, varies))

    def loop(self, parent: Region, length: int, reverse: bool) -> Region:
        """The region of a loop, to be closed after its body was traced."""
        return Region(parent, length, reverse)

    def close(self, loop: Region) -> None:
        """Put a loop behind all nodes that its body depends on."""
        self.count += 1
        loop.index = self.count
        self.regions.append(loop)

    def shares(self, loop: Region) -> bool:
        """True if values in a loop that all states share are computed once."""
        if self.varies:
            return False
        return loop.iterations <= MAX_SHARED_ITERATIONS or not any(self.batched)

    def forget(self) -> None:
        """Free the memory that further nodes would need."""
        self._known = {}

    def _added(self, node: Node) -> Node:
        self.count += 1
        node.index = self.count
        self.nodes.append(node)
        return node


# Values of operations on constants ----------------------------------------------------------------
# Operations that are not listed, and integer divisions, are computed by the program.


def _of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """An operation whose result has the type of its first argument."""
    return lambda kind, *args: kind.type(fn(*args))


def _converted(kind: np.dtype, x: Any) -> Any:
    """Floats to integers: not a number to zero, and saturated, as XLA converts."""
    if kind.kind in "iu" and x.dtype.kind == "f":
        if np.isnan(x):
            return kind.type(0)
        limits = np.iinfo(kind)
        if float(x) <= limits.min or float(x) >= limits.max:
            return kind.type(limits.min if x < 0 else limits.max)
        return kind.type(int(x))
    return x.astype(kind)


def _select(kind: np.dtype, which: Any, yes: Any, no: Any) -> Any:
    return yes if which else no


FOLDED: dict[str, Callable[..., Any]] = {
    "add": _of(np.add),
    "sub": _of(np.subtract),
    "mul": _of(np.multiply),
    "fdiv": _of(np.divide),
    "neg": _of(np.negative),
    "abs": _of(np.abs),
    "max": _of(np.maximum),
    "min": _of(np.minimum),
    "lt": _of(np.less),
    "le": _of(np.less_equal),
    "gt": _of(np.greater),
    "ge": _of(np.greater_equal),
    "eq": _of(np.equal),
    "ne": _of(np.not_equal),
    "and": _of(np.bitwise_and),
    "or": _of(np.bitwise_or),
    "xor": _of(np.bitwise_xor),
    "convert": _converted,
    "bits": lambda kind, x: x.view(kind),
    "select": _select,
    "is_finite": _of(np.isfinite),
    "sqrt": _of(np.sqrt),
    "floor": _of(np.floor),
    "ceil": _of(np.ceil),
    "roundeven": _of(np.rint),
    "sin": _of(np.sin),
    "cos": _of(np.cos),
    "exp": _of(np.exp),
    "log": _of(np.log),
    "tanh": _of(np.tanh),
}
