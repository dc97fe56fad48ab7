"""Natural coordinates: centres of mass and columns of rotation matrices, shared at joints.

Stiff springs, or constraints, keep the bodies rigid. Source: "A three dimensional rigid body
dynamic model based on finite element methodology", after García de Jalón and Bayo; equation numbers
in square brackets refer to it.
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
from ...mechanism.groups import IndexSet, JointGroup, in_order
from ...mechanism.lowering import lower
from ...mechanism.mechanism import Mechanism, forward_pass
from ...model import Model
from ...model.model import unknown
from ...model.values import as_leaf, as_positive, is_concrete
from ...system.abstract import AbstractFormulation, ArtificialEnergyLimit
from ...system.discrete_gradients import secant_stiffness
from .check_model import (
    check_bodies,
    check_inertias,
    check_joints,
    check_rotors,
    with_bodies_at_com,
)
from .system import Assembly, Elements, NodalSystem, joined, joint_residuals, second_moments

# The edges of the tetrahedron of the centre of mass and the tips of the three vectors.
EDGES = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [1, 0, -1], [0, 1, -1]])
LENGTHS = np.sqrt(np.sum(EDGES**2, axis=1))
# Scalar products of three orthonormal vectors; the product of the third with itself is last.
PAIRS = ((0, 0), (1, 1), (0, 1), (0, 2), (1, 2), (2, 2))


class NaturalCoordinates(AbstractFormulation):
    """Points and vectors of the bodies, without rotational coordinates.

    Each body is an element of four nodes: its centre of mass and the columns of its rotation
    matrix. Six springs between these nodes keep the body nearly rigid, without constraints. The
    mass matrix is constant. Two bodies that a joint of the spanning tree connects share the joint's
    point, and the directions that the joint fixes, as nodes. The remaining constraints of joints,
    and those of loop joints, are quadratic constraints, or springs.

    The springs deform: the motion differs from that of rigid bodies by the order of 1 / stiffness.
    They also vibrate at high frequencies: use `SimoGonzalez` or another implicit integrator.
    `accelerations` includes these vibrations: springs of their natural length exert no centripetal
    force. Accelerometers, reactions and driving forces belong to rigid bodies of the same motion.

    **Arguments:**

    - `stiffness`: stiffness of the springs [N/m] for vectors of length 1 m; one for all bodies or
      `{body: stiffness}`. Default: 1e6.
    - `rigid`: whether constraints keep the vectors orthonormal; `stiffness` is then ignored.
      Default: False.
    - `penalty`: stiffness [N/m, N m] of springs instead of the constraints of joints. Default:
      None, constraints.
    - `tolerance`: `simulate` warns if the energy of the springs exceeds this part of the largest
      kinetic energy among the states that it returns. Default: 0.01.

    `formulate` **raises** `ModelError`, naming the component, for a stiffness that is not positive,
    for flat bodies (a vector would have no mass), for rotors, and for nonholonomic joints.

    For example:

        box = mbd.inertia.shifted(mbd.inertia.box(1.0, [1.0, 0.1, 0.1]), [0.5, 0, 0])
        system = mbd.formulate(model.replace({"bodies.rod": box}), mbd.NaturalCoordinates(1e6))
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
        self.tolerance = as_positive(tolerance, "NaturalCoordinates: tolerance")

    def system(self, model: Model) -> "NaturalSystem":
        mechanism = with_bodies_at_com(check_bodies("NaturalCoordinates", lower(model)))
        check_rotors("NaturalCoordinates", mechanism)
        check_joints("NaturalCoordinates", mechanism)
        check_inertias("NaturalCoordinates", mechanism)
        penalty, dtype = self.penalty, mechanism.dtype
        return NaturalSystem(
            mechanism=mechanism,
            stiffness=None if self.rigid else _stiffnesses(self, mechanism),
            penalty=None if penalty is None else _positive(penalty, "penalty").astype(dtype),
            tolerance=self.tolerance,
        )


def _own(group: JointGroup) -> tuple[int, int]:
    """Numbers of points and of vectors that the child body of a tree joint has of its own.

    A body has four slots: the point of its tree joint, and the three vectors of that joint's basis.
    The body shares the other slots with its parent.
    """
    n_points = 1 if len(group.joint.translation) > 0 else 0
    if isinstance(group.joint.rotation, NoRotation):
        return n_points, 0
    return n_points, 2 if isinstance(group.joint.rotation, AxisRotation) else 3


def _n_products(group: JointGroup) -> int:
    """Number of scalar products that are constraints, not constant by shared vectors."""
    n_vectors = _own(group)[1]
    return len(PAIRS) - 1 if n_vectors == 2 else 2 * n_vectors  # Without that of a shared axis.


