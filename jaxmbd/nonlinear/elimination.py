"""Elimination order of unknowns from their sparsity pattern, computed once on the host.

A pivot is a set of nodes that are eliminated together: a body with the multipliers of the joint
that carries it, whose block [[H, Bᵀ], [B, 0]] is regular. Multipliers of loop constraints are
eliminated after the bodies of the loop. Each stage eliminates pivots that share no equation,
pivots with the fewest neighbours first (multiple minimum degree, Liu 1985). A tree takes as many
stages as it has levels, a chain the logarithm of its length. The remaining nodes are one dense
pivot.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..system.sparsity import SparsityPattern

# Largest number of remaining unknowns that are eliminated together.
LAST = 40


@dataclass(frozen=True)
class Front:
    """One pivot: its eliminated nodes, and the later nodes that their equations depend on."""

    own: tuple[int, ...]
    boundary: tuple[int, ...]


def neighbours(pattern: SparsityPattern) -> list[set[int]]:
    """For each node, the nodes whose equations depend on its unknowns, itself included."""
    n = 1 + max((*pattern.velocities, *pattern.constraints))
    adjacent = [{node} for node in range(n)]
    for element in pattern.elements:
        for node in element:
            adjacent[node].update(element)
    return adjacent


def eliminate(pattern: SparsityPattern, sizes: Sequence[int]) -> list[list[Front]]:
    """Fronts of each stage; `sizes` are the numbers of unknowns of the nodes."""
    coupled = neighbours(pattern)
    left, waiting = _pivots(pattern)
    where = {node: first for first, own in left.items() for node in own}

    def size(nodes: Iterable[int]) -> int:
        return sum(sizes[node] for node in nodes)

    def independent() -> list[Front]:
        candidates = []
        for first, own in left.items():
            if not any(node in where for node in waiting[first]):
                boundary = set().union(*(coupled[node] for node in own)).difference(own)
                candidates.append((size(boundary), first, boundary))
        candidates.sort(key=lambda candidate: candidate[:2])
        fronts, taken, least = [], set(), candidates[0][0]
        for degree, first, boundary in candidates:
            # Pivots of high degree wait for later stages.
            if first not in taken and degree <= max(least, 2 * size(left[first])):
                fronts.append(Front(left[first], tuple(sorted(boundary))))
                taken.update(where[node] for node in boundary)
        return fronts

    stages = []
    while where:
        rest = tuple(sorted(where))
        fronts = [Front(rest, ())] if size(rest) <= LAST else independent()
        for front in fronts:
            for node in front.boundary:
                coupled[node].update(front.boundary)
                coupled[node].difference_update(front.own)
            for node in front.own:
                left.pop(where.pop(node), None)
        stages.append(fronts)
    return stages


def _pivots(
    pattern: SparsityPattern,
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Nodes of each pivot, and nodes that are eliminated before it, by its first node."""
    n = 1 + max(pattern.velocities)
    own = {node: [node] for node in range(n)}
    waiting: dict[int, tuple[int, ...]] = dict.fromkeys(range(n), ())
    for node, support in enumerate(pattern.supports, start=n):
        if len(support) == 1:
            own[support[0]].append(node)
        else:
            own[node], waiting[node] = [node], support
    return {first: tuple(nodes) for first, nodes in own.items()}, waiting
