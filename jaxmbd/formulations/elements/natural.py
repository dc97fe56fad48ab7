"""Natural coordinates: centres of mass and columns of rotation matrices, shared at joints, with
stiff springs for rigidity ("A three dimensional rigid body dynamic model based on finite element
methodology", after García de Jalón and Bayo; equations in square brackets are its own).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...joints import AbstractJoint
from ...joints.rotation import AxisRotation, NoRotation, TwoAxisRotation
from ...lie import Pose, vector
from ...model import Model
from ...model.model import unknown
from ...model.values import as_leaf, is_concrete
from ...system.groups import JointGroup
from ...system.mechanism import Mechanism, lower
from ...system.rows import Rows, inverse
from ...system.tree import descend
from ...system.two_point import secant_stiffness
from ..formulate import system_of
from . import leftover
from .centred import centred
from .representable import check_inertias, check_rotors
from .system import Assembly, Elements, ElementSystem, second_moments

# The edges of the tetrahedron of the centre of mass and the tips of the three vectors.
EDGES = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [1, 0, -1], [0, 1, -1]])
LENGTHS = np.sqrt(np.sum(EDGES**2, axis=1))
# Scalar products of three vectors that are orthonormal: which of them, and what they come to.
PAIRS = ((0, 0), (1, 1), (0, 1), (0, 2), (1, 2), (2, 2))
PRODUCTS = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 1.0])


class NaturalCoordinates(eqx.Module):
    """Points and vectors of the bodies, without rotational coordinates.

    Each body is an element of four nodes: its centre of mass and the columns of its rotation
    matrix. Six springs between these stand in for rigidity, so that nothing is constrained and the
    mass matrix is constant. Along the spanning tree, the joint's point is a node that two bodies
    share, and so is every direction that the joint keeps; what a joint keeps beyond that, and loop
    joints, are quadratic constraints, or springs too.

    Springs deform, the motion differs from the rigid one by the order of 1 / stiffness, and they
    vibrate, fast: use `SimoGonzalez` or another implicit integrator.

    **Arguments:**

    - `stiffness`: of the springs [N/m], the vectors being 1 m long; one for all bodies or
      `{body: stiffness}`.
    - `rigid`: constrain the vectors to be orthonormal instead; `stiffness` then is not looked at.
    - `penalty`: stiffness [N/m, N m] of springs in place of the constraints of joints; constraints
      where left out.
    - `tolerance`: `simulate` warns where the springs hold more than this part of the largest
      kinetic energy.

    `formulate` **raises** `ModelError`, naming the component, for a stiffness that is not positive,
    bodies that are flat (a vector would have no mass), and armatures.
    """

    stiffness: Any
    penalty: Any
    rigid: bool = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)

    def __init__(
        self,
        stiffness: Any = 1e6,
        rigid: bool = False,
        penalty: Any = None,
        tolerance: float = 0.01,
    ):
        self.stiffness = dict(stiffness) if isinstance(stiffness, Mapping) else stiffness
        self.rigid = rigid
        self.penalty = penalty
        self.tolerance = tolerance


@dataclass(frozen=True)
class Sharing:
    """Which nodes are coordinates.

    A body has four slots: the point of the tree joint that reaches it, and the three vectors of
    that joint's basis.

    - `own`: entries (4 body + slot) of the slots that are its own, the others being its parent's.
    - `rigid`: entries (6 body + product) of the scalar products that rigidity keeps and no shared
      vector does already.
    """

    own: Rows
    rigid: Rows


def share(mechanism: Mechanism) -> Sharing:
    """Slots by the kinds of the tree's joints."""
    own = np.zeros((mechanism.n_bodies, 4), dtype=bool)
    products = np.zeros((mechanism.n_bodies, 6), dtype=bool)
    for group in mechanism.joints:
        if not group.in_tree:
            continue
        own[group.children.array, 0] = len(group.joint.translation) > 0
        n_vectors, n_products = 3, 6
        if isinstance(group.joint.rotation, AxisRotation):
            n_vectors, n_products = 2, 5  # The length of the axis is its own in the parent.
        elif isinstance(group.joint.rotation, NoRotation):
            n_vectors, n_products = 0, 0
        own[group.children.array, 1 : 1 + n_vectors] = True
        products[group.children.array, :n_products] = True
    return Sharing(*(Rows.of(np.flatnonzero(which)) for which in (own, products)))


