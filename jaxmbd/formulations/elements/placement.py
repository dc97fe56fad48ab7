"""Which particles stand for a body, and which of them bodies share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import ModelError
from ...joints import AbstractJoint
from ...model import Model
from ...model.frame import GROUND
from ...model.model import unknown
from ...model.values import as_leaf
from ...system.mechanism import Mechanism
from ...system.rows import Rows


@dataclass(frozen=True)
class Family:
    """Bodies with the same number of particles, as many of them at joints or placed by hand.

    - `bodies`: their rows, less one.
    - `given`: for each of them the rows of its given points in the table of points, the offsets of
      all ports followed by points placed by hand.
    - `nodes`: for each of them the nodes of its particles, fixed ones behind those that move.
    """

    n_given: int
    n_particles: int
    bodies: Rows
    given: Rows
    nodes: Rows


@dataclass(frozen=True)
class Placement:
    """Nodes of all particles.

    - `owners`: for each node that moves, where it stands among the particles of the families, one
      after the other.
    - `fixed`: ports of the ground at which the nodes that do not move are.
    - `merged`: names of the joints whose two ends are one node.
    """

    families: tuple[Family, ...]
    owners: Rows
    fixed: Rows
    merged: frozenset[str]

    @property
    def n_nodes(self) -> int:
        """Number of nodes that move."""
        return len(self.owners)


Entry = str | Float[Array, "3"]  # A joint's name, or coordinates in the body frame [m].


def check_particles(
    model: Model, given: Mapping[str, Sequence[Any]], counts: tuple[int, ...]
) -> dict[str, tuple[Entry, ...]]:
    """Particles placed by hand, points as arrays.

    **Raises** `ModelError`, naming the body, for a wrong number of them and unknown joints.
    """
    found = {}
    for body, entries in given.items():
        if body not in model.bodies:
            raise ModelError(
                unknown("PointCoordinates: particles: unknown body", body, model.bodies)
            )
        who = f"PointCoordinates: particles of body {body!r}"
        if len(entries) not in counts:
            listed = " or ".join(map(str, counts))
            raise ModelError(f"{who}: there must be {listed} of them, got {len(entries)}")
        for entry in entries:
            if isinstance(entry, str) and entry not in _joints_of(model, body):
                raise ModelError(f"{who}: {entry!r} is no joint of it that holds a point")
        found[body] = tuple(
            entry if isinstance(entry, str) else as_leaf(entry, (3,), who) for entry in entries
        )
    return found


def holds_point(joint: AbstractJoint) -> bool:
    """Whether a joint keeps a point of one body on a point of the other one."""
    return len(joint.translation) == 0


def _joints_of(model: Model, body: str) -> list[str]:
    return [
        name
        for name in sorted(model.joints)
        if holds_point(model.joints[name])
        and body in (model.joints[name].predecessor.body, model.joints[name].successor.body)
    ]


def place(
    model: Model, mechanism: Mechanism, by_hand: Mapping[str, tuple[Entry, ...]], count: int
) -> tuple[Placement, list[Float[Array, "3"]]]:
    """Particles at joint centres, that of the tree joint first, then by name; or by hand.

    Returns the points placed by hand beside it.
    """
    topology = mechanism.topology
    ports = {name: row for row, name in enumerate(mechanism.port_names) if name is not None}
    first_by_hand = len(mechanism.port_bodies)
    points: list[Any] = []
    slots: dict[str, list[str | int | None]] = {}  # A joint, a point by hand, or one to be chosen.
    for edge, body in zip(topology.edges, topology.bodies[1:], strict=True):
        entries: Sequence[Any] = by_hand.get(body, ())
        if not entries:
            names = _joints_of(model, body)
            entries = sorted(names, key=lambda name: (name != edge.joint, name))[:count]
        own: list[str | int | None] = []
        for entry in entries:
            if isinstance(entry, str):
                own.append(entry)
            else:
                own.append(first_by_hand + len(points))
                points.append(entry - mechanism_com(model, body))
        missing = 0 if body in by_hand else count - len(own)
        slots[body] = own + [None] * missing
    merged = set()
    for name, joint in model.joints.items():
        ends = joint.predecessor.body, joint.successor.body
        if holds_point(joint) and all(end == GROUND or name in slots[end] for end in ends):
            merged.add(name)
    nodes, owners, fixed = _number(model, slots, merged, ports)
    families = {}
    for row, body in enumerate(topology.bodies[1:]):
        own = slots[body]
        key = (sum(slot is not None for slot in own), len(own))
        families.setdefault(key, []).append((row, body))
    made, where = [], {}
    skip = 1 + mechanism.n_bodies
    for (n_given, n_particles), members in families.items():
        given = [
            slot if isinstance(slot, int) else ports[_port(model, slot, body)] - skip
            for _, body in members
            for slot in slots[body]
            if slot is not None
        ]
        for _, body in members:
            for k in range(n_particles):
                where[body, k] = len(where)
        made.append(
            Family(
                n_given,
                n_particles,
                Rows.of(row for row, _ in members),
                Rows.of(given),
                Rows.of(nodes[body, k] for _, body in members for k in range(n_particles)),
            )
        )
    owned = Rows.of(where[owner] for owner in owners)
    return Placement(tuple(made), owned, Rows.of(fixed), frozenset(merged)), points


def mechanism_com(model: Model, body: str) -> Float[Array, "3"]:
    """Centre of mass of a body, which its element's coordinates start from."""
    return jnp.asarray(model.bodies[body].com)


def _port(model: Model, joint: str, body: str) -> str:
    first = model.joints[joint].predecessor.body == body
    return f"{joint}.{'predecessor' if first else 'successor'}"


def _number(
    model: Model,
    slots: Mapping[str, Sequence[str | int | None]],
    merged: set[str],
    ports: Mapping[str, int],
) -> tuple[dict[tuple[str, int], int], list[tuple[str, int]], list[int]]:
    """Nodes of the particles, the first particle of each moving node, and ports of the others."""
    moving: dict[Any, int] = {}
    owners, still, nodes = [], {}, {}
    for body, own in slots.items():
        for k, slot in enumerate(own):
            shared = isinstance(slot, str) and slot in merged
            joint = model.joints[slot] if shared else None
            if joint is not None and GROUND in (joint.predecessor.body, joint.successor.body):
                still.setdefault(slot, len(still))
                nodes[body, k] = ("fixed", slot)
                continue
            key = slot if shared else (body, k)
            if key not in moving:
                moving[key] = len(moving)
                owners.append((body, k))
            nodes[body, k] = moving[key]
    numbered = {
        place: len(moving) + still[node[1]] if isinstance(node, tuple) else node
        for place, node in nodes.items()
    }
    return numbered, owners, [ports[_port(model, name, GROUND)] for name in still]


__all__ = ["Family", "Placement", "check_particles", "holds_point", "place"]
