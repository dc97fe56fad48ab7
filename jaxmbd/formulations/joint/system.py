"""The system in joint coordinates."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...joints import AbstractJoint
from ...joints.abstract import n_rows
from ...joints.components import coordinate_components, periodic_coordinates
from ...joints.rotation import FreeRotation
from ...lie import Pose, se3
from ...linear import solve_spd
from ...mechanism.groups import IndexSet, in_order
from ...mechanism.lowering import lower
from ...mechanism.mechanism import Mechanism, tree_poses
from ...model import Model
from ...model.values import as_names
from ...system import constraints, joint_motion, sizes
from ...system.abstract import AbstractFormulation, AbstractSystem, Elastic, State, Time
from ...system.mass_and_energy import (
    assembled_bias,
    assembled_mass,
    forces_on_bodies,
    squares_of_wrenches,
)
from .tree_configuration import (
    JointConfiguration,
    WorldInertia,
    ancestors,
    flatten,
    join,
    motion_columns,
    shifted_ports,
    split,
    sum_over_ancestors,
    sum_over_subtrees,
    unflatten,
    velocity_product_twists,
    world_inertia,
)
from .tree_recursion import Layout, lay_out, least_pivots


class JointCoordinates(AbstractFormulation):
    """Coordinates of the joints of a spanning tree; joints that close loops are constraints.

    `q` and `v` hold the coordinates and velocities of the joints in the order of their child
    bodies, from root to tips. Bodies that are not connected to the ground get a free joint.

    **Arguments:** `cut`: name of a joint, or several names, that are not edges of the spanning
    tree. Default: the tree has the shortest paths from the ground. The motion does not depend on
    where a loop is cut. There are fewest coordinates and constraints if the cut joint has most free
    motions, such as a spherical joint. Only joints of the tree count their turns.

    `formulate` **raises** `ModelError`, naming the joint, for a joint in `cut` that is unknown or
    closes no loop.

    For example:

        system = mbd.formulate(model, mbd.JointCoordinates())
        system.nv  # 1 for a hinge
    """

    cut: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, cut: str | Sequence[str] = ()):
        self.cut = as_names(cut, "JointCoordinates: cut")

    def system(self, model: Model) -> "JointSystem":
        mechanism = lower(model, self.cut, joint_coordinates=True)
        return JointSystem(mechanism, lay_out(mechanism))


class JointSystem(AbstractSystem[JointConfiguration]):
    """Equations in joint coordinates: M = Hᵀ T⁻ᵀ 𝓜 T⁻¹ H (Omar 2014, eqs 32 to 34)."""

    mechanism: Mechanism
    layout: Layout = eqx.field(static=True)

    @property
    def nq(self) -> int:
        return self.layout.nq + self.mechanism.n_elastic

    @property
    def nv(self) -> int:
        return self.layout.nv + self.mechanism.n_elastic

    @property
    def constrained(self) -> tuple[int, ...]:
        groups = enumerate(self.mechanism.joints)
        return tuple(g for g, group in groups if not group.in_tree)

    def values(self, q: Float[Array, "nq"]) -> tuple[Float[Array, "_n _nq"], ...]:
        """Coordinates by joint group; empty rows for joints outside the tree."""
        parts = dict(zip(self.layout.groups, self.layout.coordinates, strict=True))
        return tuple(
            parts[g].take(q).reshape(len(group), -1)
            if g in parts
            else jnp.zeros((len(group), 0), dtype=q.dtype)
            for g, group in enumerate(self.mechanism.joints)
        )

    def coordinates_in_words(self) -> list[str]:
        layout, described = self.layout, {}
        for k, g in enumerate(layout.groups):
            group = self.mechanism.joints[g]
            components = [f"{name} [{unit}]" for name, unit in coordinate_components(group.joint)]
            if not components:
                continue
            q, v = (
                rows[k].array.reshape(len(group), -1)
                for rows in (layout.coordinates, layout.velocities)
            )
            units = ", ".join(components).strip()
            for row, name in enumerate(group.names):
                described[name] = f"{name}: {_slice('q', q[row])}, {_slice('v', v[row])}: {units}"
        ordered = [edge.joint for edge in self.mechanism.topology.edges]
        lines = ["q and v: of each joint of the tree, in the order of their child bodies"]
        lines += [described[name] for name in ordered if name in described]
        return lines + self.mechanism.elastic_in_words(layout.nq, layout.nv)

    def periodic_coordinates(self) -> Bool[np.ndarray, "nq"]:
        periodic = np.zeros(self.nq, dtype=bool)
        for g, rows in zip(self.layout.groups, self.layout.coordinates, strict=True):
            group = self.mechanism.joints[g]
            periodic[rows.array] = np.tile(periodic_coordinates(group.joint), len(group))
        return periodic

    def joint_velocities(self) -> dict[int, IndexSet] | None:
        return dict(zip(self.layout.groups, self.layout.velocities, strict=True))

    def quaternions(self) -> Int[np.ndarray, "k 4"]:
        places = [np.zeros((0, 4), dtype=int)]
        for g, rows in zip(self.layout.groups, self.layout.coordinates, strict=True):
            group = self.mechanism.joints[g]
            if isinstance(group.joint.rotation, FreeRotation):
                places.append(rows.array.reshape(len(group), -1)[:, -4:])
        return np.concatenate(places)

    def sizes(self, length: Float[Array, ""]) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
        layout, elastic = self.layout, self.mechanism.elastic_sizes(length)

        def of(rows: tuple[IndexSet, ...], size: int) -> Array:
            parts = []
            for g, entries in zip(layout.groups, rows, strict=True):
                group = self.mechanism.joints[g]
                each = sizes.of_joint(group.joint, length, len(entries) // len(group))
                parts.append(jnp.tile(each, (len(group), 1)))
            return jnp.concatenate([join(layout, parts, rows, size), elastic])

        return of(layout.coordinates, layout.nq), of(layout.velocities, layout.nv)

    def _by_joint(
        self,
        q: Float[Array, "nq"],
        v: Float[Array, "nv"],
        move: Callable[[AbstractJoint, Array, Array], Array],
        deform: Callable[[Array, Array], Array],
    ) -> Float[Array, "nq"]:
        """Apply `move` to coordinates and velocities of joints, and `deform` to elastic ones."""
        values, velocities = self.values(q), split(self.mechanism, self.layout, v)
        parts = [
            jax.vmap(move)(self.mechanism.joints[g].joint, values[g], velocities[g])
            for g in self.layout.groups
        ]
        joints = join(self.layout, parts, self.layout.coordinates, self.layout.nq)
        if self.mechanism.n_elastic == 0:
            return joints
        return jnp.concatenate([joints, deform(q[self.layout.nq :], v[self.layout.nv :])])

    def retract(self, q: Float[Array, "nq"], dv: Float[Array, "nv"]) -> Float[Array, "nq"]:
        return self._by_joint(q, dv, lambda joint, q, dv: joint.retract(q, dv), jnp.add)

    def rates(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        return self._by_joint(q, v, lambda joint, q, v: joint.rates(q, v), lambda q, v: v)

    def velocities(self, q: Float[Array, "nq"], q_dot: Float[Array, "nq"]) -> Float[Array, "nv"]:
        values, tangents = self.values(q), self.values(q_dot)
        parts = [
            jax.vmap(lambda joint, x, x_dot: joint.velocities(x, x_dot))(
                self.mechanism.joints[g].joint, values[g], tangents[g]
            )
            for g in self.layout.groups
        ]
        joints = join(self.layout, parts, self.layout.velocities, self.layout.nv)
        return jnp.concatenate([joints, q_dot[self.layout.nq :]])

    def configuration(
        self, t: Float[Array, ""], q: Float[Array, "nq"], z: Float[Array, "nz"] | None = None
    ) -> JointConfiguration:
        values, mechanism = self.values(q), self.mechanism
        offsets = mechanism.deformed_offsets(q[self.layout.nq :])
        ports = mechanism.ports(tree_poses(mechanism, values, offsets), offsets)
        H = motion_columns(mechanism, self.layout, values, ports)
        loops = {*self.constrained, *mechanism.observed}
        loops = [g for g in loops if not mechanism.joints[g].in_tree]
        relative = mechanism.relative_poses(ports, loops)
        shifted = shifted_ports(mechanism, self.layout, ports)
        return JointConfiguration(
            t, q, z, mechanism, ports, relative, values, H, shifted, self.layout
        )

    def inertia(self, c: JointConfiguration) -> WorldInertia:
        X, bodies = c.shifted, slice(1, self.mechanism.n_bodies + 1)
        return world_inertia(self.mechanism.rigid, Pose(X.p[bodies], X.R[bodies]))

    def mass_at(self, c: JointConfiguration) -> Float[Array, "nv nv"]:
        """M of rigid bodies by composite rigid bodies: the inertias of subtrees."""
        if not self.mechanism.all_rigid:
            return assembled_mass(self, c)
        inertias = self._composite(c)
        momenta = jax.vmap(WorldInertia.momentum)(inertias, c.H)
        products = momenta @ c.H.T  # Valid if the column's body is an ancestor of the row's.
        rows = self.layout.bodies
        is_ancestor = rows.take(rows.take(ancestors(self.mechanism)).T).T
        M = jnp.where(is_ancestor, products, jnp.where(is_ancestor.T, products.T, 0.0))
        return M + jnp.diag(self.reflected_inertias())

    def _composite(self, c: JointConfiguration) -> WorldInertia:
        """Inertia of all bodies that each velocity moves."""
        composite = sum_over_subtrees(self.mechanism, flatten(self.inertia(c)))
        return unflatten(self.layout.bodies.take(composite))

    def mass_factor(self, c: JointConfiguration) -> Float[Array, "nv nv"]:
        """Cholesky factor of M; NaN if pivots consist of rounding errors."""
        L = super().mass_factor(c)
        if not self.mechanism.all_rigid:
            return L
        whole = self._composite(c)
        holds = jnp.diagonal(L) ** 2 > least_pivots(c.H, whole.mass, whole.J)
        return jnp.where(jnp.all(holds), L, jnp.nan)

    def apply_mass(self, c: JointConfiguration, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """M v, for rigid bodies without forming M."""
        if not self.mechanism.all_rigid:
            return super().apply_mass(c, v)
        V = c.world_twists(v)
        wrenches = jax.vmap(WorldInertia.momentum)(self.inertia(c), V)
        return self.project(c, wrenches) + self.reflected_inertias() * v

    def inertial_terms(self, c: JointConfiguration, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """|H|ᵀ T⁻ᵀ |𝓜| T⁻¹ |H| |v|: moments about the reference point may cancel in M."""
        if not self.mechanism.all_rigid:
            return super().inertial_terms(c, v)
        H = jnp.abs(c.H)
        V = sum_over_ancestors(self.mechanism, self.layout, H * jnp.abs(v)[:, None])
        wrenches = jax.vmap(WorldInertia.momentum_terms)(self.inertia(c), V)
        subtrees = self.layout.bodies.take(sum_over_subtrees(self.mechanism, wrenches))
        return jnp.sum(H * subtrees, axis=1) + self.reflected_inertias() * jnp.abs(v)

    def reflected_inertias(self) -> Float[Array, "nv"]:
        """Contributions of rotors behind gears to the diagonal of M."""
        total = jnp.zeros(self.nv, dtype=self.mechanism.dtype)
        entries = dict(zip(self.layout.groups, self.layout.velocities, strict=True))
        for rotors in self.mechanism.rotors:
            reflected = jax.vmap(lambda rotor: rotor.reflected_inertia())(rotors.rotor)
            group = self.mechanism.joints[rotors.group]
            own = entries[rotors.group].array.reshape(len(group), -1)[rotors.rows.array]
            total = IndexSet.of(own.ravel()).add_to(total, jnp.repeat(reflected, own.shape[1]))
        return total

    def solve_mass(self, c: JointConfiguration, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        return solve_spd(self.mass_at(c), f)

    def bias_at(self, c: JointConfiguration, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        if not self.mechanism.all_rigid:
            return assembled_bias(self, c, v)
        return self.project(c, self.inertial_wrenches(c, v, jnp.zeros_like(v)))

    def inertial_wrenches(
        self, c: JointConfiguration, v: Float[Array, "nv"], vdot: Float[Array, "nv"]
    ) -> Float[Array, "n_bodies 6"]:
        """Rate of momentum of every body, as a wrench about its reference point."""
        if not self.mechanism.all_rigid:
            bodies = self.mechanism.bodies
            forces = [x[:, :6] for x in forces_on_bodies(self, c, v, vdot)]
            along = in_order([group.rows for group in bodies], self.mechanism.n_bodies, forces)
            X = self.mechanism.body_ports.take_tree(c.shifted)
            return jax.vmap(se3.transform_wrench)(X, along)
        V = c.world_twists(v)
        A = velocity_product_twists(c, v)
        A = A + sum_over_ancestors(self.mechanism, self.layout, c.H * vdot[:, None])

        def wrench(inertia: WorldInertia, V: Array, A: Array) -> Array:
            return inertia.momentum(A) + se3.cross_wrench(V, inertia.momentum(V))

        return jax.vmap(wrench)(self.inertia(c), V, A)

    def project(
        self, c: JointConfiguration, wrenches: Float[Array, "n_bodies 6"]
    ) -> Float[Array, "nv"]:
        """Hᵀ T⁻ᵀ W: generalized force of wrenches on the bodies."""
        subtrees = self.layout.bodies.take(sum_over_subtrees(self.mechanism, wrenches))
        return jnp.sum(c.H * subtrees, axis=1)

    def internal_potential(self, q: Float[Array, "nq"]) -> Float[Array, ""]:
        return jnp.zeros((), dtype=q.dtype)

    def intrinsic_constraint(self, c: JointConfiguration) -> Float[Array, "0"]:
        return jnp.zeros(0, dtype=c.q.dtype)

    def intrinsic_names(self) -> list[str]:
        return []

    def from_tree(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        elastic: Float[Array, "n_elastic"] | None = None,
    ) -> Float[Array, "nq"]:
        parts = [values[g] for g in self.layout.groups]
        q = join(self.layout, parts, self.layout.coordinates, self.layout.nq)
        zeros = jnp.zeros(self.mechanism.n_elastic, dtype=q.dtype)
        return jnp.concatenate([q, zeros if elastic is None else elastic])

    def from_tree_rates(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        rates: tuple[Float[Array, "_n _nv"], ...],
        elastic: Elastic | None = None,
    ) -> Float[Array, "nv"]:
        parts = [rates[g] for g in self.layout.groups]
        v = join(self.layout, parts, self.layout.velocities, self.layout.nv)
        zeros = jnp.zeros(self.mechanism.n_elastic, dtype=v.dtype)
        return jnp.concatenate([v, zeros if elastic is None else elastic[1]])

    # Modules that compute with this class are imported in methods, since they import it.

    def own_motion_residual(
        self,
        c: JointConfiguration,
        v: Float[Array, "nv"],
        vdot: Float[Array, "nv"],
        lam: Float[Array, "ng"] | None,
    ) -> Float[Array, "nv"]:
        from . import tree_dynamics

        return tree_dynamics.motion_residual(self, c, v, vdot, lam)

    def own_rest_residual(
        self, c: JointConfiguration, lam: Float[Array, "ng"] | None
    ) -> Float[Array, "nv"] | None:
        from . import tree_dynamics

        return tree_dynamics.rest_residual(self, c, lam)

    def own_rest_stiffness(
        self, c: JointConfiguration, lam: Float[Array, "ng"]
    ) -> Float[Array, "nv nv"] | None:
        from . import residual_derivatives

        return residual_derivatives.rest_stiffness(self, c, lam)

    def own_free_accelerations(self, t: Time, state: State) -> Float[Array, "nv"] | None:
        from . import tree_dynamics

        return tree_dynamics.accelerations(self, t, state)

    def own_acceleration_derivatives(
        self, t: Time, state: State
    ) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"]] | None:
        from . import acceleration_derivatives

        return acceleration_derivatives.in_closed_form(self, t, state)

    def own_reactions_of(
        self, t: Time, state: State, solved: tuple[Array, Array]
    ) -> dict[str, Float[Array, "6"]]:
        from . import tree_dynamics

        return tree_dynamics.reactions_of(self, t, state, solved)

    def own_port_accelerations(
        self, c: JointConfiguration, v: Float[Array, "nv"]
    ) -> Float[Array, "n_ports 6"] | None:
        if self.mechanism.n_elastic > 0:
            return None
        return c.at_ports(velocity_product_twists(c, v))

    def own_jacobian(self, c: JointConfiguration) -> Float[Array, "ng nv"] | None:
        """Powers of the wrenches of unit multipliers on the two bodies of each joint.

        Entries of velocities that move both bodies are zero.
        """
        mechanism = self.mechanism
        if mechanism.n_elastic > 0:
            return None
        moves = self.layout.bodies.take(ancestors(mechanism).T)
        moves = jnp.concatenate([jnp.zeros((self.nv, 1), dtype=bool), moves], axis=1)
        parts = [jnp.zeros((0, self.nv), dtype=c.q.dtype)]
        for g in self.constrained:
            group, X_FM = mechanism.joints[g], c.relative_poses(g)
            if n_rows(group.joint) == 0:
                continue
            D = constraints.local_jacobians(group, X_FM)
            F, M = group.first.take_tree(c.shifted), group.second.take_tree(c.shifted)
            # Both wrenches are taken at M. Reference points of the bodies may differ.
            F = Pose(jax.vmap(Pose.apply)(F, X_FM.p), M.R)

            def powers(X: Pose, rows: Float[Array, "m 6"]) -> Float[Array, "m nv"]:
                return jax.vmap(lambda row: se3.transform_wrench(X, row))(rows) @ c.H.T

            bodies = (
                mechanism.port_bodies.array[x.array - 1 - mechanism.n_bodies]
                for x in (group.first, group.second)
            )
            of_F, of_M = (IndexSet.of(x).take(moves.T)[:, None] for x in bodies)
            rows = jnp.where(of_M & ~of_F, jax.vmap(powers)(M, D), 0.0)
            rows = jnp.where(of_F & ~of_M, -jax.vmap(powers)(F, D), rows)
            parts.append(rows.reshape(rows.shape[0] * rows.shape[1], self.nv))
        return jnp.concatenate([*parts, constraints.coordinate_jacobian(self, c)])

    def own_sizes_of_possible_zeros(
        self, c: JointConfiguration, size: Float[Array, ""]
    ) -> Float[Array, "ng"]:
        mechanism, n = self.mechanism, constraints.n_constraints(self)
        parts = sizes.scales_of_joints(self, c, size)
        for coupling in mechanism.couplings:
            own, source = (jnp.where(is_angle, 1.0, size) for is_angle in coupling.is_angle)
            parts.append(own + jnp.abs(coupling.coupling.ratio) * source)
        for driver in mechanism.drivers:
            each = jnp.where(driver.is_angle, 1.0, size)
            parts.append(jnp.full(len(driver.names), each))
        given = jnp.concatenate([jnp.zeros(0, c.q.dtype), *parts])
        return jnp.concatenate([given, jnp.zeros(n - given.size, c.q.dtype)])

    def own_row_lengths(
        self, c: JointConfiguration, B: Float[Array, "nv ng"]
    ) -> Float[Array, "ng"]:
        """Lengths as if both bodies of each joint were free, since tree joints may make a row zero.

        Bodies count as rigid, and massless links have the inertia of a body beyond them.
        """
        mechanism = self.mechanism
        with_mass = mechanism.nearest_with_mass.take_tree(mechanism.rigid)

        def squares(g: int, D: Float[Array, "n m 6"]) -> Float[Array, "n m"]:
            total = jnp.zeros(D.shape[:2], dtype=D.dtype)
            frames = joint_motion.frames_at_M(mechanism, mechanism.joints[g], c.relative_poses(g))
            for bodies, X in frames:
                own = IndexSet.of(np.maximum(bodies.array - 1, 0)).take_tree(with_mass)
                # All bodies except for the ground.
                movable = jnp.asarray(bodies.array > 0)[:, None]
                total = total + jnp.where(movable, jax.vmap(squares_of_wrenches)(own, X, D), 0.0)
            return total

        groups = mechanism.joints
        parts = [
            squares(g, constraints.local_jacobians(groups[g], c.relative_poses(g))).ravel()
            for g in self.constrained
            if n_rows(groups[g].joint) > 0
        ]

        def of_coordinates(g: int) -> Float[Array, "n nv"]:
            T = jax.vmap(lambda joint, q: joint.dual_motion(q).T)(groups[g].joint, c.coordinates(g))
            return squares(g, T)

        for coupling in mechanism.couplings:
            of_joint = coupling.rows.take(of_coordinates(coupling.group))[:, 0]
            of_source = coupling.source_rows.take(of_coordinates(coupling.source_group))[:, 0]
            parts.append(of_joint + coupling.coupling.ratio**2 * of_source)
        for driver in mechanism.drivers:
            parts.append(driver.rows.take(of_coordinates(driver.group))[:, driver.component])
        length = jnp.sqrt(jax.lax.stop_gradient(jnp.concatenate([jnp.zeros(0, B.dtype), *parts])))
        length = jnp.concatenate([length, jnp.linalg.norm(B[:, length.size :], axis=0)])
        return jnp.where(length > 0, length, 1.0)


def _slice(name: str, entries: np.ndarray) -> str:
    first, n = int(entries[0]), len(entries)
    return f"{name}[{first}]" if n == 1 else f"{name}[{first}:{first + n}]"