class NaturalSystem(NodalSystem):
    """Equations in natural coordinates: the slots that bodies do not share with their parents."""

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
        """Values of bodies in their order, from values by groups of tree joints."""
        return in_order([group.children for group in self._tree], self.mechanism.n_bodies, parts)

    def rigid(self) -> "NaturalSystem":
        return replace(self, stiffness=None, penalty=None)

    @property
    def artificial_energy_limit(self) -> ArtificialEnergyLimit | None:
        if self.stiffness is None and self.penalty is None:
            return None
        remedy = "raise the stiffness of NaturalCoordinates, or use NaturalCoordinates(rigid=True)"
        if self.stiffness is None:
            remedy = "raise the penalty of NaturalCoordinates, or omit it"
        return ArtificialEnergyLimit(self.tolerance, remedy)

    def coordinates_in_words(self) -> list[str]:
        kind = "points and vectors of the bodies, shared at joints"
        return [f"q: {self.n_nodes} {kind}, 3 coordinates each; v: their rates"]

    def sizes(self, length: Float[Array, ""]) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
        parts = []
        for group in self._tree:
            n_points, n_vectors = _own(group)
            points, vectors = jnp.full(3 * n_points, length), jnp.ones(3 * n_vectors, length.dtype)
            parts.append(jnp.tile(jnp.concatenate([points, vectors]), len(group)))
        sizes = jnp.concatenate([jnp.zeros(0, length.dtype), *parts])
        return sizes, sizes

    def elements(self, nodes: Float[Array, "n_nodes 3"]) -> Elements:
        rows = self._local_nodes(nodes, jnp.eye(4, 3, -1, dtype=nodes.dtype))
        return Elements(rows[:, 0], jnp.swapaxes(rows[:, 1:], 1, 2))

    def _local_nodes(self, nodes: Array, ground: Array) -> Float[Array, "n 4 k"]:
        """P u + p₀: centre of mass and vectors of every body, as rows, from nodes u."""
        parts, start = [], 0
        for group in self._tree:
            n, (n_points, n_vectors) = len(group), _own(group)
            stop = start + n * (n_points + n_vectors)
            own = nodes[start:stop].reshape(n, n_points + n_vectors, nodes.shape[1])
            start = stop

            def zeros(k: int, n: int = n) -> Array:
                return jnp.zeros((n, k, nodes.shape[1]), dtype=nodes.dtype)

            slots = jnp.concatenate([zeros(1 - n_points), own, zeros(3 - n_vectors)], axis=1)
            shared = [1.0 - n_points, *[0.0] * n_vectors, *[1.0] * (3 - n_vectors)]
            parts.append((slots, jnp.tile(jnp.asarray(shared, dtype=nodes.dtype), (n, 1))))
        slots, shared = self._in_order(parts)
        from_parent, to_element = self.geometry
        A = to_element @ (shared[:, :, None] * from_parent)
        return forward_pass(
            self.mechanism,
            lambda above, own: own[0] @ above + own[1],
            ground,
            (A, to_element @ slots),
        )

    def compute_geometry(self) -> tuple[Float[Array, "n 4 4"], Float[Array, "n 4 4"]]:
        """For every body, the maps from the parent's element to slots, and from them to element."""
        mechanism = self.mechanism
        skip, parts = 1 + mechanism.n_bodies, []

        def transfers(joint: AbstractJoint, parent: Pose, child: Pose) -> tuple[Array, Array]:
            E = joint.basis()
            V, W = parent.R @ E, child.R @ E
            one, zeros = jnp.ones((1, 1), E.dtype), jnp.zeros((3, 1), E.dtype)
            from_parent = jnp.block([[one, parent.p[None]], [zeros, V.T]])
            to_element = jnp.block([[one, -(child.p @ W)[None]], [zeros, W]])
            return from_parent, to_element

        for group in self._tree:
            ends = (group.second, group.first) if group.reversed else (group.first, group.second)
            frames = (rows.shifted(-skip).take_tree(mechanism.offsets) for rows in ends)
            parts.append(jax.vmap(transfers)(group.joint, *frames))
        return self._in_order(parts)

    def _slots(self, elements: Elements) -> Float[Array, "n 4 3"]:
        """Slots of elements: the inverse of `to_element`."""
        _, to_element = self.geometry
        W = to_element[:, 1:, 1:]  # Orthonormal.
        vectors = jnp.einsum("nka,nik->nai", W, elements.B)
        point = elements.c - jnp.einsum("na,nai->ni", to_element[:, 0, 1:], vectors)
        return jnp.concatenate([point[:, None], vectors], axis=1)

    def nodes_of(self, bodies: Pose) -> Float[Array, "n_nodes 3"]:
        slots, parts = self._slots(Elements(bodies.p, bodies.R)), []
        for group in self._tree:
            n_points, n_vectors = _own(group)
            own = group.children.take(slots)[:, 1 - n_points : 1 + n_vectors]
            parts.append(own.reshape(-1, 3))
        return jnp.concatenate(parts)

    def node_mass(self) -> Float[Array, "n_nodes n_nodes"]:
        """M* = Pᵀ diag(m, A) P, eq. [10], without the factor ⊗ 1₃."""
        units = jnp.eye(self.n_nodes, dtype=self.mechanism.dtype)
        P = self._local_nodes(units, jnp.zeros((4, self.n_nodes), dtype=units.dtype))
        bodies = self.mechanism.rigid
        A = jax.vmap(lambda body: second_moments(body.symmetric_inertia()))(bodies)
        centres = bodies.mass[:, None] * P[:, 0]
        weighted = jnp.concatenate([centres[:, None], A @ P[:, 1:]], axis=1)
        rows = 4 * self.mechanism.n_bodies
        return P.reshape(rows, self.n_nodes).T @ weighted.reshape(rows, self.n_nodes)

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
            total = total + 0.5 * self.penalty * jnp.sum(self._joint_residuals(q) ** 2)
        return total

    def internal_force_between(
        self, q0: Float[Array, "nq"], q1: Float[Array, "nq"]
    ) -> Float[Array, "nv"]:
        """S (d₀ + d₁) / 2 of every spring, eqs [16] and [19]."""
        total = jnp.zeros_like(q0)
        if self.stiffness is not None:
            d0, transpose = jax.vjp(self._springs, q0)
            d1 = self._springs(q1)
            of_body = jax.vmap(secant_stiffness, in_axes=(None, 0, 0, 0))
            rest = jnp.asarray(LENGTHS, dtype=q0.dtype)
            S = jax.vmap(of_body, in_axes=(0, None, 0, 0))(self.stiffness, rest, d0, d1)
            total = total + transpose(S[:, :, None] * 0.5 * (d0 + d1))[0]
        if self.penalty is not None:
            mean = 0.5 * (self._joint_residuals(q0) + self._joint_residuals(q1))
            # The change of a quadratic function is its derivative at the midpoint times the step.
            _, transpose = jax.vjp(self._joint_residuals, 0.5 * (q0 + q1))
            total = total + transpose(self.penalty * mean)[0]
        return total

    def constraint_of(self, q: Float[Array, "nq"]) -> Float[Array, "n_intrinsic"]:
        """Residuals of rigidity, if there are no springs, and of joints beyond shared nodes."""
        parts = []
        if self.stiffness is None:
            vectors = self._slots(self.elements_at(q))[:, 1:]
            gram = jnp.einsum("nai,nbi->nab", vectors, vectors)
            products = jnp.stack([gram[:, i, j] - float(i == j) for i, j in PAIRS], axis=1)
            for group in self._tree:
                parts.append(group.children.take(products)[:, : _n_products(group)])
        if self.penalty is None:
            parts.append(self._joint_residuals(q))
        return joined(parts, q.dtype)

    def intrinsic_names(self) -> list[str]:
        bodies, names = self.mechanism.topology.bodies[1:], []
        if self.stiffness is None:
            for group in self._tree:
                names += [
                    bodies[row] for row in group.children.index for _ in range(_n_products(group))
                ]
        if self.penalty is None:
            for group in self.mechanism.joints:
                names += [name for name in group.names for _ in range(_n_remaining(group))]
        return names

    def _joint_residuals(self, q: Float[Array, "nq"]) -> Float[Array, "n_residuals"]:
        frames = self.element_frames(q)
        return joined(
            [
                joint_residuals(
                    group, frames, lambda joint, *X, group=group: _remaining(group, joint, *X)
                )
                for group in self.mechanism.joints
                if _n_remaining(group) > 0
            ],
            q.dtype,
        )


def _remaining_rows(group: JointGroup) -> list[int]:
    """Rows of a joint's residual that shared nodes do not satisfy."""
    joint = group.joint
    k, n_rotation, n = len(joint.translation), joint.rotation.n_fixed, joint.sizes()[2]
    if not group.in_tree:
        return list(range(n))
    translation = range(3 - k) if k > 0 else range(0)
    rotation = range(3 - k, 3 - k + n_rotation) if n_rotation == 1 else range(0)
    # The last rows relate translation and rotation.
    return [*translation, *rotation, *range(3 - k + n_rotation, n)]


def _n_remaining(group: JointGroup) -> int:
    return len(_remaining_rows(group))


def _remaining(group: JointGroup, joint: AbstractJoint, F: Pose, M: Pose) -> Float[Array, "m"]:
    return IndexSet.of(_remaining_rows(group)).take(joint.frame_residual(F, M))


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
