"""Contents of the picture of a joint graph."""

from typing import NamedTuple

from ...mechanism.mechanism import Mechanism


class Joint(NamedTuple):
    """A joint or coupling: its name and label, and the rows of its ends.

    Joints that close loops connect two bodies. Couplings connect the labels of two joints. Rows of
    labels follow the rows of bodies: tree joints in the order of the bodies that they reach, then
    loops. (Row 0, the ground, has an empty label, so that rows of bodies and labels agree.)
    """

    name: str
    label: str
    start: int
    end: int


class Graph(NamedTuple):
    """Bodies by row, row 0 the ground; the tree joint that reaches each row; loops; couplings.

    - `parents`: rows of the parents of rows 1, 2, …
    - `floating`: rows of the bodies that no joint connects to the ground.
    """

    bodies: list[str]
    tree: list[Joint]
    parents: list[int]
    floating: set[int]
    loops: list[Joint]
    couplings: list[Joint]


def graph_of(mechanism: Mechanism) -> Graph:
    """The joint graph of a mechanism, with labels like "crank · Revolute"."""
    topology = mechanism.topology
    n = len(topology.bodies)
    kinds = {name: type(group.joint).__name__ for group in mechanism.joints for name in group.names}
    driven = {
        mechanism.joints[group.group].names[row]
        for group in mechanism.drivers
        for row in group.rows.index
    }
    carriers = [*range(n), *mechanism.port_bodies.index]

    def label(joint: str) -> str:
        if joint in topology.floating:
            return "floats"
        return f"{joint} · {kinds[joint]}" + (", driven" if joint in driven else "")

    tree = [Joint("", "", 0, 0)]
    for row, edge in enumerate(topology.edges, start=1):
        tree.append(Joint(edge.joint, label(edge.joint), edge.parent, row))
    loops = []
    for name in topology.loops:
        g, row = mechanism.find_joint(name)
        group = mechanism.joints[g]
        ends = (carriers[group.first.index[row]], carriers[group.second.index[row]])
        loops.append(Joint(name, label(name), *ends))
    labelled = {joint.name: n + row for row, joint in enumerate([*tree, *loops])}
    return Graph(
        list(topology.bodies),
        tree,
        [edge.parent for edge in topology.edges],
        {row for row, joint in enumerate(tree) if joint.name in topology.floating},
        loops,
        _couplings(mechanism, labelled),
    )


def _couplings(mechanism: Mechanism, labelled: dict[str, int]) -> list[Joint]:
    couplings = []
    for group in mechanism.couplings:
        kind = type(group.coupling).__name__
        sources = mechanism.joints[group.source_group].names
        joints = mechanism.joints[group.group].names
        for name, row, source in zip(
            group.names, group.rows.index, group.source_rows.index, strict=True
        ):
            ends = labelled[sources[source]], labelled[joints[row]]
            couplings.append(Joint(name, f"{name} · {kind}", *ends))
    return couplings


__all__ = ["Graph", "Joint", "graph_of"]
