"""Nodes that results depend on, and the passes that compute them.

Values that all states of a batch share are computed once a call, in a pass on scalars. The other
pass computes what varies, on vectors of states.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from .graph import Graph, Node, Region
from .rows import AbstractRows, StackedRows

INDEX = attrgetter("index")


class Plan:
    """Nodes and loops that each pass computes.

    - `items`: for each pass and region, live nodes and loops in the order of their computation.
    - `uses`: how often live nodes and results use each node.
    - `slots`: number of each shared value that the other pass reads, within its region.
    - `crossing`: for each region, the number of these values.
    - `stacked`: entries of rows that loops store in memory: loop, number of the array, and entry.
    - `stored`: results whose rows a loop stores, by loop and number of the array.
    - `work`: operations on vectors, those of loops as often as they are computed.
    """

    def __init__(self, graph: Graph, results: Sequence[Any]):
        self.graph = graph
        self.live: dict[int, Node] = {}
        self.uses: dict[int, int] = defaultdict(int)
        entries = [
            x for array in results if not isinstance(array, AbstractRows) for x in array.flat
        ]
        self.stored: dict[tuple[Region, int], list[int]] = defaultdict(list)
        for k, array in enumerate(results):
            if isinstance(array, StackedRows):
                self.stored[array.loop, array.number].append(k)
        written = [x for loop, number in self.stored for x in loop.stacked[number]]
        self._mark([*entries, *written])
        self.stacked: dict[tuple[Region, int, int], bool] = {}
        self.items: dict[tuple[bool, int], list[Any]] = defaultdict(list)
        self.loops: dict[bool, set[Region]] = {False: set(), True: set()}
        self.slots: dict[int, int] = {}
        self.crossing: dict[Region, int] = defaultdict(int)
        self._place()
        self._cross([*entries, *written])
        varying = [x for x in self.live.values() if x.varies]
        self.work = sum(
            x.region.work * (x.data.operations if x.op == "call" else 1) for x in varying
        )

    def _mark(self, nodes: Iterable[Node]) -> None:
        stack = list(nodes)
        while stack:
            node = stack.pop()
            self.uses[node.index] += 1
            if node.index not in self.live:
                self.live[node.index] = node
                stack += needed(node)

    def _place(self) -> None:
        for node in self.live.values():
            if node.op not in ("const", "arg"):
                self.items[node.varies, id(node.region)].append(node)
                self._enter(node.varies, node.region)
                if node.op in ("final", "stacked"):
                    self._enter(node.varies, node.data[0])
            self._keep(node)
        for loop, _ in self.stored:
            self._enter(any(self.graph.batched), loop)
        for varies, loops in self.loops.items():
            for loop in loops:
                self.items[varies, id(loop.parent)].append(loop)
        for items in self.items.values():
            items.sort(key=INDEX)
            items[:] = _ordered(items)

    def _keep(self, node: Node) -> None:
        """Note what a loop has to store in memory for a node."""
        found = None
        if node.op == "stacked":
            loop, number, _, k = node.data
            found = loop, number, k
        elif node.op == "stacked_at":
            found = node.data
        elif node.op == "row" and isinstance(rows := node.data[0].rows[node.data[1]], StackedRows):
            found = rows.loop, rows.number, rows.entry(node.data[2])[1]
        if found is None:
            return
        loop, number, k = found
        own = loop.stacked[number][k].varies
        self._enter(own, loop)
        # Whether the other pass reads it.
        self.stacked[found] = self.stacked.get(found, False) or node.varies != own

    def _enter(self, varies: bool, region: Region) -> None:
        while region.parent is not None and region not in self.loops[varies]:
            self.loops[varies].add(region)
            region = region.parent

    def _cross(self, results: list[Node]) -> None:
        """Reserve memory for each value without a batch axis that the pass on vectors reads."""
        for node in [*self.live.values(), None]:
            if node is None:
                read = results if any(self.graph.batched) else []
            else:
                read = (node.args if _reads_stacked(node) else needed(node)) if node.varies else ()
            for x in read:
                if not x.varies and x.op not in ("const", "arg") and x.index not in self.slots:
                    self.slots[x.index] = self.crossing[x.region]
                    self.crossing[x.region] += 1


# Operations on values of loops, which stay where they are among the loops.
OF_LOOPS = frozenset({"carry", "row", "final", "stacked"})


def _ordered(items: list[Any]) -> list[Any]:
    """Nodes between loops in the order of their use."""
    found: list[Any] = []
    for pure, group in groupby(items, lambda x: isinstance(x, Node) and x.op not in OF_LOOPS):
        some = list(group)
        found += by_use(some) if pure else some
    return found


def _reads_stacked(node: Node) -> bool:
    """True if a node stands for a row that another loop has written, which is in memory."""
    if node.op == "stacked_at":
        return True
    return node.op == "row" and isinstance(node.data[0].rows[node.data[1]], StackedRows)


# Operations that depend on more than their arguments.
OF_MORE = OF_LOOPS | {"stacked_at"}


def needed(node: Node) -> Sequence[Node]:
    """Nodes that a node depends on directly, those of a loop included."""
    if node.op not in OF_MORE:
        return node.args
    if node.op in ("carry", "final"):
        loop, k = node.data
        flags = [x for x in (loop.enters, loop.repeats) if x is not None]
        return [loop.start[k], loop.end[k], *flags]
    if node.op == "row":
        loop, number, k = node.data
        rows = loop.rows[number]
        if isinstance(rows, StackedRows):
            return [rows.loop.stacked[rows.number][rows.entry(k)[1]]]
        return [] if isinstance(rows, AbstractRows) else list(rows[:, k])
    if node.op == "stacked":
        loop, number, _, k = node.data
        return [loop.stacked[number][k]]
    loop, number, k = node.data
    return [loop.stacked[number][k], *node.args]


# Order of computation: values are computed shortly before they are used ---------------------------
# Programs of scalars begin in the order of the arrays that they were traced from, all entries of
# one after another. Most of these values would leave the registers before they are used.


def by_use(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, those that no other one of them uses in the given order, each after its operands.

    Operands that need more registers come first (Sethi and Ullman 1970).
    """
    used: set[int] = set()
    operands: dict[int, list[Node]] = {}
    registers = dict.fromkeys([x.index for x in nodes], 1)
    of = lambda y: registers[y.index]  # noqa: E731
    for x in sorted(nodes, key=INDEX):
        below = [y for y in x.args if y.index in registers]
        if not below:
            operands[x.index] = below
            continue
        if len(below) > 1:
            below = sorted({y.index: y for y in below}.values(), key=of)
        used.update([y.index for y in below])
        operands[x.index] = below
        last = len(below) - 1
        registers[x.index] = max([registers[y.index] + last - k for k, y in enumerate(below)])
    ordered: list[Node] = []
    begun: set[int] = set()
    done: set[int] = set()
    stack = [x for x in reversed(nodes) if x.index not in used]
    while stack:
        x = stack.pop()
        k = x.index
        if k in done:
            continue
        if k in begun or not operands[k]:
            done.add(k)
            ordered.append(x)
        else:
            begun.add(k)
            stack.append(x)
            stack += operands[k]
    return ordered
