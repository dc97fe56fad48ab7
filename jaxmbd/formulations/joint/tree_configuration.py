"""Velocities, accelerations and inertia in joint coordinates, along the world's axes.

Omar (2014), "Static analysis of large-scale multibody system using joint coordinates and spatial
algebra operator", writes the spatial velocities of all bodies as T V = H q̇, with T lower
triangular and the joints' transforms below its diagonal. Taken at one point and along the world's
axes, every transform is the identity, and T⁻¹ is the 0/1 matrix of ancestors.

This point is the momentary position of the first body of each branch of the tree, not the world's
origin: moments of inertia about a point at the distance d lose as many digits as (d / size)² has.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...bodies import RigidBody
from ...joints.abstract import AbstractJoint
from ...lie import Pose, se3, so3
from ...mechanism.groups import IndexSet, in_order, inverse
from ...mechanism.mechanism import Mechanism
from ...system.configuration import AbstractPortConfiguration
from .tree_recursion import Layout

# Most bodies whose ancestors are a table in the program, which is traced and compiled sooner.
MOST_IN_TABLE = 16


class JointConfiguration(AbstractPortConfiguration):
    """The configuration in joint coordinates.

    - `H`: world twists per unit velocity, shape `(nv, 6)`.
    - `shifted`: poses of the ports with the reference point of their branch as the origin.
    """

    t: Float[Array, ""]
    q: Float[Array, "nq"]
    z: Float[Array, "nz"] | None
    mechanism: Mechanism
    ports: Pose
    relative: tuple[Pose | None, ...]
    values: tuple[Float[Array, "_n _nq"], ...]
    H: Float[Array, "nv 6"]
    shifted: Pose
    layout: Layout = eqx.field(static=True)

    @property
    def nv(self) -> int:
        return self.layout.nv + self.mechanism.n_elastic

    @property
    def elastic(self) -> Float[Array, "n_elastic"]:
        return self.q[self.layout.nq :]

    def elastic_rates(self, v: Float[Array, "nv"]) -> Float[Array, "n_elastic"]:
        return v[self.layout.nv :]

    def world_twists(self, v: Float[Array, "nv"]) -> Float[Array, "n_bodies 6"]:
        """Twist of every body, taken at its reference point along the world's axes: T⁻¹ H v.

        Deformation adds the twists of the two frames of each tree joint in their bodies.
        """
        per_velocity = self.H * v[: self.layout.nv, None]
        joints = sum_over_ancestors(self.mechanism, self.layout, per_velocity)
        if self.mechanism.n_elastic == 0:
            return joints
        return joints + self._by_deformation(self._offset_twists(v))

    def _by_deformation(self, twists: Float[Array, "n_attached 6"]) -> Float[Array, "n_bodies 6"]:
        """World twists of the bodies by `twists` of the attached ports in their bodies."""
        skip = 1 + self.mechanism.n_bodies
        attached = jax.tree.map(lambda x: x[skip:], self.shifted)
        twists = jax.vmap(se3.transform_twist)(attached, twists)
        groups = [self.mechanism.joints[g] for g in self.layout.groups]
        parts = []
        for group in groups:
            of_F, of_M = (rows.shifted(-skip).take(twists) for rows in (group.first, group.second))
            # The deformation of the carrier moves F, and all beyond it; that of the child moves M
            # relative to the child's frame, which therefore moves the other way.
            parts.append(of_M - of_F if group.reversed else of_F - of_M)
        children = [group.children for group in groups]
        by_body = in_order(children, self.mechanism.n_bodies, parts)
        return ancestors(self.mechanism).astype(twists.dtype) @ by_body

    def _offset_twists(self, v: Float[Array, "nv"]) -> Float[Array, "n_attached 6"]:
        return self.mechanism.offset_twists(self.elastic, self.elastic_rates(v))

    def twists(self, v: Float[Array, "nv"]) -> Float[Array, "n_ports 6"]:
        if self.mechanism.n_elastic == 0:
            return self.at_ports(self.world_twists(v))
        per_velocity = self.H * v[: self.layout.nv, None]
        joints = sum_over_ancestors(self.mechanism, self.layout, per_velocity)
        own = self._offset_twists(v)
        twists, skip = (
            self.at_ports(joints + self._by_deformation(own)),
            1 + self.mechanism.n_bodies,
        )
        return jnp.concatenate([twists[:skip], twists[skip:] + own])

    def at_ports(self, world: Float[Array, "n_bodies 6"]) -> Float[Array, "n_ports 6"]:
        """World twists of the bodies, taken at every port along its own axes."""
        bodies = jnp.concatenate([jnp.zeros((1, 6), dtype=world.dtype), world])
        carriers = jnp.concatenate([bodies, self.mechanism.port_bodies.take(bodies)])
        return jax.vmap(se3.transform_twist_back)(self.shifted, carriers)

    def frames_M(self, g: int) -> Pose:
        """X_WM of the joints of a group in the tree, from the reference points of their bodies."""
        return frames_M(self.mechanism, self.layout, g, self.ports)

    def coordinates(self, g: int) -> Float[Array, "_n _nq"]:
        return self.values[g] if self.mechanism.joints[g].in_tree else super().coordinates(g)

    def rates(self, g: int, v: Float[Array, "nv"]) -> Float[Array, "_n _nv"]:
        if not self.mechanism.joints[g].in_tree:
            return super().rates(g, v)
        return split(self.mechanism, self.layout, v)[g]

    def coordinate_rates(self, g: int, v: Float[Array, "nv"]) -> Float[Array, "_n _nq"]:
        group = self.mechanism.joints[g]
        if not group.in_tree:
            return super().coordinate_rates(g, v)
        return _tangents(group.joint, self.values[g], self.rates(g, v))

    def coordinate_bias(
        self,
        g: int,
        v: Float[Array, "nv"],
        twists: Float[Array, "n_ports 6"],
        accelerations: Float[Array, "n_ports 6"],
    ) -> Float[Array, "_n _nq"]:
        group = self.mechanism.joints[g]
        if not group.in_tree:
            return super().coordinate_bias(g, v, twists, accelerations)
        q, nu = self.values[g], self.rates(g, v)
        q_dot = _tangents(group.joint, q, nu)
        return jax.jvp(lambda q: _tangents(group.joint, q, nu), (q,), (q_dot,))[1]

    def coordinate_loads(
        self, g: int, force: Float[Array, "_n _nq"]
    ) -> tuple[Float[Array, "n_ports 6"], Float[Array, "_n _nv"]]:
        group = self.mechanism.joints[g]
        if not group.in_tree:
            return super().coordinate_loads(g, force)
        shape = jax.ShapeDtypeStruct((len(group), group.joint.sizes()[1]), force.dtype)
        transposed = jax.linear_transpose(
            lambda nu: _tangents(group.joint, self.values[g], nu), shape
        )
        zeros = jnp.zeros((self.mechanism.n_ports, 6), dtype=force.dtype)
        return zeros, transposed(force)[0]


def _tangents(
    joint: AbstractJoint, q: Float[Array, "n nq"], nu: Float[Array, "n nv"]
) -> Float[Array, "n nq"]:
    """q̇ of stacked joints, from their velocities."""
    return jax.vmap(lambda joint, q, nu: joint.rates(q, nu))(joint, q, nu)


def split(mechanism: Mechanism, layout: Layout, v: Float[Array, "nv"]) -> tuple[Array, ...]:
    """Velocities by joint group; empty rows for joints outside the tree."""
    parts = dict(zip(layout.groups, layout.velocities, strict=True))
    return tuple(
        parts[g].take(v).reshape(len(group), -1)
        if g in parts
        else jnp.zeros((len(group), group.joint.sizes()[1]), dtype=v.dtype)
        for g, group in enumerate(mechanism.joints)
    )


def join(
    layout: Layout, values: list[Float[Array, "_n _k ..."]], rows: tuple[IndexSet, ...], size: int
):
    """Join the entries of the groups of tree joints to one vector; the inverse of `split`."""
    return inverse(rows, size).take(jnp.concatenate([x.reshape(-1, *x.shape[2:]) for x in values]))


def reference_points(layout: Layout, ports: Pose) -> Float[Array, "n_bodies 3"]:
    """Position of the first body of the branch of each body."""
    return layout.roots.shifted(1).take(ports.p)


def shifted_ports(mechanism: Mechanism, layout: Layout, ports: Pose) -> Pose:
    """Poses of the ports with the reference point of their branch as the origin.

    Ports on the ground have that of the first branch.
    """
    points = reference_points(layout, ports)
    points = jnp.concatenate([points[:1], points])
    return Pose(ports.p - jnp.concatenate([points, mechanism.port_bodies.take(points)]), ports.R)


def frames_M(mechanism: Mechanism, layout: Layout, g: int, ports: Pose) -> Pose:
    """X_WM of the joints of a group in the tree, from the reference points of their bodies."""
    group = mechanism.joints[g]
    X_WM = group.second.take_tree(ports)
    return Pose(X_WM.p - group.children.take(reference_points(layout, ports)), X_WM.R)


def motion_columns(
    mechanism: Mechanism, layout: Layout, values: tuple[Array, ...], ports: Pose
) -> Float[Array, "nv 6"]:
    """H: world twist of the bodies beyond a joint, per unit of each of its velocities."""
    parts = []
    for g in layout.groups:
        group = mechanism.joints[g]
        X_WM = frames_M(mechanism, layout, g, ports)

        def columns(joint: AbstractJoint, q: Array, X: Pose) -> Float[Array, "k 6"]:
            return jax.vmap(lambda S: se3.transform_twist(X, S), in_axes=1)(joint.motion(q))

        H = jax.vmap(columns)(group.joint, values[g], X_WM)
        parts.append(-H if group.reversed else H)
    return join(layout, parts, layout.velocities, layout.nv)


def ancestors(mechanism: Mechanism) -> Bool[Array, "n_bodies n_bodies"]:
    """T⁻¹: whether body j (column) is body i (row) or an ancestor of it.

    Rows are in depth-first order, so that the subtree of j is a run of rows.
    """
    n, end = mechanism.n_bodies, IndexSet.of(mechanism.topology.subtree_ends - 1)
    if n <= MOST_IN_TABLE:
        number, after = np.arange(n), end.array
    else:
        number = jnp.arange(n, dtype=jnp.int32)
        # In a chain all subtrees end with the last body: a constant, not a table of n numbers.
        after = jnp.full(n, n, dtype=jnp.int32) if set(end.index) == {n} else end.traced()
    return jnp.asarray((number[:, None] >= number[None]) & (number[:, None] < after[None]))


def sum_over_ancestors(
    mechanism: Mechanism, layout: Layout, x: Float[Array, "nv k"]
) -> Float[Array, "n_bodies k"]:
    """For every body, the sum of `x` over the joints between it and the ground: T⁻¹ x."""
    per_body = layout.bodies.add_to(jnp.zeros((mechanism.n_bodies, x.shape[1]), x.dtype), x)
    return ancestors(mechanism).astype(x.dtype) @ per_body


def sum_over_subtrees(
    mechanism: Mechanism, x: Float[Array, "n_bodies k"]
) -> Float[Array, "n_bodies k"]:
    """For every body, the sum of `x` over the bodies of its subtree, itself included: T⁻ᵀ x."""
    return ancestors(mechanism).astype(x.dtype).T @ x


def carriers_of(mechanism: Mechanism, ports: IndexSet) -> IndexSet:
    """The bodies that carry frames of joints; 0 is the ground."""
    return IndexSet.of(mechanism.port_bodies.array[ports.array - (1 + mechanism.n_bodies)])


def velocity_product_twists(
    c: JointConfiguration, v: Float[Array, "nv"]
) -> Float[Array, "n_bodies 6"]:
    """Rate of every body's world twist at v̇ = 0: T⁻¹ Ḣ v."""
    by_body = velocity_products(c, v, c.world_twists(v))
    return ancestors(c.mechanism).astype(v.dtype) @ by_body


