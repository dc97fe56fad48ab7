"""Maximal coordinates: absolute coordinates of every body, with joints as constraints.

Sources: "Equations of Multi-Body Motion", eqs 4932 to 4943; Bauchau et al. (2013) for the twists.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..bodies import RigidBody
from ..joints.abstract import n_rows
from ..lie import Pose, se3, so3
from ..linear import solve_spd
from ..mechanism.lowering import lower
from ..mechanism.mechanism import Mechanism, tree_poses, tree_tangents
from ..model import Model
from ..nonlinear import linear_root
from ..programs.tracing import kernel
from ..system import constraints, joint_motion
from ..system.abstract import AbstractFormulation, AbstractSystem, Elastic, State, Time, Velocities
from ..system.acceleration import AbstractStabilization
from ..system.configuration import (
    AbstractConfiguration,
    AbstractPortConfiguration,
    world_frame,
)
from ..system.equation_residuals import (
    constraint_rates,
    forces_and_reactions,
    motion_residual,
    residual_by_bodies,
)
from ..system.loads import generalized
from ..system.mass_and_energy import (
    assembled_bias,
    inertial_factor,
    inertial_wrench,
    mass_of_bodies,
    momentum_of,
    spatial_inertia,
    unwhiten_twists,
    whiten_wrenches,
)
from ..system.sparsity import SparsityPattern, body_sparsity
from .joint.system import JointSystem
from .joint.tree_recursion import lay_out


class MaximalCoordinates(AbstractFormulation):
    """Position and quaternion of every body; every joint is a constraint.

    The mass matrix is constant and block diagonal, and loops are treated as all other joints. The
    velocity of a body is its twist `[v, ω]` along its own axes. A rotor behind a gear (`Rotor`) has
    a coordinate of its own, its angle at the joint, with a constraint that it equals the joint's
    angle; the mass matrix thereby remains constant.

    For example:

        system = mbd.formulate(model, mbd.MaximalCoordinates())
        system.nv  # 6 for each body
    """

    def system(self, model: Model) -> "MaximalSystem":
        return MaximalSystem(lower(model))


class MaximalSystem(AbstractSystem[AbstractConfiguration]):
    """Equations in maximal coordinates.

    `q = [p and quaternion of each body, elastic coordinates, rotor angles]`, `v = [twist of each
    body, rates of the others]`.
    """

    mechanism: Mechanism

    @property
    def constant_mass(self) -> bool:
        return self.mechanism.all_rigid

    @property
    def absolute(self) -> bool:
        return self.mechanism.all_rigid

    @property
    def n_rotors(self) -> int:
        """Number of rotors behind gears."""
        return sum(len(group.names) for group in self.mechanism.rotors)

    @property
    def nq(self) -> int:
        return 7 * self.mechanism.n_bodies + self.mechanism.n_elastic + self.n_rotors

    @property
    def nv(self) -> int:
        return 6 * self.mechanism.n_bodies + self.mechanism.n_elastic + self.n_rotors

    @property
    def constrained(self) -> tuple[int, ...]:
        return tuple(range(len(self.mechanism.joints)))

    def _split(self, x: Array, width: int) -> tuple[Array, Array]:
        """Entries of the bodies as rows, and the entries that follow: elastic ones, then rotors.

        Further axes remain.
        """
        n = self.mechanism.n_bodies
        return x[: n * width].reshape(n, width, *x.shape[1:]), x[n * width :]

    def sparsity_pattern(self) -> SparsityPattern:
        """Bodies depend on one another through joints and forces between them."""
        return body_sparsity(self)

    def loop_closure_system(self) -> AbstractSystem:
        """The system in joint coordinates, in which loops have fewer unknowns."""
        return JointSystem(self.mechanism, lay_out(self.mechanism))

    def coordinates_in_words(self) -> list[str]:
        bodies = self.mechanism.topology.bodies[1:]
        lines = ["q: position and quaternion of each body; v: its twist [v, ω] along its own axes"]
        lines += [
            f"{name}: q[{7 * i}:{7 * i + 7}], v[{6 * i}:{6 * i + 6}]"
            for i, name in enumerate(bodies)
        ]
        n, elastic = len(bodies), self.mechanism.n_elastic
        lines += self.mechanism.elastic_in_words(7 * n, 6 * n)
        return lines + [
            f"rotor {name}: q[{7 * n + k}], v[{6 * n + k}]: its angle"
            for k, name in enumerate(self.intrinsic_names(), start=elastic)
        ]

    def quaternions(self) -> Int[np.ndarray, "k 4"]:
        return 7 * np.arange(self.mechanism.n_bodies)[:, None] + np.arange(3, 7)

    def sizes(self, length: Float[Array, ""]) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
        n, one = self.mechanism.n_bodies, jnp.ones_like(length)
        elastic, rotors = self.mechanism.elastic_sizes(length), jnp.full(self.n_rotors, one)
        q, v = (jnp.tile(jnp.stack([length] * 3 + [one] * k), n) for k in (4, 3))
        return jnp.concatenate([q, elastic, rotors]), jnp.concatenate([v, elastic, rotors])

    def retract(self, q: Float[Array, "nq"], dv: Float[Array, "nv"]) -> Float[Array, "nq"]:
        (bodies, rotors), (increments, turns) = self._split(q, 7), self._split(dv, 6)
        return jnp.concatenate([_displaced(bodies, increments).ravel(), rotors + turns])

    def rates(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        (bodies, _), (twists, turns) = self._split(q, 7), self._split(v, 6)

        def rate(x: Array, V: Array) -> Array:
            return jnp.concatenate([so3.to_matrix(x[3:]) @ V[:3], so3.rate(x[3:], V[3:])])

        return jnp.concatenate([jax.vmap(rate)(bodies, twists).ravel(), turns])

    def velocities(self, q: Float[Array, "nq"], q_dot: Float[Array, "nq"]) -> Float[Array, "nv"]:
        (bodies, _), (tangents, turns) = self._split(q, 7), self._split(q_dot, 7)

        def velocity(x: Array, x_dot: Array) -> Array:
            linear = so3.to_matrix(x[3:]).T @ x_dot[:3]
            return jnp.concatenate([linear, so3.velocity(x[3:], x_dot[3:])])

        return jnp.concatenate([jax.vmap(velocity)(bodies, tangents).ravel(), turns])

    def configuration(
        self, t: Float[Array, ""], q: Float[Array, "nq"], z: Float[Array, "nz"] | None = None
    ) -> "MaximalConfiguration":
        bodies, rest = self._split(q, 7)
        offsets = self.mechanism.deformed_offsets(rest[: self.mechanism.n_elastic])
        poses = jax.vmap(lambda x: Pose(x[:3], so3.to_matrix(x[3:])))(bodies)
        poses = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), world_frame(q.dtype), poses)
        ports = self.mechanism.ports(poses, offsets)
        groups = (*self.constrained, *self.mechanism.observed)
        relative = self.mechanism.relative_poses(ports, groups)
        return MaximalConfiguration(t, q, z, self.mechanism, ports, relative, offsets)

    def mass_at(self, c: AbstractConfiguration) -> Float[Array, "nv nv"]:
        rotors, first = jnp.diag(self._reflected_inertias()), self.nv - self.n_rotors
        if not self.mechanism.all_rigid:
            return mass_of_bodies(self, c).at[first:, first:].set(rotors)
        n, dtype = self.mechanism.n_bodies, c.q.dtype
        blocks = jax.vmap(spatial_inertia)(self.mechanism.rigid)
        bodies = jnp.zeros((n, 6, n, 6), dtype=dtype)
        bodies = bodies.at[jnp.arange(n), :, jnp.arange(n), :].set(blocks).reshape(6 * n, 6 * n)
        total = jnp.zeros((self.nv, self.nv), dtype=dtype)
        return total.at[:first, :first].set(bodies).at[first:, first:].set(rotors)

    def _reflected_inertias(self) -> Float[Array, "n_rotors"]:
        parts = [
            jax.vmap(lambda rotor: rotor.reflected_inertia())(group.rotor)
            for group in self.mechanism.rotors
        ]
        return jnp.concatenate([jnp.zeros(0, dtype=self.mechanism.dtype), *parts])

    def solve_mass(
        self, c: AbstractConfiguration, f: Float[Array, "nv *k"]
    ) -> Float[Array, "nv *k"]:
        if not self.mechanism.all_rigid:
            return solve_spd(self.mass_at(c), f)
        loads, torques = self._split(f, 6)
        columns = loads.reshape(*loads.shape[:2], math.prod(f.shape[1:]))

        def solve(body: RigidBody, W: Float[Array, "6 k"]) -> Float[Array, "6 k"]:
            to_com = so3.hat(body.com)
            inverse = _inverse(body.symmetric_inertia())
            angular = inverse @ (W[3:] - to_com @ W[:3])
            return jnp.concatenate([W[:3] / body.mass + to_com @ angular, angular])

        twists = jax.vmap(solve)(self.mechanism.rigid, columns)
        twists = twists.reshape(loads.shape[0] * 6, *f.shape[1:])
        scale = self._reflected_inertias().reshape(-1, *[1] * (f.ndim - 1))
        return jnp.concatenate([twists, torques / scale])

    def apply_mass(self, c: AbstractConfiguration, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        if not self.mechanism.all_rigid:
            return super().apply_mass(c, v)
        twists, turns = self._split(v, 6)
        P = jax.vmap(momentum_of)(self.mechanism.rigid, twists)
        return jnp.concatenate([P.ravel(), self._reflected_inertias() * turns])

    def mass_factor(self, c: AbstractConfiguration) -> Any:
        """Cholesky factors of the inertias of rigid bodies, and square roots of those of rotors."""
        if not self.mechanism.all_rigid:
            return super().mass_factor(c)
        bodies = jax.vmap(inertial_factor)(self.mechanism.rigid)
        return bodies, jnp.sqrt(self._reflected_inertias())

    def whiten(self, factor: Any, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        if not self.mechanism.all_rigid:
            return super().whiten(factor, f)
        loads, torques = self._split(f, 6)
        columns = loads.reshape(*loads.shape[:2], math.prod(f.shape[1:]))
        whitened = whiten_wrenches(factor[0], columns).reshape(loads.shape[0] * 6, *f.shape[1:])
        return jnp.concatenate([whitened, torques / factor[1].reshape(-1, *[1] * (f.ndim - 1))])

    def unwhiten(self, factor: Any, y: Float[Array, "nv"]) -> Float[Array, "nv"]:
        if not self.mechanism.all_rigid:
            return super().unwhiten(factor, y)
        bodies, rotors = self._split(y, 6)
        twists = unwhiten_twists(factor[0], bodies)
        return jnp.concatenate([twists.ravel(), rotors / factor[1]])

    def bias_at(self, c: AbstractConfiguration, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        if not self.mechanism.all_rigid:
            return assembled_bias(self, c, v)
        twists, turns = self._split(v, 6)

        def gyroscopic(body: RigidBody, V: Array) -> Array:
            return se3.cross_wrench(V, momentum_of(body, V))

        W = jax.vmap(gyroscopic)(self.mechanism.rigid, twists)
        return jnp.concatenate([W.ravel(), jnp.zeros_like(turns)])

    def internal_potential(self, q: Float[Array, "nq"]) -> Float[Array, ""]:
        return jnp.zeros((), dtype=q.dtype)

    def intrinsic_constraint(self, c: AbstractConfiguration) -> Float[Array, "n_rotors"]:
        """Rotor angle minus joint angle, within (-π, π]; the rotor counts the turns."""
        angles = self._split(c.q, 7)[1][self.mechanism.n_elastic :]
        parts, start = [angles[:0]], 0
        for group in self.mechanism.rotors:
            stop = start + len(group.names)
            difference = angles[start:stop] - group.rows.take(c.coordinates(group.group))[:, 0]
            if self.mechanism.joints[group.group].counts_no_turns:
                difference = jnp.arctan2(jnp.sin(difference), jnp.cos(difference))
            parts.append(difference)
            start = stop
        return jnp.concatenate(parts)

    def intrinsic_rate(
        self, c: AbstractConfiguration, v: Float[Array, "nv"]
    ) -> Float[Array, "n_rotors"]:
        turns = self._split(v, 6)[1][self.mechanism.n_elastic :]
        rates = [
            group.rows.take(c.coordinate_rates(group.group, v))[:, 0]
            for group in self.mechanism.rotors
        ]
        return turns - jnp.concatenate([turns[:0], *rates])

    def intrinsic_bias(
        self, c: AbstractConfiguration, v: Float[Array, "nv"], motion: tuple[Array, Array]
    ) -> Float[Array, "n_rotors"]:
        biases = [
            group.rows.take(c.coordinate_bias(group.group, v, *motion))[:, 0]
            for group in self.mechanism.rotors
        ]
        return -jnp.concatenate([v[:0], *biases])

    def intrinsic_names(self) -> list[str]:
        return [name for group in self.mechanism.rotors for name in group.names]

    def from_tree(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        elastic: Float[Array, "n_elastic"] | None = None,
    ) -> Float[Array, "nq"]:
        if elastic is None:
            elastic = jnp.zeros(self.mechanism.n_elastic, dtype=self.mechanism.dtype)
        poses = self._tree_poses(values, elastic)
        quaternions = jax.vmap(so3.from_matrix)(poses.R[1:])
        bodies = jnp.concatenate([poses.p[1:], quaternions], axis=1).ravel()
        rotors = [group.rows.take(values[group.group])[:, 0] for group in self.mechanism.rotors]
        return jnp.concatenate([bodies, elastic, *rotors])

    def _tree_poses(
        self, values: tuple[Float[Array, "_n _nq"], ...], elastic: Float[Array, "n_elastic"]
    ) -> Pose:
        return tree_poses(self.mechanism, values, self.mechanism.deformed_offsets(elastic))

    def from_tree_rates(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        rates: tuple[Float[Array, "_n _nv"], ...],
        elastic: Elastic | None = None,
    ) -> Float[Array, "nv"]:
        tangents = tree_tangents(self.mechanism, values, rates)
        if elastic is None:
            zeros = jnp.zeros(self.mechanism.n_elastic, dtype=self.mechanism.dtype)
            elastic = zeros, zeros
        primals, rates_of_primals = (values, elastic[0]), (tangents, elastic[1])
        poses, pose_rates = jax.jvp(self._tree_poses, primals, rates_of_primals)
        twists = jax.vmap(se3.velocity)(poses, pose_rates)[1:]
        rotors = [group.rows.take(rates[group.group])[:, 0] for group in self.mechanism.rotors]
        return jnp.concatenate([twists.ravel(), elastic[1], *rotors])

    def own_motion_residual(
        self,
        c: AbstractConfiguration,
        v: Float[Array, "nv"],
        vdot: Float[Array, "nv"],
        lam: Float[Array, "ng"] | None,
    ) -> Float[Array, "nv"]:
        """The residual computed body by body, without the mass matrix."""
        if not self.mechanism.all_rigid:
            residual = residual_by_bodies(self, c, v, vdot, lam)
            rotors = self.nv - self.n_rotors
            return residual.at[rotors:].add(self._reflected_inertias() * vdot[rotors:])
        (twists, _), (rates, turns) = self._split(v, 6), self._split(vdot, 6)
        W = jax.vmap(inertial_wrench)(self.mechanism.rigid, twists, rates)
        inertial = jnp.concatenate([W.ravel(), self._reflected_inertias() * turns])
        wrenches, joint_forces, intrinsic = forces_and_reactions(self, c, v, lam)
        return inertial - generalized(c, wrenches, joint_forces) - intrinsic

    def own_rest_residual(
        self, c: AbstractConfiguration, lam: Float[Array, "ng"] | None
    ) -> Float[Array, "nv"] | None:
        """-(f + Gᵀ λ) for rigid bodies, whose inertial forces are zero at rest."""
        if not self.mechanism.all_rigid:
            return None
        v = jnp.zeros(self.nv, c.q.dtype)
        wrenches, joint_forces, intrinsic = forces_and_reactions(self, c, v, lam)
        return -generalized(c, wrenches, joint_forces) - intrinsic

    def own_constrained_accelerations(
        self, t: Time, state: State, stabilization: AbstractStabilization | None
    ) -> tuple[Velocities, Float[Array, "ng"]] | None:
        return sparse_accelerations(self, t, state, stabilization)

    def own_port_accelerations(
        self, c: AbstractConfiguration, v: Float[Array, "nv"]
    ) -> Float[Array, "n_ports 6"] | None:
        """Zero for ports on rigid bodies: at v̇ = 0 twists along their own axes are constant."""
        if self.mechanism.n_elastic > 0:
            return None
        return jnp.zeros((self.mechanism.n_ports, 6), dtype=v.dtype)

    def own_jacobian(self, c: AbstractConfiguration) -> Float[Array, "ng nv"] | None:
        """The rows of a joint between rigid bodies have two nonzero blocks of six columns."""
        if self.mechanism.n_elastic > 0:
            return None
        mechanism, n, dtype = self.mechanism, self.mechanism.n_bodies, c.q.dtype
        parts = []
        for g in self.constrained:
            group, X_FM = mechanism.joints[g], c.relative_poses(g)
            count, m = len(group), n_rows(group.joint)
            if m == 0:
                continue
            D = constraints.local_jacobians(group, X_FM)
            rows = jnp.zeros((count, m, 1 + n, 6), dtype=dtype)
            for bodies, block in joint_motion.body_rows(mechanism, group, X_FM, D):
                joint_rows = jnp.arange(count, dtype=jnp.int32)
                rows = rows.at[joint_rows, :, bodies.traced(), :].add(block)
            joints = rows[:, :, 1:].reshape(count * m, 6 * n)
            rotors = jnp.zeros((count * m, self.n_rotors), dtype=dtype)
            parts.append(jnp.concatenate([joints, rotors], axis=1))
        empty = jnp.zeros((0, self.nv), dtype=dtype)
        return jnp.concatenate([empty, *parts, constraints.coordinate_jacobian(self, c)])


class MaximalConfiguration(AbstractPortConfiguration):
    """The configuration in maximal coordinates: a port has the twist of its body, taken there."""

    t: Float[Array, ""]
    q: Float[Array, "nq"]
    z: Float[Array, "nz"] | None
    mechanism: Mechanism
    ports: Pose
    relative: tuple[Pose | None, ...]
    offsets: Pose

    @property
    def nv(self) -> int:
        return self.q.size - self.mechanism.n_bodies

    @property
    def elastic(self) -> Float[Array, "n_elastic"]:
        first = 7 * self.mechanism.n_bodies
        return self.q[first : first + self.mechanism.n_elastic]

    def elastic_rates(self, v: Float[Array, "nv"]) -> Float[Array, "n_elastic"]:
        first = 6 * self.mechanism.n_bodies
        return v[first : first + self.mechanism.n_elastic]

    def twists(self, v: Float[Array, "nv"]) -> Float[Array, "n_ports 6"]:
        mechanism = self.mechanism
        bodies = v[: 6 * mechanism.n_bodies].reshape(-1, 6)
        bodies = jnp.concatenate([jnp.zeros((1, 6), dtype=v.dtype), bodies])
        if len(mechanism.port_bodies) == 0:
            return bodies
        carriers = mechanism.port_bodies.take(bodies)
        attached = jax.vmap(se3.transform_twist_back)(self.offsets, carriers)
        if mechanism.n_elastic > 0:
            attached = attached + mechanism.offset_twists(self.elastic, self.elastic_rates(v))
        return jnp.concatenate([bodies, attached])


@kernel
def _displaced(bodies: Float[Array, "n 7"], increments: Float[Array, "n 6"]) -> Float[Array, "n 7"]:
    """`se3.displaced` of all bodies."""
    return jax.vmap(se3.displaced)(bodies, increments)


def _inverse(J: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """Inverse of a symmetric 3 × 3 matrix by cofactors.

    The matrix is divided by its trace, as the determinant of a small inertia is zero in float32.
    """
    size = jnp.trace(J)
    J = J / size
    columns = jnp.stack([so3.cross(J[1], J[2]), so3.cross(J[2], J[0]), so3.cross(J[0], J[1])], 1)
    return columns / (J[0] @ columns[:, 0]) / size


# Accelerations and multipliers of large systems by sparse factorization ---------------------------
#     M v̇ - Gᵀ λ = f - b,   G v̇ = -γ - 2α ġ - β² g
#
# are linear equations with the sparsity pattern of an implicit step.

# From this number of unknowns on sparse solutions take less time than the dense G M⁻¹ Gᵀ.
MIN_UNKNOWNS = 1000


def sparse_accelerations(
    system: AbstractSystem, t: Time, state: State, stabilization: AbstractStabilization | None
) -> tuple[Velocities, Float[Array, "ng"]] | None:
    """v̇ and λ; NaN if the equations are singular.

    None for small systems and for systems with possibly redundant constraints: the dense method
    solves them.
    """
    ng = constraints.n_constraints(system)
    if system.nv + ng < MIN_UNKNOWNS or constraints.may_be_redundant(system):
        return None
    pattern = system.sparsity_pattern()
    assert pattern is not None
    zeros = jnp.zeros(system.nv + ng, state.q.dtype)
    x = linear_root(_equations, zeros, (system, t, state, stabilization), system.nv, pattern)
    return x[: system.nv], x[system.nv :]


def _equations(x: Float[Array, "n"], args: tuple[Any, ...]) -> Float[Array, "n"]:
    system, t, state, stabilization = args
    vdot, lam = x[: system.nv], x[system.nv :]
    c, v = system.configuration(t, state.q, state.z), state.v
    g_ddot = constraints.rate(system, c, vdot) + constraints.constraint_bias(system, c, v)
    if stabilization is not None:
        g = constraints.residual(system, c)
        g_ddot = g_ddot - stabilization.correction(g, constraint_rates(system, c, v))
    return jnp.concatenate([motion_residual(system, c, v, vdot, lam), g_ddot])
