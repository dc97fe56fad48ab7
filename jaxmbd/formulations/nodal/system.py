"""The common base of formulations in points and vectors.

The coordinates are nodes (points and vectors) that elements share. The centre of mass and the
vectors of every body are linear functions of the nodes. The mass matrix contains no rotations.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from ...joints.abstract import AbstractJoint
from ...lie import Pose, gram_schmidt, so3
from ...linear import UNROLLED_SIZE, solve_spd
from ...mechanism.groups import JointGroup
from ...mechanism.mechanism import Mechanism, tree_poses, tree_tangents
from ...system.abstract import AbstractSystem, Elastic, State, Time
from ...system.configuration import (
    AbstractConfiguration,
    AbstractPortConfiguration,
)
from ...system.mass_and_energy import Momentum
from ...system.nodal import AbstractNodalSystem, NodalFrame
from ...system.reactions import reactions_of_motion
from ..joint.system import JointSystem
from ..joint.tree_recursion import lay_out

Self = TypeVar("Self", bound="NodalSystem")


class Elements(eqx.Module):
    """Centres of mass `c`, shape `(n, 3)`, and vectors `B`, the columns of `(n, 3, 3)`."""

    c: Float[Array, "n 3"]
    B: Float[Array, "n 3 3"]


class Assembly(eqx.Module):
    """Quantities that do not depend on the state.

    - `geometry`: the result of `compute_geometry`.
    - `mass`, `factor`: mass matrix of the nodes, `(n_nodes, n_nodes)`, and its Cholesky factor.
    """

    geometry: Any
    mass: Float[Array, "n n"]
    factor: Float[Array, "n n"]


class NodalSystem(AbstractNodalSystem):
    """Equations in nodes: `q = [node 1, node 2, …]`, each of `width` coordinates.

    The mass matrix is that of the nodes, the same for each of the `width` coordinates.
    """

    mechanism: eqx.AbstractVar[Mechanism]
    assembly: eqx.AbstractVar[Assembly | None]
    width: eqx.AbstractClassVar[int]

    @property
    @abstractmethod
    def n_nodes(self) -> int:
        """Number of nodes that are coordinates."""

    @abstractmethod
    def compute_geometry(self) -> Any:
        """Quantities that depend on lengths only."""

    @abstractmethod
    def elements(self, nodes: Float[Array, "n_nodes width"]) -> Elements:
        """Elements from nodes, linear in them."""

    @abstractmethod
    def nodes_of(self, bodies: Pose) -> Float[Array, "n_nodes width"]:
        """Nodes of rigid bodies, where `bodies.p` are the centres of mass, shape `(n, 3)`."""

    @abstractmethod
    def node_mass(self) -> Float[Array, "n_nodes n_nodes"]:
        """Mass matrix of the nodes."""

    @property
    def nq(self) -> int:
        return self.n_nodes * self.width

    @property
    def nv(self) -> int:
        return self.nq

    @property
    def constrained(self) -> tuple[int, ...]:
        return ()  # Constraints of joints are shared nodes, or intrinsic constraints.

    def prepared(self: Self) -> Self:
        if self.assembly is not None:
            return self
        mass = self.node_mass()
        factor = jnp.linalg.cholesky(mass) if self.n_nodes > 0 else mass
        assembly = Assembly(self.geometry, mass, factor)
        return replace(self, assembly=assembly)

    @property
    def geometry(self) -> Any:
        """The result of `compute_geometry`."""
        return self.compute_geometry() if self.assembly is None else self.assembly.geometry

    def loop_closure_system(self) -> AbstractSystem:
        """The system in joint coordinates, in which bodies are rigid and nodes are not needed."""
        return JointSystem(self.mechanism, lay_out(self.mechanism))

    def retract(self, q: Float[Array, "nq"], dv: Float[Array, "nv"]) -> Float[Array, "nq"]:
        return q + dv

    def rates(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        return v

    def velocities(self, q: Float[Array, "nq"], q_dot: Float[Array, "nq"]) -> Float[Array, "nv"]:
        return q_dot

    def elements_at(self, q: Float[Array, "nq"]) -> Elements:
        """Elements at coordinates `q`."""
        return self.elements(q.reshape(self.n_nodes, self.width))

    def element_frames(self, q: Float[Array, "nq"]) -> NodalFrame:
        mechanism, elements = self.mechanism, self.elements_at(q)
        world = jnp.eye(3, dtype=q.dtype)[None]
        c = jnp.concatenate([jnp.zeros((1, 3), dtype=q.dtype), elements.c])
        B = jnp.concatenate([world, elements.B])
        offsets = mechanism.offsets
        carriers = mechanism.port_bodies.take(B)
        attached = mechanism.port_bodies.take(c) + jnp.einsum("nij,nj->ni", carriers, offsets.p)
        own = jnp.broadcast_to(world, B.shape)
        return NodalFrame(
            jnp.concatenate([c, attached]),
            jnp.concatenate([B, carriers]),
            jnp.concatenate([own, offsets.R]),
        )

    def configuration(
        self, t: Float[Array, ""], q: Float[Array, "nq"], z: Float[Array, "nz"] | None = None
    ) -> "NodalConfiguration":
        frames = self.element_frames(q)
        ports = _poses(self.mechanism, frames)
        relative = self.mechanism.relative_poses(ports, self.mechanism.observed)
        return NodalConfiguration(t, q, z, self.mechanism, ports, relative, frames, self)

    def mass_at(self, c: AbstractConfiguration) -> Float[Array, "nv nv"]:
        return jnp.kron(self._mass, jnp.eye(self.width, dtype=c.q.dtype))

    @property
    def _mass(self) -> Float[Array, "n_nodes n_nodes"]:
        return self.node_mass() if self.assembly is None else self.assembly.mass

    def momentum_of(self, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """Momentum M v of velocities `v` of the nodes, shape `(nv,)`."""
        return (self._mass @ v.reshape(self.n_nodes, self.width)).ravel()

    def solve_mass(
        self, c: AbstractConfiguration, f: Float[Array, "nv *k"]
    ) -> Float[Array, "nv *k"]:
        if self.n_nodes == 0:
            return f
        columns = f.reshape(self.n_nodes, -1)
        if self.n_nodes <= UNROLLED_SIZE or self.assembly is None:
            return solve_spd(self._mass, columns).reshape(f.shape)
        return jsl.cho_solve((self.assembly.factor, True), columns).reshape(f.shape)

    def apply_mass(self, c: AbstractConfiguration, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return self.momentum_of(v)

    def mass_factor(self, c: AbstractConfiguration) -> Float[Array, "n_nodes n_nodes"]:
        """Cholesky factor of the mass matrix of the nodes."""
        if self.assembly is not None:
            return self.assembly.factor
        return jnp.linalg.cholesky(self._mass) if self.n_nodes > 0 else self._mass

    def whiten(
        self, factor: Float[Array, "n_nodes n_nodes"], f: Float[Array, "nv *k"]
    ) -> Float[Array, "nv *k"]:
        if self.n_nodes == 0:
            return f
        columns = f.reshape(self.n_nodes, -1)
        return jsl.solve_triangular(factor, columns, lower=True).reshape(f.shape)

    def unwhiten(
        self, factor: Float[Array, "n_nodes n_nodes"], y: Float[Array, "nv"]
    ) -> Float[Array, "nv"]:
        if self.n_nodes == 0:
            return y
        columns = y.reshape(self.n_nodes, -1)
        return jsl.solve_triangular(factor, columns, trans=1, lower=True).reshape(y.shape)

    def bias_at(self, c: AbstractConfiguration, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return jax.grad(self.internal_potential)(c.q)

    def intrinsic_constraint(self, c: AbstractConfiguration) -> Float[Array, "n_intrinsic"]:
        return self.constraint_of(c.q)

    def intrinsic_rate(
        self, c: AbstractConfiguration, v: Float[Array, "nv"]
    ) -> Float[Array, "n_intrinsic"]:
        return jax.jvp(self.constraint_of, (c.q,), (v,))[1]

    def intrinsic_bias(
        self, c: AbstractConfiguration, v: Float[Array, "nv"], motion: tuple[Array, Array]
    ) -> Float[Array, "n_intrinsic"]:
        return jax.jvp(lambda q: jax.jvp(self.constraint_of, (q,), (v,))[1], (c.q,), (v,))[1]

    def from_tree(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        elastic: Float[Array, "n_elastic"] | None = None,
    ) -> Float[Array, "nq"]:
        poses = tree_poses(self.mechanism, values)
        return self.nodes_of(Pose(poses.p[1:], poses.R[1:])).ravel()

    def from_tree_rates(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        rates: tuple[Float[Array, "_n _nv"], ...],
        elastic: Elastic | None = None,
    ) -> Float[Array, "nv"]:
        tangents = tree_tangents(self.mechanism, values, rates)
        return jax.jvp(self.from_tree, (values,), (tangents,))[1]

    def own_port_accelerations(
        self, c: AbstractConfiguration, v: Float[Array, "nv"]
    ) -> Float[Array, "n_ports 6"]:
        """The derivative of twists by the frames, whose rates are constant at v̇ = 0."""
        assert isinstance(c, NodalConfiguration)
        mechanism, rates = self.mechanism, c.frame_rates(v)

        def twists(frames: NodalFrame) -> Float[Array, "n_ports 6"]:
            return _twists(mechanism, frames, _poses(mechanism, frames), rates)

        return jax.jvp(twists, (c.frames,), (rates,))[1]

    def own_kinetic_energy(
        self, c: AbstractConfiguration, v: Float[Array, "nv"]
    ) -> Float[Array, ""]:
        return 0.5 * v @ self.momentum_of(v)

    def own_momentum_at(self, c: AbstractConfiguration, v: Float[Array, "nv"]) -> Momentum:
        """P = Σ m ċ,  L = Σ c × m ċ + Σ A_kl b_k × ḃ_l."""
        bodies = self.mechanism.rigid
        now, rates = jax.jvp(self.elements_at, (c.q,), (v,))
        linear = bodies.mass[:, None] * rates.c
        A = jax.vmap(lambda body: second_moments(body.symmetric_inertia()))(bodies)
        spin = jax.vmap(lambda B, A, B_dot: 2.0 * _axial(B @ A @ B_dot.T))(now.B, A, rates.B)
        return Momentum(jnp.sum(linear, axis=0), jnp.sum(so3.cross(now.c, linear) + spin, axis=0))

    def own_reactions_of(
        self, t: Time, state: State, solved: tuple[Array, Array]
    ) -> dict[str, Float[Array, "6"]]:
        return reactions_of_motion(self, t, state, solved)


class NodalConfiguration(AbstractPortConfiguration):
    """The configuration in nodes: frames are fixed in elements, and follow their vectors."""

    t: Float[Array, ""]
    q: Float[Array, "nq"]
    z: Float[Array, "nz"] | None
    mechanism: Mechanism
    ports: Pose
    relative: tuple[Pose | None, ...]
    frames: NodalFrame
    system: NodalSystem

    @property
    def nv(self) -> int:
        return self.q.size

    def twists(self, v: Float[Array, "nv"]) -> Float[Array, "n_ports 6"]:
        return _twists(self.mechanism, self.frames, self.ports, self.frame_rates(v))

    def frame_rates(self, v: Float[Array, "nv"]) -> NodalFrame:
        """Time derivatives of the frames, which are linear in the coordinates."""
        return jax.jvp(self.system.element_frames, (self.q,), (v,))[1]


def _poses(mechanism: Mechanism, frames: NodalFrame) -> Pose:
    """Poses of all ports, from the orthonormalized vectors of the elements."""
    bodies = jax.vmap(gram_schmidt.orthonormal)(frames.B[: 1 + mechanism.n_bodies])
    carriers = jnp.concatenate([bodies, mechanism.port_bodies.take(bodies)])
    return Pose(frames.p, carriers @ frames.offset)


def _twists(
    mechanism: Mechanism, frames: NodalFrame, ports: Pose, rates: NodalFrame
) -> Float[Array, "n_ports 6"]:
    """Twists of all ports along their own axes, linear in the rates of the frames."""
    n = 1 + mechanism.n_bodies
    spin = jax.vmap(gram_schmidt.angular_velocity)(frames.B[:n], rates.B[:n])
    spin = jnp.concatenate([spin, mechanism.port_bodies.take(spin)])
    linear = jnp.einsum("nij,ni->nj", ports.R, rates.p)
    angular = jnp.einsum("nij,ni->nj", frames.offset, spin)
    return jnp.concatenate([linear, angular], axis=1)


def second_moments(inertia: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """A = ∫ ρ s sᵀ about the centre of mass, from the inertia J = tr(A) 1 - A [kg m²]."""
    return 0.5 * jnp.trace(inertia) * jnp.eye(3, dtype=inertia.dtype) - inertia


def _axial(T: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """½ Σ a × b of T = Σ a bᵀ."""
    return 0.5 * jnp.stack([T[1, 2] - T[2, 1], T[2, 0] - T[0, 2], T[0, 1] - T[1, 0]])


# Constraints of joints that shared points and vectors do not satisfy by themselves ----------------


def joint_residuals(
    group: JointGroup, frames: NodalFrame, residual, *own: Array
) -> Float[Array, "n m"]:
    """`residual(joint, F, M, *own)` of every joint of a group, with vectors as the frames' axes.

    Residuals of joints are quadratic in the entries of the two frames, hence in the coordinates.
    """
    F, M = (rows.take_tree(frames) for rows in (group.first, group.second))

    def of_one(joint: AbstractJoint, F: NodalFrame, M: NodalFrame, *own: Array) -> Array:
        return residual(joint, Pose(F.p, F.axes), Pose(M.p, M.axes), *own)

    return jax.vmap(of_one)(group.joint, F, M, *own)


def joined(parts: list[Array], dtype) -> Float[Array, "n"]:
    """The entries of several arrays as one vector."""
    return jnp.concatenate([jnp.zeros(0, dtype=dtype), *[part.ravel() for part in parts]])
