"""Natural coordinates: centres of mass and columns of rotation matrices, shared at joints, with
stiff springs for rigidity ("A three dimensional rigid body dynamic model based on finite element
methodology", after García de Jalón and Bayo; equations in square brackets are its own).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...joints import AbstractJoint
from ...joints.rotation import AxisRotation, NoRotation
from ...lie import Pose, vector
from ...mechanism.groups import JointGroup
from ...mechanism.mechanism import Mechanism, lower
from ...mechanism.rows import Rows, in_order
from ...mechanism.tree import descend
from ...model import Model
from ...model.model import unknown
from ...model.values import as_leaf, is_concrete
from ...system.abstract import ArtificialEnergyLimit
from ...system.two_point import secant_stiffness
from ..formulate import system_of
from . import remaining
from .representable import check_bodies, check_inertias, check_joints, check_rotors
from .shifted_to_com import shifted_to_com
from .system import Assembly, Elements, NodalSystem, second_moments

# The edges of the tetrahedron of the centre of mass and the tips of the three vectors.
EDGES = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [1, 0, -1], [0, 1, -1]])
LENGTHS = np.sqrt(np.sum(EDGES**2, axis=1))
# Scalar products of three orthonormal vectors, that of the third with itself last.
PAIRS = ((0, 0), (1, 1), (0, 1), (0, 2), (1, 2), (2, 2))


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
      kinetic energy among the states that it returns.

    `formulate` **raises** `ModelError`, naming the component, for a stiffness that is not positive,
    bodies that are flat (a vector would have no mass), rotors, and nonholonomic joints.
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
        if not tolerance > 0:
            raise ModelError(f"NaturalCoordinates: tolerance must be positive, got {tolerance}")
        self.stiffness = dict(stiffness) if isinstance(stiffness, Mapping) else stiffness
        self.rigid = rigid
        self.penalty = penalty
        self.tolerance = tolerance


def _own(group: JointGroup) -> tuple[int, int]:
    """How many points, and how many vectors, a body reached by such a joint has of its own.

    A body has four slots: the point of the tree joint that reaches it, and the three vectors of
    that joint's basis. The others it shares with its parent.
    """
    n_points = 1 if len(group.joint.translation) > 0 else 0
    if isinstance(group.joint.rotation, NoRotation):
        return n_points, 0
    return n_points, 2 if isinstance(group.joint.rotation, AxisRotation) else 3


def _n_products(group: JointGroup) -> int:
    """How many scalar products rigidity keeps that shared vectors do not."""
    n_vectors = _own(group)[1]
    return len(PAIRS) - 1 if n_vectors == 2 else 2 * n_vectors  # All but that of a shared axis.


class NaturalSystem(NodalSystem):
    """Equations in natural coordinates: the slots of the bodies that are their own."""

    mechanism: Mechanism
    stiffness: Float[Array, "n"] | None
    penalty: Float[Array, ""] | None
    tolerance: float = eqx.field(static=True)
    assembly: Assembly | None = None
    width: ClassVar[int] = 3

    @property
    def n_nodes(self) -> int:
        return sum(len(group) * sum(_own(group)) for group in self._tree)

    @property
    def _tree(self) -> list[JointGroup]:
        return [group for group in self.mechanism.joints if group.in_tree]

    def _in_order(self, parts: list[Any]) -> Any:
        """Values of bodies in their order, from those of the groups of tree joints."""
        return in_order([group.children for group in self._tree], self.mechanism.n_bodies, parts)

    def rigid(self) -> "NaturalSystem":
        return replace(self, stiffness=None, penalty=None)

    @property
    def artificial_energy_limit(self) -> ArtificialEnergyLimit | None:
        if self.stiffness is None and self.penalty is None:
            return None
        remedy = "raise the stiffness of NaturalCoordinates, or use NaturalCoordinates(rigid=True)"
        if self.stiffness is None:
            remedy = "raise the penalty of NaturalCoordinates, or leave it out"
        return ArtificialEnergyLimit(self.tolerance, remedy)

    def coordinates_in_words(self) -> list[str]:
        kind = "points and vectors of the bodies, shared where joints keep them together"
        return [f"q: {self.n_nodes} {kind}, 3 coordinates each; v: their rates"]

    def elements(self, nodes: Float[Array, "n_nodes 3"]) -> Elements:
        found = self._spread(nodes, jnp.eye(4, 3, -1, dtype=nodes.dtype))
        return Elements(found[:, 0], jnp.swapaxes(found[:, 1:], 1, 2))

    def _spread(self, nodes: Array, ground: Array) -> Float[Array, "n 4 k"]:
        """Local = P u + p₀: centre of mass and vectors, as rows, from nodes and the ground's."""
        parts, start = [], 0
        for group in self._tree:
            n, (n_points, n_vectors) = len(group), _own(group)
            stop = start + n * (n_points + n_vectors)
            own = nodes[start:stop].reshape(n, n_points + n_vectors, nodes.shape[1])
            start = stop

            def none(k: int, n: int = n) -> Array:
                return jnp.zeros((n, k, nodes.shape[1]), dtype=nodes.dtype)

            slots = jnp.concatenate([none(1 - n_points), own, none(3 - n_vectors)], axis=1)
            shared = [1.0 - n_points, *[0.0] * n_vectors, *[1.0] * (3 - n_vectors)]
            parts.append((slots, jnp.tile(jnp.asarray(shared, dtype=nodes.dtype), (n, 1))))
        slots, shared = self._in_order(parts)
        from_parent, to_element = self.geometry
        A = to_element @ (shared[:, :, None] * from_parent)
        return descend(
            self.mechanism,
            lambda above, own: own[0] @ above + own[1],
            ground,
            (A, to_element @ slots),
        )

    def compute_geometry(self) -> tuple[Float[Array, "n 4 4"], Float[Array, "n 4 4"]]:
        """Slots from the parent's element, and the element from slots, of every body."""
        mechanism = self.mechanism
        skip, parts = 1 + mechanism.n_bodies, []

        def transfers(joint: AbstractJoint, parent: Pose, child: Pose) -> tuple[Array, Array]:
            E = joint.basis()
            V, W = parent.R @ E, child.R @ E
            one, none = jnp.ones((1, 1), E.dtype), jnp.zeros((3, 1), E.dtype)
            take = jnp.block([[one, parent.p[None]], [none, V.T]])
            give = jnp.block([[one, -(child.p @ W)[None]], [none, W]])
            return take, give

        for group in self._tree:
            ends = (group.second, group.first) if group.reversed else (group.first, group.second)
            frames = (rows.shifted(-skip).take_tree(mechanism.offsets) for rows in ends)
            parts.append(jax.vmap(transfers)(group.joint, *frames))
        return self._in_order(parts)

    def _slots(self, found: Elements) -> Float[Array, "n 4 3"]:
        """Slots of elements: the inverse of `to_element`."""
        _, to_element = self.geometry
        W = to_element[:, 1:, 1:]  # Orthonormal.
        vectors = jnp.einsum("nka,nik->nai", W, found.B)
        point = found.c - jnp.einsum("na,nai->ni", to_element[:, 0, 1:], vectors)
        return jnp.concatenate([point[:, None], vectors], axis=1)

    def nodes_of(self, bodies: Pose) -> Float[Array, "n_nodes 3"]:
        slots, parts = self._slots(Elements(bodies.p, bodies.R)), []
        for group in self._tree:
            n_points, n_vectors = _own(group)
            own = group.children.take(slots)[:, 1 - n_points : 1 + n_vectors]
            parts.append(own.reshape(-1, 3))
        return jnp.concatenate(parts)

    def node_mass(self) -> Float[Array, "n_nodes n_nodes"]:
        """M* = Pᵀ diag(m, A) P, eq. [10], without the ⊗ 1₃ that all of it has."""
        units = jnp.eye(self.n_nodes, dtype=self.mechanism.dtype)
        P = self._spread(units, jnp.zeros((4, self.n_nodes), dtype=units.dtype))
        bodies = self.mechanism.rigid
        A = jax.vmap(lambda body: second_moments(body.symmetric_inertia()))(bodies)
        heavy = bodies.mass[:, None] * P[:, 0]
        turned = jnp.concatenate([heavy[:, None], A @ P[:, 1:]], axis=1)
        rows = 4 * self.mechanism.n_bodies
        return P.reshape(rows, self.n_nodes).T @ turned.reshape(rows, self.n_nodes)

    def _springs(self, q: Float[Array, "nq"]) -> Float[Array, "n 6 3"]:
        B = self.elements_at(q).B
        return jnp.einsum("ek,nik->nei", jnp.asarray(EDGES, dtype=q.dtype), B)

    def internal_potential(self, q: Float[Array, "nq"]) -> Float[Array, ""]:
        """Σ ½ k (L - L₀)², eq. [2], and ½ k g² of joints with a penalty."""
        total = jnp.zeros((), dtype=q.dtype)
        if self.stiffness is not None:
            lengths = jax.vmap(jax.vmap(vector.length))(self._springs(q))
            stretch = lengths - jnp.asarray(LENGTHS, dtype=q.dtype)[None]
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

    def constraint_of(self, q: Float[Array, "nq"]) -> Float[Array, "n_intrinsic"]:
        """Orthonormal vectors where there are no springs; what joints keep beside shared nodes."""
        parts = []
        if self.stiffness is None:
            vectors = self._slots(self.elements_at(q))[:, 1:]
            gram = jnp.einsum("nai,nbi->nab", vectors, vectors)
            products = jnp.stack([gram[:, i, j] - float(i == j) for i, j in PAIRS], axis=1)
            for group in self._tree:
                parts.append(group.children.take(products)[:, : _n_products(group)])
        if self.penalty is None:
            parts.append(self._joint_gaps(q))
        return remaining.joined(parts, q.dtype)

    def intrinsic_names(self) -> list[str]:
        bodies, names = self.mechanism.topology.bodies[1:], []
        if self.stiffness is None:
            for group in self._tree:
                names += [
                    bodies[row] for row in group.children.index for _ in range(_n_products(group))
                ]
        if self.penalty is None:
            for group in self.mechanism.joints:
                names += [name for name in group.names for _ in range(_n_kept(group))]
        return names

    def _joint_gaps(self, q: Float[Array, "nq"]) -> Float[Array, "n_gaps"]:
        frames = self.element_frames(q)
        return remaining.joined(
            [
                remaining.residuals(
                    group, frames, lambda joint, *X, group=group: _kept(group, joint, *X)
                )
                for group in self.mechanism.joints
                if _n_kept(group) > 0
            ],
            q.dtype,
        )


