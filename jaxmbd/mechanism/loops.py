"""Loops of the joint graph, and blocks of loops that move independently of one another."""

from collections.abc import Sequence
from dataclasses import dataclass

from .mechanism import Mechanism


@dataclass(frozen=True)
class Block:
    """Loops that share coordinates of joints: a "superelement" of Omar (2014), section 4.

    The constraints of one block do not restrict the joints of other blocks.

    - `joints`: movable joints of the spanning tree, in the order of their child bodies.
    - `loop_constraints`: joints that close loops; `couplings`: couplings of the block's joints.
    """

    joints: tuple[str, ...]
    loop_constraints: tuple[str, ...]
    couplings: tuple[str, ...]


def cycles(mechanism: Mechanism) -> dict[str, tuple[str, ...]]:
    """For each joint that closes a loop, the tree joints of the loop.

    The joints are ordered along the loop, from the predecessor of the joint to its successor.
    """
    edges, loops = mechanism.topology.edges, {}
    for name, (first, second) in _ends(mechanism).items():
        from_first, from_second = [], []
        while first != second:
            # Parents precede their children: the body of the larger row is not an ancestor.
            if first > second:
                from_first.append(edges[first - 1].joint)
                first = edges[first - 1].parent
            else:
                from_second.append(edges[second - 1].joint)
                second = edges[second - 1].parent
        loops[name] = (*from_first, *reversed(from_second))
    return {name: loops[name] for name in mechanism.topology.loops}


def _ends(mechanism: Mechanism) -> dict[str, tuple[int, int]]:
    """Rows of the two bodies of every joint that closes a loop."""
    skip, bodies, ends = 1 + mechanism.n_bodies, mechanism.port_bodies.index, {}
    for group in mechanism.joints:
        if not group.in_tree:
            for name, *ports in zip(
                group.names, group.first.index, group.second.index, strict=True
            ):
                first, second = (bodies[port - skip] for port in ports)
                ends[name] = (first, second)
    return ends


def blocks(mechanism: Mechanism) -> tuple[Block, ...]:
    """Blocks of loops and couplings that share movable joints of the tree.

    Blocks are in the order of their first joints.
    """
    movable = {
        name
        for group in mechanism.joints
        if group.in_tree and group.joint.sizes()[1] > 0
        for name in group.names
    }
    joints = [edge.joint for edge in mechanism.topology.edges if edge.joint in movable]
    loops, couplings = cycles(mechanism), _coupled(mechanism)
    number = {name: i for i, name in enumerate([*joints, *loops])}
    related = [[number[j] for j in (name, *loop) if j in number] for name, loop in loops.items()]
    related += [
        [len(number) + k, *map(number.__getitem__, js)] for k, js in enumerate(couplings.values())
    ]
    names, n, m = [*number, *couplings], len(joints), len(number)
    return tuple(
        Block(
            joints=tuple(names[i] for i in block if i < n),
            loop_constraints=tuple(names[i] for i in block if n <= i < m),
            couplings=tuple(names[i] for i in block if i >= m),
        )
        for block in _connected(len(names), related)
        if block[-1] >= n  # A joint without a loop or a coupling is not a block.
    )


def block_in_words(mechanism: Mechanism, name: str) -> str:
    """Names of all joints in the block of a joint or coupling, as text for messages."""
    names, shown = (name,), 8
    for block in blocks(mechanism):
        members = block.joints + block.loop_constraints
        if name in members + block.couplings:
            names = members
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(map(repr, names[:shown])) + more


def _coupled(mechanism: Mechanism) -> dict[str, tuple[str, str]]:
    """The two joints that each coupling relates."""
    joints = mechanism.joints
    return {
        name: (joints[group.group].names[row], joints[group.source_group].names[source])
        for group in mechanism.couplings
        for name, row, source in zip(
            group.names, group.rows.index, group.source_rows.index, strict=True
        )
    }


def _connected(n: int, related: Sequence[Sequence[int]]) -> list[list[int]]:
    """Connected components of 0 … n - 1, where members of one list are connected; sorted."""
    above = list(range(n))

    def root(i: int) -> int:
        while above[i] != i:
            above[i] = above[above[i]]
            i = above[i]
        return i

    for first, *others in related:
        for other in others:
            low, high = sorted((root(first), root(other)))
            above[high] = low
    components: dict[int, list[int]] = {}
    for i in range(n):
        components.setdefault(root(i), []).append(i)
    return list(components.values())
