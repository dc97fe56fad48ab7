"""The mechanism: a model lowered to stacked arrays and static rows, the input of formulations.

Poses of its bodies follow from coordinates of the joints of its tree.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..accelerators import for_accelerator
from ..bodies import RigidBody
from ..joints import AbstractJoint
from ..lie import Pose
from ..model.model import float_type
from ..model.values import as_jax, on_host
from .controllers import ControllerGroup
from .couplings import CouplingGroup, DriverGroup
from .elements import AbstractElementGroup, JointElements
from .groups import BodyGroup, IndexSet, JointGroup, RotorGroup, in_order, rigid_part
from .topology import Topology


class Mechanism(eqx.Module):
    """Bodies, joints and forces by kind, and the table of ports (frames) to which they attach.

    Ports 0 … n_bodies are the frames of the ground and of the bodies. The attached ports follow;
    `offsets` are their poses in the bodies of rows `port_bodies`. Massless links count as rigid
    bodies whose mass and inertia are zero; `massless` are their rows, without the ground.
    """

    topology: Topology = eqx.field(static=True)
    massless: tuple[int, ...] = eqx.field(static=True)
    bodies: tuple[BodyGroup, ...]
    joints: tuple[JointGroup, ...]
    elements: tuple[AbstractElementGroup, ...]
    rotors: tuple[RotorGroup, ...]
    couplings: tuple[CouplingGroup, ...]
    drivers: tuple[DriverGroup, ...]
    offsets: Pose
    port_bodies: IndexSet = eqx.field(static=True)
    port_names: tuple[str | None, ...] = eqx.field(static=True)

    @property
    def n_bodies(self) -> int:
        """Number of bodies, without the ground."""
        return self.topology.n_bodies

    @property
    def n_elastic(self) -> int:
        """Number of elastic coordinates of all bodies."""
        return sum(len(group.names) * group.n_elastic for group in self.bodies)

    @property
    def all_rigid(self) -> bool:
        """True if every body is a `RigidBody` or a `MasslessLink`."""
        return all(isinstance(group.body, RigidBody) for group in self.bodies)

    @property
    def rigid(self) -> RigidBody:
        """All bodies as rigid bodies, stacked; bodies of other kinds are taken at η = 0."""
        if self.all_rigid:
            (group,) = self.bodies
            assert isinstance(group.body, RigidBody)
            return group.body
        parts = [
            group.body if isinstance(group.body, RigidBody) else jax.vmap(rigid_part)(group.body)
            for group in self.bodies
        ]
        return in_order([group.rows for group in self.bodies], self.n_bodies, parts)

    @property
    def nearest_with_mass(self) -> IndexSet:
        """For each body its own row; for a massless link that of a body with mass beyond it."""
        rows = list(range(self.n_bodies))
        for i in sorted(self.massless, reverse=True):
            rows[i] = rows[i + 1]  # Depth first: the next row is a child.
        return IndexSet.of(rows)

    @property
    def body_ports(self) -> IndexSet:
        """Rows of the bodies' own frames among all ports."""
        return IndexSet.of(range(1, self.n_bodies + 1))

    @property
    def n_ports(self) -> int:
        """Number of ports, including the frames of the ground and of the bodies."""
        return 1 + self.n_bodies + len(self.port_bodies)

    @property
    def dtype(self) -> Any:
        """Float type of the system, the widest among all numbers of the mechanism."""
        return float_type(self)

    @property
    def constrained_coordinates(self) -> tuple[int, ...]:
        """Groups of joints that couplings and drivers refer to."""
        groups = {g for group in self.couplings for g in (group.group, group.source_group)}
        return tuple(sorted(groups | {group.group for group in self.drivers}))

    @property
    def observed(self) -> tuple[int, ...]:
        """Groups of joints whose coordinates forces, rotors, couplings or drivers refer to."""
        on_joints = [group for group in self.elements if isinstance(group, JointElements)]
        groups = {group.group for group in (*on_joints, *self.rotors)}
        controllers = [group for group in self.elements if isinstance(group, ControllerGroup)]
        groups |= {g for group in controllers for g, _ in group.joints}
        return tuple(sorted(groups | set(self.constrained_coordinates)))

    @property
    def n_states(self) -> int:
        """Number of first-order states of all elements."""
        return sum(len(group.names) * group.n_states for group in self.elements)

    @property
    def state_places(self) -> dict[str, tuple[int, int]]:
        """For each element with first-order states, their first index in z and their number."""
        return {
            name: (group.first_state + row * group.n_states, group.n_states)
            for group in self.elements
            if group.n_states > 0
            for row, name in enumerate(group.names)
        }

    @property
    def sampled_groups(self) -> tuple[AbstractElementGroup, ...]:
        """Groups of elements that update their states at multiples of a period."""
        return tuple(group for group in self.elements if group.element.period is not None)

    @property
    def elastic_places(self) -> dict[str, tuple[int, int]]:
        """For each body with elastic coordinates, the first index among all, and their number."""
        return {
            name: (group.first + row * group.n_elastic, group.n_elastic)
            for group in self.bodies
            if group.n_elastic > 0
            for row, name in enumerate(group.names)
        }

    def elastic_sizes(self, length: Float[Array, ""]) -> Float[Array, "n_elastic"]:
        """Elastic coordinates whose rates have the energy of a displacement by `length` [m].

        Each by itself, and of the whole body.
        """
        parts = [jnp.zeros(0, self.dtype)]
        for group in self.bodies:
            if group.n_elastic > 0:
                eta = jnp.zeros(group.n_elastic, self.dtype)
                M = jax.vmap(lambda body, eta=eta: jnp.diagonal(body.mass_matrix(eta)))(group.body)
                mass = M[:, 6:]
                ratio = jnp.where(mass > 0, M[:, :1] / jnp.where(mass > 0, mass, 1.0), 1.0)
                parts.append(length * jnp.sqrt(ratio).ravel())
        return jnp.concatenate(parts)

    def elastic_in_words(self, q: int, v: int) -> list[str]:
        """Lines for the elastic coordinates of each body, which start at these entries."""

        def entries(name: str, first: int, k: int) -> str:
            return f"{name}[{first}]" if k == 1 else f"{name}[{first}:{first + k}]"

        return [
            f"{name}: {entries('q', q + first, k)}, {entries('v', v + first, k)}: elastic"
            for name, (first, k) in sorted(self.elastic_places.items(), key=lambda x: x[1])
        ]

    def initial_states(self) -> Float[Array, "nz"]:
        """Initial z of all elements, shape `(nz,)`."""
        parts = [
            group.initial_states().ravel().astype(self.dtype)
            for group in self.elements
            if group.n_states > 0
        ]
        return jnp.concatenate(parts) if parts else as_jax(np.zeros(0, self.dtype))

    def deformed_offsets(self, eta: Float[Array, "n_elastic"]) -> Pose:
        """Poses of the ports in their bodies, `offsets`, at elastic coordinates η of the bodies."""
        elastic = [g for g in self.bodies if g.n_elastic > 0 and len(g.ports) > 0]
        if not elastic:
            return self.offsets
        n, moved = len(self.port_bodies), [g.offsets(self.offsets, eta) for g in elastic]
        on_rigid = IndexSet.of(sorted(set(range(n)).difference(*(g.ports.index for g in elastic))))
        # Selections of rows instead of assignments, for which no code is generated.
        parts = [on_rigid, *(g.ports for g in elastic)]
        return in_order(parts, n, [on_rigid.take_tree(self.offsets), *moved])

    def offset_twists(
        self, eta: Float[Array, "n_elastic"], rates: Float[Array, "n_elastic"]
    ) -> Float[Array, "n_attached 6"]:
        """Twists of the attached ports in their bodies, along their own axes; linear in η̇."""
        twists = jnp.zeros((len(self.port_bodies), 6), dtype=eta.dtype)
        for group in self.bodies:
            if group.n_elastic > 0 and len(group.ports) > 0:
                moved = group.offset_twists(self.offsets, eta, rates)
                twists = group.ports.add_to(twists, moved)
        return twists

    def ports(self, bodies: Pose, offsets: Pose | None = None) -> Pose:
        """Poses of all ports from those of the bodies (rows 0 … n_bodies).

        **Arguments:** `offsets`: poses of attached ports in their bodies. Default: poses at η = 0.
        """
        if len(self.port_bodies) == 0:
            return bodies
        carriers = self.port_bodies.take_tree(bodies)
        attached = jax.vmap(Pose.__matmul__)(carriers, self.offsets if offsets is None else offsets)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), bodies, attached)

    def relative_poses(self, ports: Pose, groups: Iterable[int]) -> tuple[Pose | None, ...]:
        """X_FM of the joints of the given groups, None for other groups."""
        required = set(groups)
        return tuple(
            group.relative_poses(ports) if g in required else None
            for g, group in enumerate(self.joints)
        )

    def find_joint(self, name: str) -> tuple[int, int]:
        """Group of a joint and its row in it; **raises** `KeyError` for an unknown name."""
        for g, group in enumerate(self.joints):
            if name in group.names:
                return g, group.names.index(name)
        raise KeyError(name)

    def joint(self, name: str) -> AbstractJoint:
        """One joint, unstacked."""
        g, row = self.find_joint(name)
        return jax.tree.map(lambda x: as_jax(on_host(x)[row]), self.joints[g].joint)


