"""Products with matrices of truth values: sums of chosen rows, which share partial sums.

The bodies of a subtree, or those between a body and the ground, are such a choice. In the order of
their sizes each sum adds to the sums over smaller sets that it contains, as a recursion along the
tree does. Rows that are not chosen have no effect, even if they are infinite.
"""

from typing import Any

import numpy as np

from .elementwise import add
from .graph import Graph, Node


class Mask(np.ndarray):
    """Nodes of an array of truth values that was converted to numbers, or of a part of it."""


def is_mask(array: np.ndarray) -> bool:
    """True if all nodes of an array are constants 0 or 1."""
    return isinstance(array, Mask) and all(x.op == "const" and x.data in (0, 1) for x in array.flat)


def sums(graph: Graph, mask: np.ndarray, rows: np.ndarray, zero: Node) -> np.ndarray:
    """Product of a mask, shape `(m, n)`, and an array, shape `(n, k)`, by sums of rows."""
    chosen = [frozenset(np.flatnonzero([x.data == 1 for x in row]).tolist()) for row in mask]
    known: dict[frozenset[int], list[Any]] = {}
    for rest in sorted(set(chosen), key=len):
        whole, parts = rest, []
        for part in sorted(known, key=len, reverse=True):
            if part and part <= rest:
                parts.append(known[part])
                rest = rest - part
        parts += [list(rows[number]) for number in sorted(rest)]
        total = parts[0] if parts else [zero] * rows.shape[1]
        for part in parts[1:]:
            total = [add(graph, a, b) for a, b in zip(total, part, strict=True)]
        known[whole] = total
    found = np.empty((len(chosen), rows.shape[1]), dtype=object)
    for number, row in enumerate(chosen):
        found[number] = known[row]
    return found
