"""Layout of the joints' entries in `q` and `v`."""

from dataclasses import dataclass

import numpy as np

from ...mechanism.mechanism import Mechanism
from ...mechanism.rows import Rows
from .tree_recursion import ROOT, TreeRecursion


@dataclass(frozen=True)
class Layout:
    """Joints in the order of their child bodies; the entries of a joint are consecutive.

    - `groups`: the groups of tree joints.
    - `coordinates`, `velocities`: for each group, the entries of its joints in `q` and `v`.
    - `bodies`: for each entry of `v`, the row of the joint's child body, without the ground.
    - `recursion`: the tree whose nodes are the velocities.
    - `last_velocities`: the last degree of freedom of each body; `ROOT` for bodies without one.
    - `roots`: for each body, the row of the first body of its branch, which a joint connects with
      the ground, without the ground.
    """

    nq: int
    nv: int
    groups: tuple[int, ...]
    coordinates: tuple[Rows, ...]
    velocities: tuple[Rows, ...]
    bodies: Rows
    recursion: TreeRecursion
    last_velocities: tuple[int, ...]
    roots: Rows


def lay_out(mechanism: Mechanism) -> Layout:
    """The layout of a mechanism's tree joints."""
    groups = tuple(g for g, group in enumerate(mechanism.joints) if group.in_tree)
    nq = np.zeros(mechanism.n_bodies, dtype=int)
    nv = np.zeros(mechanism.n_bodies, dtype=int)
    for g in groups:
        group = mechanism.joints[g]
        nq[group.children.array], nv[group.children.array], _ = group.joint.sizes()

    def entries(widths: np.ndarray, g: int, width: int) -> Rows:
        first = np.concatenate([[0], np.cumsum(widths)])[mechanism.joints[g].children.array]
        return Rows.of((first[:, None] + np.arange(width)).ravel())

    parents, last = [], [ROOT]
    for parent, width in zip(mechanism.topology.parents, nv, strict=True):
        velocity = last[parent]
        for _ in range(width):
            parents.append(velocity)
            velocity = len(parents) - 1
        last.append(velocity)
    roots: list[int] = []
    for body, parent in enumerate(mechanism.topology.parents):
        roots.append(body if parent == 0 else roots[parent - 1])
    return Layout(
        nq=int(nq.sum()),
        nv=int(nv.sum()),
        groups=groups,
        coordinates=tuple(entries(nq, g, mechanism.joints[g].joint.sizes()[0]) for g in groups),
        velocities=tuple(entries(nv, g, mechanism.joints[g].joint.sizes()[1]) for g in groups),
        bodies=Rows.of(np.repeat(np.arange(mechanism.n_bodies), nv)),
        recursion=TreeRecursion.of(parents),
        last_velocities=tuple(last[1:]),
        roots=Rows.of(roots),
    )