# Poses of bodies from the coordinates of the joints of the spanning tree --------------------------

Above = TypeVar("Above")
Own = TypeVar("Own")


def tree_poses(
    mechanism: Mechanism, values: tuple[Float[Array, "_n _nq"], ...], offsets: Pose | None = None
) -> Pose:
    """Poses of the ground and of all bodies, rows 0 … n_bodies, in the world.

    **Arguments:** `offsets`: poses of frames in their bodies. Default: poses at η = 0.

    A scan visits the bodies level by level, all bodies of one level at once. The size of the
    program does not depend on the number of bodies.
    """
    groups = [(g, x) for g, x in zip(mechanism.joints, values, strict=True) if g.in_tree]
    offsets = mechanism.offsets if offsets is None else offsets
    blocks = [_relative_poses(mechanism, group, x, offsets) for group, x in groups]
    relative = in_order([group.children for group, _ in groups], mechanism.n_bodies, blocks)
    world = Pose(jnp.zeros(3, dtype=mechanism.dtype), jnp.eye(3, dtype=mechanism.dtype))
    if for_accelerator():
        return _doubled(mechanism, world, relative)
    bodies = forward_pass(mechanism, Pose.__matmul__, world, relative)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), world, bodies)


def tree_tangents(
    mechanism: Mechanism,
    values: tuple[Float[Array, "_n _nq"], ...],
    rates: tuple[Float[Array, "_n _nv"], ...],
) -> tuple[Float[Array, "_n _nq"], ...]:
    """q̇ from the velocities of the tree's joints, by group; zero for joints outside the tree."""
    return tuple(
        jax.vmap(lambda joint, q, v: joint.rates(q, v))(group.joint, q, v)
        if group.in_tree
        else jnp.zeros_like(q)
        for group, q, v in zip(mechanism.joints, values, rates, strict=True)
    )


