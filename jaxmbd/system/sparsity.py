"""Sparsity of the equations: the static graph of bodies and constraints.

Nodes are the velocities of a body, and the constraints of a joint. The equations of a node depend
only on unknowns of the node and of nodes that share a joint, a force, a coupling or a driver with
it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from ..joints.abstract import n_rows
from ..mechanism.controllers import ControllerGroup
from ..mechanism.elements import AbstractElementGroup, FrameElements, JointElements
from ..mechanism.mechanism import Mechanism

if TYPE_CHECKING:
    from .abstract import AbstractSystem


@dataclass(frozen=True)
class SparsityPattern:
    """Nodes of the unknowns of an implicit step, and their dependence on one another.

    - `velocities`: node of each velocity. Nodes of velocities have the numbers 0, 1, ….
    - `constraints`: node of each constraint; these nodes follow, in the order of the constraints.
    - `elements`: nodes that share one joint, force, coupling or driver. The equations of motion and
      the constraints of each of these nodes may depend on the unknowns of all of them.
    - `supports`: for each node of constraints, the nodes of velocities that can satisfy them while
      all others are at rest.
    """

    velocities: tuple[int, ...]
    constraints: tuple[int, ...]
    elements: tuple[tuple[int, ...], ...]
    supports: tuple[tuple[int, ...], ...]


class _Bodies:
    """Bodies as nodes; the ground is not a node."""

    def __init__(self, mechanism: Mechanism):
        self.topology = mechanism.topology
        own = np.arange(mechanism.n_bodies + 1)
        self.carriers = np.concatenate([own, mechanism.port_bodies.array]) - 1
        self.groups = mechanism.joints

    def of_ports(self, ports: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted({int(self.carriers[port]) for port in ports} - {-1}))

    def of_joint(self, group: int, row: int) -> tuple[int, ...]:
        joints = self.groups[group]
        return self.of_ports((joints.first.index[row], joints.second.index[row]))

    def support(self, group: int, row: int) -> tuple[int, ...]:
        """Bodies that can satisfy the constraints of a joint while all others are at rest.

        For a tree joint this is its child body, for a joint that closes a loop the bodies of the
        loop.
        """
        joints = self.groups[group]
        if joints.in_tree:
            return (joints.children.index[row],)
        depths, parents = self.topology.depths, self.topology.parents
        first, second = (
            int(self.carriers[rows.index[row]]) for rows in (joints.first, joints.second)
        )
        loop = []
        while first != second:
            if depths[first + 1] < depths[second + 1]:
                first, second = second, first
            loop.append(first)
            first = int(parents[first]) - 1
        return tuple(loop)


def body_sparsity(system: "AbstractSystem") -> SparsityPattern:
    """Sparsity in coordinates of bodies, with velocities `[V of each body, η̇, rotors]`.

    Every joint is a constraint.
    """
    mechanism = system.mechanism
    bodies, n = _Bodies(mechanism), mechanism.n_bodies
    rotors = [(group.group, row) for group in mechanism.rotors for row in group.rows.index]
    n_nodes = n + len(rotors)
    elements, supports, constraints = [], [], []

    def constrain(nodes: tuple[int, ...], support: tuple[int, ...], count: int = 1) -> None:
        node = n_nodes + len(supports)
        constraints.extend([node] * count)
        elements.append((*nodes, node))
        supports.append(support)

    for g in system.constrained:
        count = n_rows(mechanism.joints[g].joint)
        for row in range(len(mechanism.joints[g]) if count else 0):
            constrain(bodies.of_joint(g, row), bodies.support(g, row), count)
    for coupling in mechanism.couplings:
        rows = zip(coupling.rows.index, coupling.source_rows.index, strict=True)
        for own, source in rows:
            ends = (coupling.group, own), (coupling.source_group, source)
            nodes, support = (
                tuple(sorted({node for end in ends for node in of(*end)}))
                for of in (bodies.of_joint, bodies.support)
            )
            constrain(nodes, support)
    for driver in mechanism.drivers:
        for row in driver.rows.index:
            constrain(bodies.of_joint(driver.group, row), bodies.support(driver.group, row))
    for k, (g, row) in enumerate(rotors):
        constrain((*bodies.of_joint(g, row), n + k), (n + k,))
    for group in mechanism.elements:
        elements.extend(_connected(group, bodies))
    elastic = [
        row for group in mechanism.bodies for row in np.repeat(group.rows.array, group.n_elastic)
    ]
    twists = np.repeat(np.arange(n), 6)
    velocities = [int(node) for node in (*twists, *elastic, *range(n, n_nodes))]
    connected = tuple(sorted({element for element in elements if len(element) > 1}))
    return SparsityPattern(tuple(velocities), tuple(constraints), connected, tuple(supports))


@singledispatch
def _connected(group: AbstractElementGroup, bodies: _Bodies) -> list[tuple[int, ...]]:
    """Bodies that each element of a group connects."""
    return []  # A field acts on each body by itself.


@_connected.register
def _(group: FrameElements, bodies: _Bodies) -> list[tuple[int, ...]]:
    by_element = zip(*(rows.index for rows in group.ports), strict=True)
    return [bodies.of_ports(ports) for ports in by_element]


@_connected.register
def _(group: JointElements, bodies: _Bodies) -> list[tuple[int, ...]]:
    return [bodies.of_joint(group.group, row) for row in group.rows.index]


@_connected.register
def _(group: ControllerGroup, bodies: _Bodies) -> list[tuple[int, ...]]:
    nodes = {node for joint in group.joints for node in bodies.of_joint(*joint)}
    return [tuple(sorted(nodes | {*bodies.of_ports(group.ports)}))]