def velocity_products(
    c: JointConfiguration, v: Float[Array, "nv"], world: Float[Array, "n_bodies 6"]
) -> Float[Array, "n_bodies 6"]:
    """Contribution Ḣ v of the tree joint of each body to the rate of its world twist at v̇ = 0.

    **Arguments:** `world`: world twists of the bodies at `v`.
    """
    mechanism, layout = c.mechanism, c.layout
    carriers = jnp.concatenate([jnp.zeros((1, 6), dtype=v.dtype), world])
    velocities = split(mechanism, layout, v)
    per_joint = []
    for g, rows in zip(layout.groups, layout.velocities, strict=True):
        group = mechanism.joints[g]
        nu, of_M = velocities[g], carriers_of(mechanism, group.second)

        def products(
            joint: AbstractJoint, q: Array, nu: Array, H: Array, X: Pose, V: Array
        ) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
            _, S_dot_nu = jax.jvp(lambda q: joint.motion(q) @ nu, (q,), (joint.rates(q, nu),))
            # H turns with the body that carries M, and S changes along the axes of M.
            return se3.cross_twist(V, nu @ H), se3.transform_twist(X, S_dot_nu)

        H = rows.take(c.H).reshape(*nu.shape, 6)
        at = c.values[g], nu, H, c.frames_M(g), of_M.take(carriers)
        turning, changing = jax.vmap(products)(group.joint, *at)
        per_joint.append(turning - changing if group.reversed else turning + changing)
    children = [mechanism.joints[g].children for g in layout.groups]
    return inverse(children, mechanism.n_bodies).take(jnp.concatenate(per_joint))


