"""Order of computation: values are computed shortly before they are used.

Programs of scalars begin in the order of the arrays that they were traced from, all entries of one
after another. Most of these values would leave the registers before they are used.
"""

from collections.abc import Sequence

from .graph import Node


def by_use(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, those that no other one of them uses in the given order, each after its operands.

    Operands that need more registers come first (Sethi and Ullman 1970).
    """
    within = {x.index for x in nodes}
    used: set[int] = set()
    operands: dict[int, list[Node]] = {}
    registers: dict[int, int] = {}
    for x in sorted(nodes, key=lambda x: x.index):
        own = {y.index: y for y in x.args if y.index in within}
        used.update(own)
        below = sorted(own.values(), key=lambda y: registers[y.index])
        operands[x.index] = below
        counts = [registers[y.index] for y in below]
        registers[x.index] = max((n + k for k, n in enumerate(reversed(counts))), default=1)
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


__all__ = ["by_use"]
