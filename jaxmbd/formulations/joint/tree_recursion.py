"""Tree recursions: forward and backward passes over nodes in depth-first order, one scan each.

Articulated bodies, which take such passes, and the layout of the joints of a tree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...mechanism.groups import IndexSet
from ...mechanism.mechanism import Mechanism

Above = TypeVar("Above")
Beyond = TypeVar("Beyond")
Own = TypeVar("Own")
Result = TypeVar("Result")

ROOT = -1


@dataclass(frozen=True)
class TreeRecursion:
    """Nodes 0, 1, …, each after its parent; nodes without a parent have the parent `ROOT`.

    The carry of a pass has only the values that later nodes need, in a few slots: one for a chain
    of any length, and for a tree about one per branch that is open at the same time. The program
    does not grow with the number of nodes.
    """

    parents: tuple[int, ...]

    @cached_property
    def _plan(self) -> "_Plan":
        parents, n = self.parents, len(self.parents)
        children = np.bincount(np.asarray(parents, dtype=int) + 1, minlength=n + 1)
        remaining = children.copy()
        slot, free, size = {ROOT: 0}, [], 1
        read, write = np.zeros(n, np.int32), np.full(n, -1, np.int32)
        last = np.zeros(n, bool)
        for i, parent in enumerate(parents):
            assert parent < i, "a parent comes before its children"
            read[i] = slot[parent]
            remaining[parent + 1] -= 1
            if remaining[parent + 1] == 0:  # Its slot is free again, also for this node.
                last[i] = True
                free.append(slot[parent])
            if children[i + 1]:
                if not free:
                    free.append(size)
                    size += 1
                slot[i] = write[i] = free.pop()
        inner = write >= 0
        return _Plan(read, np.where(inner, write, size).astype(np.int32), last, inner, size + 1)

    def forward(self, step: Callable[[Above, Own], Above], root: Above, own: Own) -> Above:
        """Values of all nodes from root to tips: `step(value of the parent, own row)`."""
        plan = self._plan
        slots = jax.tree.map(lambda x: jnp.broadcast_to(x, (plan.size, *x.shape)), root)

        def one_node(slots: Above, node: tuple[Array, Array, Own]) -> tuple[Above, Above]:
            read, write, own = node
            value = step(_at(slots, read), own)
            return _put(slots, value, write), value

        xs = (jnp.asarray(plan.read), jnp.asarray(plan.write), own)
        return jax.lax.scan(one_node, slots, xs)[1]

    def backward(
        self, step: Callable[[Beyond, Own], tuple[Beyond, Result]], zeros: Beyond, own: Own
    ) -> Result:
        """Results of `step` at all nodes, from tips to root.

        `step(sum of the contributions of the children, own row)` returns the contribution of the
        node to its parent, and its result. The sum is `zeros` for nodes without children.
        """
        plan = self._plan
        slots = jax.tree.map(lambda x: jnp.broadcast_to(x, (plan.size, *x.shape)), zeros)

        def one_node(slots: Beyond, node: tuple[Any, ...]) -> tuple[Beyond, Result]:
            read, write, first, inner, own = node
            beyond = jax.tree.map(
                lambda x, zero: jnp.where(inner, x, zero), _at(slots, write), zeros
            )
            contribution, result = step(beyond, own)
            before = _at(slots, read)
            total = jax.tree.map(lambda x, y: x + jnp.where(first, 0.0, y), contribution, before)
            return _put(slots, total, read), result

        xs = (plan.read, plan.write, plan.last, plan.inner)
        return jax.lax.scan(one_node, slots, (*map(jnp.asarray, xs), own), reverse=True)[1]


@dataclass(frozen=True)
class _Plan:
    """Slots of the values of nodes.

    - `read`: slot of the parent of each node; `write`: slot of the node itself.
    - `last`: whether the node is the last child of its parent, the first one in the backward pass.
    - `inner`: whether the node has children; other nodes write to a slot that is never read.
    - `size`: number of slots.
    """

    read: np.ndarray
    write: np.ndarray
    last: np.ndarray
    inner: np.ndarray
    size: int


def _at(tree: Own, i: Array) -> Own:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, 0, keepdims=False), tree)


def _put(tree: Own, row: Own, i: Array) -> Own:
    return jax.tree.map(lambda x, y: jax.lax.dynamic_update_index_in_dim(x, y, i, 0), tree, row)


# Accelerations of a tree by the articulated-body algorithm, at a cost linear in its bodies --------
#
# Featherstone (2008), "Rigid Body Dynamics Algorithms", section 7.3, along the world's axes and
# about one point, so that no transformations between bodies are needed. Every velocity counts as a
# joint of its own, with massless bodies between the joints.

# Pivots up to this multiple of the machine epsilon, relative to the inertia of all bodies that the
# velocity moves, are rounding errors, may be negative, and accelerations are off by 20 % and more:
# in float32 with bodies that are 1e7 times as heavy as six or more links before them, or with
# hundreds of links.
MIN_PIVOT = 3.0


class Refined(NamedTuple):
    """Accelerations after a step of iterative refinement.

    - `rates`: rates of world twists after each velocity, before the step; `changes`: what the step
      adds to them.
    """

    vdot: Float[Array, "nv"]
    rates: Float[Array, "nv 6"]
    changes: Float[Array, "nv 6"]


class Articulated(NamedTuple):
    """Inertias of a tree, by velocities.

    - `H`: world twist per unit of each velocity.
    - `inertia`: inertia matrices of the bodies whose last degree of freedom is this velocity.
    - `rotors`: inertias of rotors behind gears, for each velocity.
    """

    recursion: TreeRecursion
    H: Float[Array, "nv 6"]
    inertia: Float[Array, "nv 6 6"]
    rotors: Float[Array, "nv"]

    def accelerations(
        self,
        force: Float[Array, "nv"],
        wrenches: Float[Array, "nv 6"] | None = None,
        products: Float[Array, "nv 6"] | None = None,
    ) -> Float[Array, "nv"]:
        """v̇ from a force on each velocity; NaN if pivots consist of rounding errors.

        **Arguments:**

        - `wrenches`: applied wrenches minus rates of momentum at constant twists. Default: zero.
        - `products`: contribution of each velocity to the rate of the world twist at v̇ = 0.
          Default: zero.
        """
        return self._solve(force, wrenches, products)[0]

    def refined(
        self,
        force: Float[Array, "nv"],
        wrenches: Float[Array, "nv 6"],
        products: Float[Array, "nv 6"],
        momenta: Callable[[Float[Array, "nv 6"]], Float[Array, "nv 6"]],
    ) -> Refined:
        """v̇ by one step of iterative refinement, which costs half as much as the recursion itself.

        **Arguments:** as of `accelerations`, and `momenta`: those of the bodies, by velocities, at
        the world twists of all velocities.
        """
        vdot, rates, (U, inverse) = self._solve(force, wrenches, products)
        required = momenta(rates) - wrenches

        def backward(beyond: Array, own: tuple[Array, ...]) -> tuple[Array, Array]:
            S, U, inverse, left, required = own
            p = beyond + required
            u = left - S @ p
            return p + (u * inverse) * U, u

        left = force - self.rotors * vdot
        own = self.H, U, inverse, left, required
        u = self.recursion.backward(backward, jnp.zeros_like(self.H[0]), own)
        change, changes = self._forward(jnp.zeros_like(self.H), U, inverse, u)
        return Refined(vdot + change, rates, changes)

    def _solve(
        self,
        force: Float[Array, "nv"],
        wrenches: Float[Array, "nv 6"] | None,
        products: Float[Array, "nv 6"] | None,
    ) -> tuple[Float[Array, "nv"], Float[Array, "nv 6"], tuple[Array, Array]]:
        """v̇, rates of world twists after each velocity, and (U, 1/D)."""
        zeros = jnp.zeros_like(self.H)
        wrenches = zeros if wrenches is None else wrenches
        products = zeros if products is None else products
        nothing = jnp.zeros_like(force[0])
        tip = jnp.zeros_like(self.inertia[0]), zeros[0], (nothing, nothing)
        own = self.H, self.inertia, self.rotors, force, wrenches, products
        U, inverse, u = self.recursion.backward(_backward, tip, own)
        return *self._forward(products, U, inverse, u), (U, inverse)

    def _forward(
        self,
        products: Float[Array, "nv 6"],
        U: Float[Array, "nv 6"],
        inverse: Float[Array, "nv"],
        u: Float[Array, "nv"],
    ) -> tuple[Float[Array, "nv"], Float[Array, "nv 6"]]:
        """v̇, and rates of world twists after each velocity."""

        def forward(above: tuple[Array, Array], own: tuple[Array, ...]) -> tuple[Array, Array]:
            S, c, U, inverse, u = own
            A = above[0] + c
            vdot = (u - U @ A) * inverse
            return A + vdot * S, vdot

        root = jnp.zeros_like(self.H[0]), jnp.zeros_like(u[0])
        rates, vdot = self.recursion.forward(forward, root, (self.H, products, U, inverse, u))
        return vdot, rates


def _backward(
    beyond: tuple[Array, Array, tuple[Array, Array]], own: tuple[Array, ...]
) -> tuple[tuple[Array, Array, tuple[Array, Array]], tuple[Array, Array, Array]]:
    """Contributions of inertia and wrench to the parent of a velocity, and U, 1/D, u."""
    S, inertia, rotor, force, wrench, c = own
    A, p = beyond[0] + inertia, beyond[1] - wrench
    # Mass and trace of the moments of inertia of all bodies that the velocity moves.
    mass = beyond[2][0] + inertia[0, 0]
    moments = beyond[2][1] + (inertia[3, 3] + inertia[4, 4] + inertia[5, 5])
    U = A @ S
    D, least = S @ U + rotor, _least_pivot(S, mass, moments)
    inverse = 1.0 / jnp.where(least < D, D, jnp.nan)
    u = force - S @ p
    # In this order of products, generated code computes the entries beside the diagonal once.
    reduced = A - inverse * (U[:, None] * U[None, :])
    return (reduced, p + reduced @ c + (u * inverse) * U, (mass, moments)), (U, inverse, u)


def _least_pivot(S: Float[Array, "6"], mass: Array, moments: Array) -> Array:
    eps = float(jnp.finfo(S.dtype).eps)
    return MIN_PIVOT * eps * (mass * (S[:3] @ S[:3]) + moments * (S[3:] @ S[3:]))


def least_pivots(
    S: Float[Array, "n 6"], mass: Float[Array, "n"], J: Float[Array, "n 3 3"]
) -> Float[Array, "n"]:
    """Pivots of the mass matrix up to which they consist of rounding errors.

    **Arguments:** mass and moments of inertia of all bodies that each velocity moves.
    """
    return jax.vmap(_least_pivot)(S, mass, jnp.trace(J, axis1=1, axis2=2))


# Layout of the joints' entries in `q` and `v` -----------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Joints in the order of their child bodies; the entries of a joint are consecutive.

    - `groups`: the groups of tree joints.
    - `coordinates`, `velocities`: for each group, the entries of its joints in `q` and `v`.
    - `bodies`: for each entry of `v`, the row of the joint's child body, without the ground.
    - `recursion`: the tree whose nodes are the velocities.
    - `last_velocities`: the last degree of freedom of each body; `nv` for bodies without one.
    - `roots`: for each body, the row of the first body of its branch, which a joint connects with
      the ground, without the ground.
    """

    nq: int
    nv: int
    groups: tuple[int, ...]
    coordinates: tuple[IndexSet, ...]
    velocities: tuple[IndexSet, ...]
    bodies: IndexSet
    recursion: TreeRecursion
    last_velocities: IndexSet
    roots: IndexSet