# Inertia of bodies and of subtrees, about one point along the world's axes ------------------------


class WorldInertia(eqx.Module):
    """Mass, first moment `h = m c` and rotational inertia `J` about the reference point.

    The three are linear in the mass distribution: the inertia of a subtree is their sum.
    """

    mass: Float[Array, "*n"]
    h: Float[Array, "*n 3"]
    J: Float[Array, "*n 3 3"]

    def momentum(self, V: Float[Array, "6"]) -> Float[Array, "6"]:
        """Inertia times world twist, for one body."""
        linear = self.mass * V[:3] + so3.cross(V[3:], self.h)
        angular = self.J @ V[3:] + so3.cross(self.h, V[:3])
        return jnp.concatenate([linear, angular])

    def matrix(self) -> Float[Array, "6 6"]:
        """Inertia of one body as a matrix, from world twist to momentum."""
        H = so3.hat(self.h)
        linear = jnp.concatenate([self.mass * jnp.eye(3, dtype=H.dtype), -H], axis=1)
        return jnp.concatenate([linear, jnp.concatenate([H, self.J], axis=1)])

    def momentum_terms(self, V: Float[Array, "6"]) -> Float[Array, "6"]:
        """Sums of the absolute terms of `momentum`, for a twist without negative entries."""
        H = jnp.abs(so3.hat(self.h))
        linear = self.mass * V[:3] + H @ V[3:]
        return jnp.concatenate([linear, jnp.abs(self.J) @ V[3:] + H @ V[:3]])


def world_inertia(bodies: RigidBody, X: Pose) -> WorldInertia:
    """Inertia of every body at its pose."""

    def one(body: RigidBody, X: Pose) -> WorldInertia:
        c = X.apply(body.com)
        about_com = X.R @ body.symmetric_inertia() @ X.R.T
        C = so3.hat(c)
        J = symmetric(about_com - body.mass * (C @ C))
        return WorldInertia(body.mass, body.mass * c, J)

    return jax.vmap(one)(bodies, X)


def symmetric(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The symmetric matrix with the upper triangle of A."""
    return jnp.where(np.tri(len(A), dtype=bool), A.T, A)


def flatten(inertia: WorldInertia) -> Float[Array, "n 13"]:
    """The entries of stacked inertias as rows, for sums over subtrees."""
    n = inertia.mass.shape[0]
    return jnp.concatenate([inertia.mass[:, None], inertia.h, inertia.J.reshape(n, 9)], axis=1)


def unflatten(rows: Float[Array, "n 13"]) -> WorldInertia:
    """Inverse of `flatten`."""
    return WorldInertia(rows[:, 0], rows[:, 1:4], rows[:, 4:].reshape(-1, 3, 3))
