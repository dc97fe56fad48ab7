"""Nodes that results depend on, and the passes that compute them.

Values that all states of a batch share are computed once a call, in a pass on scalars. The other
pass computes what varies, on vectors of states.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from .graph import Graph, Node, Region
from .structure import Nodes


class Plan:
    """What each pass computes.

    - `items`: for each pass and region, live nodes and loops in the order of their computation.
    - `slots`: number of each shared value that the other pass reads, within its region.
    - `crossing`: for each region, the number of these values.
    """

    def __init__(self, graph: Graph, results: Iterable[Nodes]):
        self.graph = graph
        self.live: dict[int, Node] = {}
        self._mark(x for array in results for x in array.flat)
        self.items: dict[tuple[bool, int], list[Any]] = defaultdict(list)
        self.loops: dict[bool, set[Region]] = {False: set(), True: set()}
        self.slots: dict[int, int] = {}
        self.crossing: dict[Region, int] = defaultdict(int)
        self._place()
        self._cross([x for array in results for x in array.flat])

    def _mark(self, nodes: Iterable[Node]) -> None:
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node.index not in self.live:
                self.live[node.index] = node
                stack.extend(needed(node))

    def _place(self) -> None:
        for node in self.live.values():
            if node.op not in ("const", "arg"):
                self.items[node.varies, id(node.region)].append(node)
                self._enter(node.varies, node.region)
                if node.op in ("final", "kept"):
                    self._enter(node.varies, node.data[0])
        for varies, loops in self.loops.items():
            for loop in loops:
                self.items[varies, id(loop.parent)].append(loop)
        for items in self.items.values():
            items.sort(key=lambda x: x.index)

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
                read = needed(node) if node.varies else ()
            for x in read:
                if not x.varies and x.op not in ("const", "arg") and x.index not in self.slots:
                    self.slots[x.index] = self.crossing[x.region]
                    self.crossing[x.region] += 1


def needed(node: Node) -> list[Node]:
    """Nodes that a node depends on directly, those of a loop included."""
    if node.op == "carry":
        loop, k = node.data
        return [loop.start[k], loop.end[k]]
    if node.op == "final":
        loop, k = node.data
        return [loop.start[k], loop.end[k]]
    if node.op == "row":
        loop, number, k = node.data
        return list(loop.rows[number][:, k])
    if node.op == "kept":
        loop, number, _, k = node.data
        return [loop.kept[number][k]]
    return list(node.args)


__all__ = ["Plan", "needed"]