def _relative_poses(
    mechanism: Mechanism, group: JointGroup, q: Float[Array, "n nq"], offsets: Pose
) -> Pose:
    """Pose of each child body in its parent body, for one group of tree joints."""
    skip = 1 + mechanism.n_bodies
    ends = [rows.shifted(-skip).take_tree(offsets) for rows in (group.first, group.second)]
    if group.reversed:
        ends.reverse()
    return jax.vmap(lambda joint, *at: joint.between(*at, group.reversed))(group.joint, q, *ends)


def _doubled(mechanism: Mechanism, world: Pose, relative: Pose) -> Pose:
    """Poses of the ground and of all bodies, from their poses in their parents.

    The number of operations is that of the binary digits of the depth of the tree.
    In each round the known part of each path towards the root doubles its length: a body's pose in
    an ancestor is composed with the ancestor's pose in its own (Hillis and Steele 1986).
    """
    poses = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), world, relative)
    ancestors = np.concatenate([[0], mechanism.topology.parents])
    while ancestors.any():
        above = IndexSet.of(ancestors).take_tree(poses)
        poses = jax.vmap(Pose.__matmul__)(above, poses)
        ancestors = ancestors[ancestors]
    return poses


def forward_pass(
    mechanism: Mechanism, step: Callable[[Above, Own], Above], root: Above, own: Own
) -> Above:
    """Tree recursion from root to tips: value of a body = `step(value of its parent, own row)`.

    **Arguments:** `root`: value of the ground; `own`: values for bodies 1 … n_bodies.
    """
    depths = mechanism.topology.depths[1:]
    parents = mechanism.topology.parents
    n_levels = int(depths.max())
    members = [np.flatnonzero(depths == level + 1) for level in range(n_levels)]
    width = max(len(bodies) for bodies in members)
    # A grid of levels by slots; empty slots hold body 0 and are never read.
    grid = np.zeros((n_levels, width), dtype=np.int32)
    slot = np.zeros(mechanism.n_bodies + 1, dtype=np.int32)
    parent_slot = np.zeros((n_levels, width), dtype=np.int32)
    place = np.zeros(mechanism.n_bodies, dtype=np.int32)
    for level, bodies in enumerate(members):
        grid[level, : len(bodies)] = bodies
        slot[bodies + 1] = np.arange(len(bodies))
        parent_slot[level, : len(bodies)] = slot[parents[bodies]]
        place[bodies] = level * width + np.arange(len(bodies))

    def gather(x: Array) -> Array:
        return IndexSet.of(grid.ravel()).take(x).reshape(n_levels, width, *x.shape[1:])

    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (width, *x.shape)), root)
    if n_levels == 1:
        return jax.vmap(step)(start, own)
    slots = None if width == 1 else jnp.asarray(parent_slot)

    def one_level(above: Above, level: tuple[Own, Array | None]) -> tuple[Above, Above]:
        own, slots = level
        parents = above if slots is None else jax.tree.map(lambda x: x[slots], above)
        values = jax.vmap(step)(parents, own)
        return values, values

    _, values = jax.lax.scan(one_level, start, (jax.tree.map(gather, own), slots))
    return IndexSet.of(place).take_tree(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), values))
