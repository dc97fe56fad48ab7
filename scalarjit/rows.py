"""Arrays that loops read or write row by row.

Rows of arguments are read from memory where they are. Rows that a loop writes go to memory that
other loops read, or to the results. Their entries become nodes only if another operation needs
them, so that the length of a program does not depend on that of its loops.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from .graph import Graph, Node, Region
from .structure import Nodes, NotCovered

# Largest number of entries of an array, or of products in an operation.
MAX_ENTRIES = 100_000


class AbstractRows(ABC):
    """An array with at least one axis, whose entries are not nodes yet."""

    def __init__(self, graph: Graph, shape: tuple[int, ...]):
        self.graph, self.shape = graph, shape
        self.size = math.prod(shape[1:])  # Of a row.
        self._nodes: Nodes | None = None

    @abstractmethod
    def varies(self, k: int) -> bool:
        """True if entry k of a row differs between the states of a batch."""

    @abstractmethod
    def type(self, k: int) -> str:
        """Type of entry k of a row."""

    @abstractmethod
    def node(self, row: int, k: int) -> Node:
        """An entry."""

    def nodes(self) -> Nodes:
        """All entries.

        **Raises** `NotCovered` if there are too many.
        """
        if self._nodes is None:
            count = math.prod(self.shape)
            if count > MAX_ENTRIES:
                raise NotCovered(f"an array of {count} entries")
            entries = np.empty(count, dtype=object)
            entries[:] = [self.node(*divmod(k, max(1, self.size))) for k in range(count)]
            self._nodes = entries.reshape(self.shape)
        return self._nodes


class ArgumentRows(AbstractRows):
    """An argument of the program."""

    def __init__(self, graph: Graph, number: int, kind: str, shape: tuple[int, ...]):
        super().__init__(graph, shape)
        self.number, self.kind = number, kind

    def varies(self, k: int) -> bool:
        return self.graph.batched[self.number]

    def type(self, k: int) -> str:
        return self.kind

    def node(self, row: int, k: int) -> Node:
        return self.graph.argument(self.number, row * self.size + k, self.kind)


class StackedRows(AbstractRows):
    """Rows that a loop has written, one an iteration, with the entries `loop.stacked[number]`.

    - `together`: number of rows of the loop that make one row of the array.
    """

    def __init__(
        self, graph: Graph, loop: Region, number: int, row: tuple[int, ...], together: int = 1
    ):
        super().__init__(graph, (loop.length // together, *row))
        self.loop, self.number, self.together = loop, number, together

    def entry(self, k: int) -> tuple[int, int]:
        """Where entry k of a row is: number of the loop's row among those together, and entry."""
        return divmod(k, max(1, self.size // self.together))

    def varies(self, k: int) -> bool:
        return self.loop.stacked[self.number][self.entry(k)[1]].varies

    def type(self, k: int) -> str:
        return self.loop.stacked[self.number][self.entry(k)[1]].type

    def node(self, row: int, k: int) -> Node:
        first, own = self.entry(k)
        data = self.number, row * self.together + first, own
        return self.graph.of_loop("stacked", self.type(k), self.loop, data, self.varies(k))

    def reshaped(self, shape: tuple[int, ...]) -> "StackedRows | None":
        """The same entries with several rows as one; None for another shape."""
        rows = self.loop.length
        if not shape or shape[0] == 0 or rows % shape[0]:
            return None
        return StackedRows(self.graph, self.loop, self.number, shape[1:], rows // shape[0])


def as_nodes(x: Any) -> Nodes:
    """Entries of an array."""
    return x.nodes() if isinstance(x, AbstractRows) else x