def _kept_rows(group: JointGroup) -> list[int]:
    """Which rows of a joint's residual no shared node keeps."""
    joint = group.joint
    k, n_turning, n = len(joint.translation), joint.rotation.n_fixed, joint.sizes()[2]
    if not group.in_tree:
        return list(range(n))
    along = range(3 - k) if k > 0 else range(0)
    turning = range(3 - k, 3 - k + n_turning) if n_turning == 1 else range(0)
    return [*along, *turning, *range(3 - k + n_turning, n)]  # The last relate the two.


def _n_kept(group: JointGroup) -> int:
    return len(_kept_rows(group))


def _kept(group: JointGroup, joint: AbstractJoint, F: Pose, M: Pose) -> Float[Array, "m"]:
    return Rows.of(_kept_rows(group)).take(joint.gap(F, M))


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
    return jnp.stack([leaf.astype(mechanism.dtype) for leaf in leaves])


def _positive(value: Any, what: str) -> Float[Array, ""]:
    leaf = as_leaf(value, (), f"NaturalCoordinates: {what}")
    if is_concrete(leaf) and not (np.isfinite(leaf) and leaf > 0):
        raise ModelError(f"NaturalCoordinates: {what} must be positive, got {float(leaf)}")
    return leaf


@system_of.register
def _(formulation: NaturalCoordinates, model: Model) -> NaturalSystem:
    mechanism = shifted_to_com(check_bodies("NaturalCoordinates", lower(model)))
    check_rotors("NaturalCoordinates", mechanism)
    check_joints("NaturalCoordinates", mechanism)
    check_inertias("NaturalCoordinates", mechanism)
    penalty = formulation.penalty
    return NaturalSystem(
        mechanism=mechanism,
        stiffness=None if formulation.rigid else _stiffnesses(formulation, mechanism),
        penalty=None if penalty is None else _positive(penalty, "penalty").astype(mechanism.dtype),
        tolerance=formulation.tolerance,
    )
