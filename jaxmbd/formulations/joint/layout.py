"""Where each joint's numbers stand in `q` and `v`."""

from dataclasses import dataclass

import numpy as np

from ...mechanism.mechanism import Mechanism
from ...mechanism.rows import Rows
from .tree_recursion import ROOT, TreeRecursion


@dataclass(frozen=True)
class Layout:
    """Joints in the order of the bodies they reach, each with all its entries together.

    - `groups`: the groups of tree joints.
    - `coordinates`, `velocities`: for each of them the entries of its joints in `q` and `v`.
    - `bodies`: for each entry of `v` the row, less one, of the body its joint reaches.
    - `recursion`: velocities as nodes, each after the one that its joint is carried by.
    - `last_velocities`: for each body the last velocity that moves it; `ROOT` where none does.
    """

    nq: int
    nv: int
    groups: tuple[int, ...]
    coordinates: tuple[Rows, ...]
    velocities: tuple[Rows, ...]
    bodies: Rows
    recursion: TreeRecursion
    last_velocities: tuple[int, ...]


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

    parents, movers = [], [ROOT]
    for parent, width in zip(mechanism.topology.parents, nv, strict=True):
        mover = movers[parent]
        for _ in range(width):
            parents.append(mover)
            mover = len(parents) - 1
        movers.append(mover)
    return Layout(
        nq=int(nq.sum()),
        nv=int(nv.sum()),
        groups=groups,
        coordinates=tuple(entries(nq, g, mechanism.joints[g].joint.sizes()[0]) for g in groups),
        velocities=tuple(entries(nv, g, mechanism.joints[g].joint.sizes()[1]) for g in groups),
        bodies=Rows.of(np.repeat(np.arange(mechanism.n_bodies), nv)),
        recursion=TreeRecursion.of(parents),
        last_velocities=tuple(movers[1:]),
    )
