"""Placement of the particles of bodies, and of the particles that bodies share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...bodies import RigidBody
from ...errors import ModelError
from ...joints import AbstractJoint
from ...mechanism.groups import IndexSet
from ...mechanism.mechanism import Mechanism
from ...model import Model
from ...model.frame import GROUND
from ...model.model import unknown
from ...model.values import as_leaf, is_concrete

# Masses of particles that are equivalent to a rigid body ------------------------------------------
#
# Primary particles, which determine the pose of the body and are not on one line or plane, and the
# midpoints between every two of them have the mass, the centre and the second moments of the body.
# Some masses may be negative. Source: Attia, "equivalent particles", eq. (2.1) and the remark on
# spatial bodies.
#
# In a plane Attia uses one midpoint, between the first and the third particle, and matches the
# moment of inertia only. The solution is unique, but its mass matrix need not be positive definite,
# and for a uniform rod hinged at its ends it never is. Here two more midpoints, with two more
# conditions, make the second moments equal in both directions. The motion does not depend on their
# distribution, since |ḃ₁| = |ḃ₂| and ḃ₁ · ḃ₂ = 0 in a rigid motion.


def from_primary(k: int) -> np.ndarray:
    """S: maps the k primary particles to all particles, the primary ones first, then midpoints."""
    i, j = np.triu_indices(k, 1)
    return np.vstack([np.eye(k), 0.5 * (np.eye(k)[i] + np.eye(k)[j])])


def masses(
    points: Float[Array, "k d"], mass: Float[Array, ""], second: Float[Array, "d d"]
) -> Float[Array, "n"]:
    """Masses [kg] of k = d + 1 primary particles, then of the midpoints between every two.

    Σ m_i = m, Σ m_i s_i = 0, Σ m_i s_i s_iᵀ = A: 10 conditions in space (d = 3), 6 in a plane, 3 on
    a line. Points [m] and the `second` moments A [kg m²] are about the centre of mass. The result
    is not finite if the points lie in one plane (line, point).
    """
    k, d = points.shape
    s = jnp.asarray(from_primary(k), dtype=points.dtype) @ points
    i, j = np.triu_indices(d)
    rows = jnp.concatenate([jnp.ones_like(s[:, :1]), s, s[:, i] * s[:, j]], axis=1).T
    target = jnp.concatenate([mass[None], jnp.zeros(d, dtype=points.dtype), second[i, j]])
    return jnp.linalg.solve(rows, target)


def primary_mass(
    points: Float[Array, "k d"], mass: Float[Array, ""], second: Float[Array, "d d"]
) -> Float[Array, "k k"]:
    """Mass matrix M = Sᵀ diag(m) S of the primary particles, the same for each direction."""
    S = jnp.asarray(from_primary(points.shape[0]), dtype=points.dtype)
    return S.T @ (masses(points, mass, second)[:, None] * S)


@dataclass(frozen=True)
class Family:
    """Bodies with equal numbers of particles, and of particles at joints or placed by hand.

    - `bodies`: rows of the bodies, without the ground.
    - `given`: for each given point of a body, and each body, its row in the table of points: the
      offsets of all ports, followed by the points placed by hand.
    - `nodes`: for each particle of a body, and each body, its node; moving nodes come first.
    """

    bodies: IndexSet
    given: tuple[IndexSet, ...]
    nodes: tuple[IndexSet, ...]

    @property
    def n_given(self) -> int:
        """Number of particles at joints or placed by hand."""
        return len(self.given)

    @property
    def n_particles(self) -> int:
        """Number of primary particles."""
        return len(self.nodes)

    def points(self, table: Float[Array, "_n 3"]) -> Float[Array, "_n_bodies g 3"]:
        """Positions in their bodies of particles at joints or placed by hand, from all points."""
        points = [rows.take(table) for rows in self.given]
        if not points:
            return jnp.zeros((len(self.bodies), 0, 3), table.dtype)
        return jnp.stack(points, axis=1)


@dataclass(frozen=True)
class Placement:
    """Nodes of all particles.

    - `owners`: for each moving node, its position among the particles, by family, then by
      particle, then by body.
    - `fixed`: ports of the ground at the fixed nodes.
    - `merged`: names of the joints whose two ends share one node.
    """

    families: tuple[Family, ...]
    owners: IndexSet
    fixed: IndexSet
    merged: frozenset[str]

    @property
    def n_nodes(self) -> int:
        """Number of moving nodes."""
        return len(self.owners)


Entry = str | Float[Array, "3"]  # A joint's name, or coordinates in the body frame [m].


def check_particles(
    model: Model, given: Mapping[str, Sequence[Any]], counts: tuple[int, ...]
) -> dict[str, tuple[Entry, ...]]:
    """Check particles placed by hand, and convert points to arrays.

    **Raises** `ModelError`, naming the body, for a wrong number of particles and unknown joints.
    """
    checked = {}
    for body, entries in given.items():
        if body not in model.bodies:
            raise ModelError(
                unknown("PointCoordinates: particles: unknown body", body, model.bodies)
            )
        caller = f"PointCoordinates: particles of body {body!r}"
        if len(entries) not in counts:
            listed = " or ".join(map(str, counts))
            raise ModelError(f"{caller}: there must be {listed} of them, got {len(entries)}")
        for entry in entries:
            if isinstance(entry, str) and entry not in _joints_of(model, body):
                raise ModelError(f"{caller}: {entry!r} is not a joint of it that holds a point")
        names = [entry for entry in entries if isinstance(entry, str)]
        if len(set(names)) < len(names):
            raise ModelError(f"{caller}: a joint is named twice in {names}")
        checked[body] = tuple(
            entry if isinstance(entry, str) else _finite(as_leaf(entry, (3,), caller), caller)
            for entry in entries
        )
    return checked


def _finite(point: Float[Array, "3"], caller: str) -> Float[Array, "3"]:
    if is_concrete(point) and not np.all(np.isfinite(np.asarray(point))):
        raise ModelError(f"{caller}: points must be finite, got {np.asarray(point).tolist()}")
    return point


def holds_point(joint: AbstractJoint) -> bool:
    """True if a joint connects a point of one body to a point of the other one."""
    return len(joint.translation) == 0


def _joints_of(model: Model, body: str) -> list[str]:
    return [
        name
        for name in sorted(model.joints)
        if holds_point(model.joints[name])
        and body in (model.joints[name].predecessor.body, model.joints[name].successor.body)
    ]


def _candidates(model: Model, body: str, carrier: str) -> list[str]:
    """Joints of a body that hold a point, the tree joint first, then by name."""
    return sorted(_joints_of(model, body), key=lambda name: (name != carrier, name))


def independent_entries(
    model: Model, body: str, carrier: str, count: int, normal: Any = None
) -> str:
    """Particles of a body that lie in no plane, or line, for a message: joints, and points beside.

    **Arguments:** `carrier`: the tree joint; `normal`: that of the plane of motion, along the axes
    of the body.
    """
    names = _candidates(model, body, carrier)
    joints = [model.joints[name] for name in names]
    frames = [j.predecessor if j.predecessor.body == body else j.successor for j in joints]
    p = np.array([np.asarray(frame.p, float) for frame in frames]).reshape(-1, 3)
    first = p[0] if names else np.zeros(3)
    size = np.linalg.norm(p - first, axis=1).max(initial=0.0) or 1.0
    # Orthonormal directions of the points so far; that of the normal does not count.
    span = [] if normal is None else [np.asarray(normal, float)]
    entries: list[str] = [repr(name) for name in names[:1]] or ["[0.0, 0.0, 0.0]"]
    for name, point in [
        *zip(names[1:], p[1:], strict=True),
        *((None, e) for e in size * np.eye(3)),
    ]:
        d = point - first if name is not None else point
        for direction in span:
            d = d - (d @ direction) * direction
        if len(entries) < count and np.linalg.norm(d) > 0.1 * size:
            span.append(d / np.linalg.norm(d))
            beside = [float(f"{x:.3g}") + 0.0 for x in first + size * span[-1]]
            entries.append(repr(name) if name is not None else repr(beside))
    return f"[{', '.join(entries)}]"


def place(
    model: Model, mechanism: Mechanism, by_hand: Mapping[str, tuple[Entry, ...]], count: int
) -> tuple[Placement, Float[Array, "n_by_hand 3"]]:
    """Place particles at joint centres, the tree joint first, then by name; or by hand.

    Returns the placement, and the points placed by hand about the centres of mass [m].
    """
    topology = mechanism.topology
    ports = {name: row for row, name in enumerate(mechanism.port_names) if name is not None}
    first_by_hand = len(mechanism.port_bodies)
    points: list[Any] = []
    # A slot is the name of a joint, the row of a point placed by hand, or None (to be chosen).
    slots: dict[str, list[str | int | None]] = {}
    for edge, body in zip(topology.edges, topology.bodies[1:], strict=True):
        entries: Sequence[Any] = by_hand.get(body, ())
        if not entries:
            entries = _candidates(model, body, edge.joint)[:count]
        own: list[str | int | None] = []
        for entry in entries:
            if isinstance(entry, str):
                own.append(entry)
            else:
                own.append(first_by_hand + len(points))
                com = cast(RigidBody, model.bodies[body]).com  # `check_bodies` rejects others.
                points.append(entry.astype(mechanism.dtype) - com)
        missing = 0 if body in by_hand else count - len(own)
        slots[body] = own + [None] * missing
    merged = set()
    for name, joint in model.joints.items():
        ends = joint.predecessor.body, joint.successor.body
        if holds_point(joint) and all(end == GROUND or name in slots[end] for end in ends):
            merged.add(name)
    families: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for row, body in enumerate(topology.bodies[1:]):
        own = slots[body]
        key = (sum(slot is not None for slot in own), len(own))
        families.setdefault(key, []).append((row, body))
    skip = 1 + mechanism.n_bodies
    parts = []
    numbers = _Numbers(model, merged)
    for (n_given, n_particles), members in families.items():
        nodes = [
            [numbers.of(body, k, slots[body][k]) for _, body in members] for k in range(n_particles)
        ]
        given = [
            IndexSet.of(
                slot if isinstance(slot, int) else ports[_port(model, slot, body)] - skip
                for body, slot in ((body, slots[body][k]) for _, body in members)
                if slot is not None
            )
            for k in range(n_given)
        ]
        parts.append((IndexSet.of(row for row, _ in members), tuple(given), nodes))
    n_moving = len(numbers.owners)
    all_families = tuple(
        Family(
            bodies,
            given,
            tuple(
                IndexSet.of(
                    n_moving + node.number if isinstance(node, _Fixed) else node for node in row
                )
                for row in nodes
            ),
        )
        for bodies, given, nodes in parts
    )
    fixed = IndexSet.of(ports[_port(model, name, GROUND)] for name in numbers.fixed)
    by_hand_points = jnp.stack(points) if points else jnp.zeros((0, 3), mechanism.dtype)
    placement = Placement(all_families, IndexSet.of(numbers.owners), fixed, frozenset(merged))
    return placement, by_hand_points


def _port(model: Model, joint: str, body: str) -> str:
    first = model.joints[joint].predecessor.body == body
    return f"{joint}.{'predecessor' if first else 'successor'}"


@dataclass(frozen=True)
class _Fixed:
    """A node on the ground, by its number among the fixed nodes."""

    number: int


class _Numbers:
    """Numbers of the nodes of particles, in the order of the calls of `of`."""

    def __init__(self, model: Model, merged: set[str]):
        self.model, self.merged = model, merged
        self.moving: dict[Any, int] = {}
        self.fixed: dict[str, int] = {}
        self.owners: list[int] = []
        self.count = 0

    def of(self, body: str, k: int, slot: str | int | None) -> int | _Fixed:
        """The node of the k-th particle of a body."""
        self.count += 1
        key: Any = (body, k)
        if isinstance(slot, str) and slot in self.merged:
            joint, key = self.model.joints[slot], slot
            if GROUND in (joint.predecessor.body, joint.successor.body):
                return _Fixed(self.fixed.setdefault(slot, len(self.fixed)))
        if key not in self.moving:
            self.moving[key] = len(self.moving)
            self.owners.append(self.count - 1)
        return self.moving[key]
