"""The joint graph: body rows, spanning tree and loops, computed once on the host."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import ModelError
from ..joints import AbstractJoint
from ..model.frame import GROUND
from ..model.model import unknown

Edge = tuple[str, str, bool]  # Joint, other body, whether that is the predecessor.


@dataclass(frozen=True)
class TreeEdge:
    """The tree joint of a body, the row of its parent, and whether the body is the predecessor."""

    joint: str
    parent: int
    reversed: bool


@dataclass(frozen=True)
class Topology:
    """Rows of the bodies and the spanning tree, static and hashable.

    Row 0 is the ground; the bodies follow in depth-first order, so that a parent comes before its
    children and a subtree is a run of consecutive rows.

    - `bodies`: names by row, `bodies[0] == "ground"`.
    - `edges`: the tree edges of the bodies, for rows 1, 2, ….
    - `loops`: names of the joints outside the tree, in sorted order.
    - `floating`: names of the bodies with an added free joint, which has the name of the body.
    """

    bodies: tuple[str, ...]
    edges: tuple[TreeEdge, ...]
    loops: tuple[str, ...]
    floating: tuple[str, ...]

    @property
    def n_bodies(self) -> int:
        """Number of bodies, without the ground."""
        return len(self.edges)

    @cached_property
    def row(self) -> dict[str, int]:
        """Row of each body."""
        return {name: i for i, name in enumerate(self.bodies)}

    @cached_property
    def parents(self) -> np.ndarray:
        """Parent row of rows 1, 2, …, shape `(n_bodies,)`."""
        return np.asarray([edge.parent for edge in self.edges], dtype=np.int32)

    @cached_property
    def depths(self) -> np.ndarray:
        """Number of joints between the ground and each row, shape `(n_bodies + 1,)`."""
        depth = np.zeros(self.n_bodies + 1, dtype=np.int32)
        for i, parent in enumerate(self.parents, start=1):
            depth[i] = depth[parent] + 1
        return depth

    @cached_property
    def subtree_ends(self) -> np.ndarray:
        """Row after the last descendant of rows 1, 2, …, shape `(n_bodies,)`."""
        end = np.arange(1, self.n_bodies + 2, dtype=np.int32)
        for i in range(self.n_bodies, 0, -1):
            parent = self.parents[i - 1]
            end[parent] = max(end[parent], end[i])
        return end[1:]


def find_topology(
    bodies: Mapping[str, object],
    joints: Mapping[str, AbstractJoint],
    cut: Sequence[str] = (),
    preferred: Collection[str] = (),
) -> Topology:
    """Spanning tree of shortest paths from the ground, visited in sorted order of joint names.

    Joints named in `preferred` come first, and do not count in the length of a path: they are tree
    joints, unless they alone close a loop.

    Joints named in `cut`, and constraints that cannot be tree joints, are not edges of the tree. A
    part of the mechanism that is not connected to the ground floats: one of its bodies gets a free
    joint, preferably a body that is not a joint's successor, then the first body by name.

    **Raises** `ModelError` if the free joint would have the name of another joint, and for names in
    `cut` that are unknown or of joints that close no loop.
    """
    for name in cut:
        if name not in joints:
            raise ModelError(unknown("cut: unknown joint", name, joints))
    usable = [n for n in sorted(joints) if joints[n].can_be_tree_joint and n not in cut]
    neighbours: dict[str, list[Edge]] = {name: [] for name in (GROUND, *bodies)}
    for name in usable:
        first, second = joints[name].predecessor.body, joints[name].successor.body
        neighbours[first].append((name, second, False))
        neighbours[second].append((name, first, True))

    tree = _Tree(neighbours, frozenset(preferred))
    tree.grow(GROUND)
    floating, root, children = [], tree.root, tree.children
    carried = {joints[name].successor.body for name in usable}
    for name in sorted(bodies, key=lambda name: (name in carried, name)):
        if name not in root:
            floating.append(name)
            children[GROUND].append((name, name, False))
            tree.grow(name)
    _check_cuts(joints, cut, root)
    for name in floating:
        if name in joints:
            raise ModelError(
                f"body {name!r} floats, and its free joint would have the name of the joint "
                f"{name!r}; rename one, or add a Free joint between the ground and the body"
            )

    for own in children.values():  # By name, floating bodies last in their order.
        own.sort(key=lambda edge: (edge[0] in floating, "" if edge[0] in floating else edge[0]))
    order, edges = [GROUND], []
    stack = [(0, child) for child in reversed(children[GROUND])]
    while stack:
        parent, (joint, body, is_reversed) = stack.pop()
        row = len(order)
        order.append(body)
        edges.append(TreeEdge(joint, parent, is_reversed))
        stack.extend((row, child) for child in reversed(children[body]))
    loops = tuple(name for name in sorted(joints) if name not in tree.used)
    return Topology(tuple(order), tuple(edges), loops, tuple(floating))


class _Tree:
    """A spanning tree under construction.

    - `root`: for each body that the tree has reached, the root of its connected part.
    - `used`: names of tree joints; `children`: tree edges by parent.
    """

    def __init__(self, neighbours: dict[str, list[Edge]], preferred: frozenset[str]):
        self.neighbours = neighbours
        self.preferred = preferred
        self.root: dict[str, str] = {}
        self.used: set[str] = set()
        self.children: dict[str, list[Edge]] = {name: [] for name in neighbours}

    def grow(self, start: str) -> None:
        """Add all bodies that joints connect to `start`, by breadth-first search."""
        self.root[start] = start
        queue, chain = deque([start]), [start]
        while queue or chain:
            # Bodies behind preferred joints come first, before other paths reach them.
            added = self._add(chain.pop(), True) if chain else self._add(queue.popleft(), False)
            queue.extend(added)
            chain.extend(added)

    def _add(self, body: str, preferred_only: bool) -> list[str]:
        """Add the neighbours of a body, or only those by preferred joints."""
        added = []
        for joint, other, is_reversed in self.neighbours[body]:
            allowed = joint in self.preferred or not preferred_only
            if other not in self.root and allowed:
                self.root[other] = self.root[body]
                self.used.add(joint)
                self.children[body].append((joint, other, is_reversed))
                added.append(other)
        return added


def _check_cuts(
    joints: Mapping[str, AbstractJoint], cut: Sequence[str], root: Mapping[str, str]
) -> None:
    """**Raises** `ModelError` for a cut joint whose bodies are not connected without it."""
    for name in cut:
        ends = joints[name].predecessor.body, joints[name].successor.body
        roots = [root[body] for body in ends]
        if joints[name].can_be_tree_joint and roots[0] != roots[1]:
            loose = ends[1] if roots[1] != GROUND else ends[0]
            raise ModelError(
                f"cut: joint {name!r} closes no loop: without it and the other joints in cut, body "
                f"{loose!r} would float; cut one joint of each loop, and no others"
            )