def lay_out(mechanism: Mechanism) -> Layout:
    """The layout of a mechanism's tree joints."""
    groups = tuple(g for g, group in enumerate(mechanism.joints) if group.in_tree)
    nq = np.zeros(mechanism.n_bodies, dtype=int)
    nv = np.zeros(mechanism.n_bodies, dtype=int)
    for g in groups:
        group = mechanism.joints[g]
        nq[group.children.array], nv[group.children.array], _ = group.joint.sizes()

    def entries(widths: np.ndarray, g: int, width: int) -> IndexSet:
        first = np.concatenate([[0], np.cumsum(widths)])[mechanism.joints[g].children.array]
        return IndexSet.of((first[:, None] + np.arange(width)).ravel())

    parents, last = [], [ROOT]
    for parent, width in zip(mechanism.topology.parents, nv, strict=True):
        velocity = last[parent]
        for _ in range(width):
            parents.append(velocity)
            velocity = len(parents) - 1
        last.append(velocity)
    roots: list[int] = []
    for body, parent in enumerate(mechanism.topology.parents):
        roots.append(body if parent == 0 else roots[parent - 1])
    return Layout(
        nq=int(nq.sum()),
        nv=int(nv.sum()),
        groups=groups,
        coordinates=tuple(entries(nq, g, mechanism.joints[g].joint.sizes()[0]) for g in groups),
        velocities=tuple(entries(nv, g, mechanism.joints[g].joint.sizes()[1]) for g in groups),
        bodies=IndexSet.of(np.repeat(np.arange(mechanism.n_bodies), nv)),
        recursion=TreeRecursion(tuple(parents)),
        last_velocities=IndexSet.of(len(parents) if i == ROOT else i for i in last[1:]),
        roots=IndexSet.of(roots),
    )