class NaturalSystem(ElementSystem):
    """Equations in natural coordinates: the slots of the bodies that are their own."""

    mechanism: Mechanism
    stiffness: Float[Array, "n"] | None
    penalty: Float[Array, ""] | None
    tolerance: float = eqx.field(static=True)
    sharing: Sharing = eqx.field(static=True)
    assembly: Assembly | None = None
    width: ClassVar[int] = 3

    @property
    def n_nodes(self) -> int:
        return len(self.sharing.own)

    def rigid(self) -> "NaturalSystem":
        return replace(self, stiffness=None, penalty=None)

    def elements(self, nodes: Float[Array, "n_nodes 3"]) -> Elements:
        found = self._spread(nodes, jnp.eye(4, 3, -1, dtype=nodes.dtype))
        return Elements(found[:, 0], jnp.swapaxes(found[:, 1:], 1, 2))

    def _spread(self, nodes: Array, ground: Array) -> Float[Array, "n 4 k"]:
        """Local = P u + p₀: centre of mass and vectors, as rows, from nodes and the ground's."""
        n = self.mechanism.n_bodies
        slots = jnp.zeros((4 * n, nodes.shape[1]), dtype=nodes.dtype)
        slots = self.sharing.own.add_to(slots, nodes).reshape(n, 4, -1)
        from_parent, to_element = self.geometry
        shared = 1.0 - self._own_mask()
        A = to_element @ (shared[:, :, None] * from_parent)
        return descend(
            self.mechanism,
            lambda above, own: own[0] @ above + own[1],
            ground,
            (A, to_element @ slots),
        )

    def _own_mask(self) -> Float[Array, "n 4"]:
        mask = np.zeros(4 * self.mechanism.n_bodies)
        mask[self.sharing.own.array] = 1.0
        return jnp.asarray(mask.reshape(-1, 4), dtype=self.mechanism.dtype)

    def work_out(self) -> tuple[Float[Array, "n 4 4"], Float[Array, "n 4 4"]]:
        """Slots from the parent's element, and the element from slots, of every body."""
        mechanism = self.mechanism
        skip, parts = 1 + mechanism.n_bodies, []
        groups = [group for group in mechanism.joints if group.in_tree]
        for group in groups:
            ends = (group.second, group.first) if group.reversed else (group.first, group.second)
            on_parent, on_child = (
                rows.shifted(-skip).take_tree(mechanism.offsets) for rows in ends
            )

            def transfers(joint: AbstractJoint, parent, child) -> tuple[Array, Array]:
                E = joint.basis()
                V, W = parent.R @ E, child.R @ E
                one, none = jnp.ones((1, 1), E.dtype), jnp.zeros((3, 1), E.dtype)
                take = jnp.block([[one, parent.p[None]], [none, V.T]])
                give = jnp.block([[one, -(child.p @ W)[None]], [none, W]])
                return take, give

            parts.append(jax.vmap(transfers)(group.joint, on_parent, on_child))
        order = inverse([group.children for group in groups], mechanism.n_bodies)
        return jax.tree.map(lambda *x: order.take(jnp.concatenate(x)), *parts)

    def _slots(self, found: Elements) -> Float[Array, "n 4 3"]:
        """Slots of elements: the inverse of `to_element`."""
        _, to_element = self.geometry
        W = to_element[:, 1:, 1:]  # Orthonormal.
        vectors = jnp.einsum("nka,nik->nai", W, found.B)
        point = found.c - jnp.einsum("na,nai->ni", to_element[:, 0, 1:], vectors)
        return jnp.concatenate([point[:, None], vectors], axis=1)

    def nodes_of(self, bodies: Pose) -> Float[Array, "n_nodes 3"]:
        return self.sharing.own.take(self._slots(Elements(bodies.p, bodies.R)).reshape(-1, 3))

    def node_mass(self) -> Float[Array, "n_nodes n_nodes"]:
        """M* = Pᵀ diag(m, A) P, eq. [10], without the ⊗ 1₃ that all of it has."""
        units = jnp.eye(self.n_nodes, dtype=self.mechanism.dtype)
        P = self._spread(units, jnp.zeros((4, self.n_nodes), dtype=units.dtype))
        bodies = self.mechanism.bodies
        A = jax.vmap(lambda body: second_moments(body.symmetric_inertia()))(bodies)
        heavy = bodies.mass[:, None] * P[:, 0]
        turned = jnp.concatenate([heavy[:, None], A @ P[:, 1:]], axis=1)
        rows = P.reshape(-1, self.n_nodes)
        return rows.T @ turned.reshape(-1, self.n_nodes)

    def _springs(self, q: Float[Array, "nq"]) -> Float[Array, "n 6 3"]:
        B = self.elements_at(q).B
        return jnp.einsum("ek,nik->nei", jnp.asarray(EDGES, dtype=q.dtype), B)

    def internal_potential(self, q: Float[Array, "nq"]) -> Float[Array, ""]:
        """Σ ½ k (L - L₀)², eq. [2], and ½ k g² of joints with a penalty."""
        total = jnp.zeros((), dtype=q.dtype)
        if self.stiffness is not None:
            lengths = jax.vmap(jax.vmap(vector.length))(self._springs(q))
            stretch = lengths - jnp.asarray(LENGTHS, dtype=q.dtype)
            total = total + 0.5 * jnp.sum(self.stiffness[:, None] * stretch**2)
        if self.penalty is not None:
            total = total + 0.5 * self.penalty * jnp.sum(self._joint_gaps(q) ** 2)
        return total

    def internal_force_between(
        self, q0: Float[Array, "nq"], q1: Float[Array, "nq"]
    ) -> Float[Array, "nv"]:
        """S (d₀ + d₁) / 2 of every spring, eqs [16] and [19]."""
        total = jnp.zeros_like(q0)
        if self.stiffness is not None:
            d0, back = jax.vjp(self._springs, q0)
            d1 = self._springs(q1)
            each = jax.vmap(secant_stiffness, in_axes=(None, 0, 0, 0))
            rest = jnp.asarray(LENGTHS, dtype=q0.dtype)
            S = jax.vmap(each, in_axes=(0, None, 0, 0))(self.stiffness, rest, d0, d1)
            total = total + back(S[:, :, None] * 0.5 * (d0 + d1))[0]
        if self.penalty is not None:
            mean = 0.5 * (self._joint_gaps(q0) + self._joint_gaps(q1))
            # The change of a quadratic function is its slope halfway, times the step.
            total = total + jax.vjp(self._joint_gaps, 0.5 * (q0 + q1))[1](self.penalty * mean)[0]
        return total

    def intrinsic_constraint(self, q: Float[Array, "nq"]) -> Float[Array, "n_intrinsic"]:
        """Orthonormal vectors where there are no springs; what joints keep beside shared nodes."""
        parts = []
        if self.stiffness is None:
            vectors = self._slots(self.elements_at(q))[:, 1:]
            gram = jnp.einsum("nai,nbi->nab", vectors, vectors)
            i, j = np.transpose(PAIRS)
            products = gram[:, i, j] - jnp.asarray(PRODUCTS, dtype=q.dtype)
            parts.append(self.sharing.rigid.take(products.ravel()))
        if self.penalty is None:
            parts.append(self._joint_gaps(q))
        return leftover.joined(parts, q.dtype)

    def intrinsic_names(self) -> list[str]:
        bodies, names = self.mechanism.topology.bodies[1:], []
        if self.stiffness is None:
            names += [bodies[entry // 6] for entry in self.sharing.rigid.index]
        if self.penalty is None:
            for group in self.mechanism.joints:
                names += [name for name in group.names for _ in range(_n_kept(group))]
        return names

    def _joint_gaps(self, q: Float[Array, "nq"]) -> Float[Array, "n_gaps"]:
        frames = self.element_frames(q)
        return leftover.joined(
            [
                leftover.gaps(group, frames, lambda joint, X, group=group: _kept(group, joint, X))
                for group in self.mechanism.joints
                if _n_kept(group) > 0
            ],
            q.dtype,
        )


def _n_kept(group: JointGroup) -> int:
    """How many motions a joint keeps that no shared node does."""
    k, rotation = len(group.joint.translation), group.joint.rotation
    if not group.in_tree:
        return 3 - k + rotation.n_fixed
    along = 3 - k if k > 0 else 0
    return along + (1 if isinstance(rotation, TwoAxisRotation) else 0)


def _kept(group: JointGroup, joint: AbstractJoint, X_FM: Pose) -> Float[Array, "m"]:
    """Those rows of the joint's residual."""
    rows = joint.residual(X_FM)
    if not group.in_tree:
        return rows
    k, rotation = len(joint.translation), joint.rotation
    parts = [rows[: 3 - k]] if k > 0 else []
    if isinstance(rotation, TwoAxisRotation):
        parts.append(rows[3 - k :])
    return jnp.concatenate(parts)


def _stiffnesses(formulation: NaturalCoordinates, mechanism: Mechanism) -> Float[Array, "n"]:
    names, given = mechanism.topology.bodies[1:], formulation.stiffness
    if isinstance(given, dict):
        for name in given:
            if name not in names:
                raise ModelError(
                    unknown(
                        "NaturalCoordinates: stiffness: unknown body", name, dict.fromkeys(names)
                    )
                )
        for name in names:
            if name not in given:
                raise ModelError(f"NaturalCoordinates: stiffness: body {name!r} has none")
    leaves = [
        _positive(given[name] if isinstance(given, dict) else given, f"stiffness of body {name!r}")
        for name in names
    ]
    return jnp.stack(leaves).astype(mechanism.dtype)


def _positive(value: Any, what: str) -> Float[Array, ""]:
    leaf = as_leaf(value, (), f"NaturalCoordinates: {what}")
    if is_concrete(leaf) and not (np.isfinite(leaf) and leaf > 0):
        raise ModelError(f"NaturalCoordinates: {what} must be positive, got {float(leaf)}")
    return leaf


@system_of.register
def _(formulation: NaturalCoordinates, model: Model) -> NaturalSystem:
    mechanism = centred(lower(model))
    check_rotors("NaturalCoordinates", mechanism)
    check_inertias("NaturalCoordinates", mechanism)
    penalty = formulation.penalty
    return NaturalSystem(
        mechanism=mechanism,
        stiffness=None if formulation.rigid else _stiffnesses(formulation, mechanism),
        penalty=None if penalty is None else _positive(penalty, "penalty").astype(mechanism.dtype),
        tolerance=formulation.tolerance,
        sharing=share(mechanism),
    )
