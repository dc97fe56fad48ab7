"""Groups of stacked components of one kind, so that systems loop over kinds only.

An `IndexSet` selects rows of such groups, and of all other arrays.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsInt, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..bodies import AbstractBody, RigidBody
from ..joints import AbstractJoint, Screw
from ..lie import Pose, se3
from ..model.model import anonymous, float_type
from ..model.values import as_jax, is_concrete

# Static selections of rows of arrays --------------------------------------------------------------

Tree = TypeVar("Tree")

# Largest number of runs that become slices instead of a gather.
MAX_SLICES = 4


@dataclass(frozen=True)
class IndexSet:
    """A static selection of rows.

    A few runs of consecutive rows become slices instead of a gather; consecutive rows that are
    each repeated k times become a broadcast. Slices and broadcasts are cheaper to run, and a chain
    of any length lowers to the same program, without index tables.
    """

    index: tuple[int, ...]

    @staticmethod
    def of(index: Iterable[SupportsInt]) -> "IndexSet":
        """The set of any sequence of integers, including NumPy integers."""
        return IndexSet(tuple(int(i) for i in index))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def array(self) -> np.ndarray:
        """The rows as a numpy array."""
        return np.asarray(self.index, dtype=np.int32)

    def shifted(self, by: int) -> "IndexSet":
        """Selection with `by` added to every row."""
        return IndexSet(tuple(i + by for i in self.index))

    def traced(self) -> Array:
        """The rows as a traced array, without an index table for a few runs."""
        if 0 < len(self.runs) <= MAX_SLICES:
            parts = [jnp.arange(first, first + n, dtype=jnp.int32) for first, n in self.runs]
            return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
        return jnp.asarray(self.array)

    @property
    def repeats(self) -> int:
        """k > 1 if consecutive rows are each repeated k times in turn, otherwise 0."""
        k = self.index.count(self.index[0]) if self.index else 0
        if k < 2 or len(self.index) % k:
            return 0
        first = self.index[0]
        return k if self.index == tuple(first + i // k for i in range(len(self.index))) else 0

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Maximal runs of consecutive rows, as first row and length."""
        if not self.index:
            return ()
        breaks = np.flatnonzero(np.diff(self.array) != 1) + 1
        return tuple((int(part[0]), len(part)) for part in np.split(self.array, breaks))

    @property
    def consecutive(self) -> bool:
        """True if the rows are consecutive."""
        return len(self.runs) == 1

    def take(self, x: Array) -> Array:
        """`x[rows]`."""
        if self.runs == ((0, len(x)),):
            return x
        if k := self.repeats:
            once = IndexSet(self.index[::k]).take(x)
            repeated = jnp.broadcast_to(once[:, None], (once.shape[0], k, *x.shape[1:]))
            return repeated.reshape(-1, *x.shape[1:])
        if len(self.runs) <= MAX_SLICES:
            parts = [jax.lax.slice_in_dim(x, first, first + n) for first, n in self.runs] or [x[:0]]
            return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
        return x.at[self.array].get(mode="promise_in_bounds")

    def take_tree(self, tree: Tree) -> Tree:
        """`take` on every leaf."""
        return jax.tree.map(self.take, tree)

    def add_to(self, total: Array, x: Array) -> Array:
        """`total` with `x` added at these rows; rows may repeat."""
        if len(self.runs) <= MAX_SLICES:
            start = 0
            for first, n in self.runs:
                part = jax.lax.slice_in_dim(x, start, start + n)
                padding = [(first, total.shape[0] - first - n, 0), *[(0, 0, 0)] * (x.ndim - 1)]
                total = total + jax.lax.pad(part, jnp.zeros((), x.dtype), padding)
                start += n
            return total
        if k := self.repeats:
            sums = jnp.sum(x.reshape(-1, k, *x.shape[1:]), axis=1)
            return IndexSet(self.index[::k]).add_to(total, sums)
        return total.at[self.array].add(x)


def inverse(parts: Iterable[IndexSet], size: int) -> IndexSet:
    """Position of each of `size` rows in the concatenation of `parts`."""
    position = np.full(size, -1)
    start = 0
    for rows in parts:
        position[rows.array] = np.arange(start, start + len(rows))
        start += len(rows)
    assert np.all(position >= 0), "every row must be in one of the parts"
    return IndexSet.of(position)


def in_order(parts: Sequence[IndexSet], size: int, values: Sequence[Tree]) -> Tree:
    """Values of `size` rows in row order, from the values of the parts of a partition."""
    order = inverse(parts, size)
    return jax.tree.map(lambda *x: order.take(jnp.concatenate(x)), *values)


# Components of one kind ---------------------------------------------------------------------------


def kind_of(component: Any) -> tuple[Any, ...]:
    """Structure, shapes and dtypes of a component; components can be stacked if these agree."""
    leaves, structure = jax.tree.flatten(anonymous(component))
    return (structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves))


def stack(components: Sequence[Any]) -> Any:
    """Stack components of one kind: every leaf gets a leading axis."""

    def stack_leaves(*leaves: Any) -> Any:
        if all(is_concrete(x) for x in leaves):
            return as_jax(np.stack([np.asarray(x) for x in leaves]))
        return jnp.stack(leaves)

    return jax.tree.map(stack_leaves, *[anonymous(x) for x in components])


def group_by(items: Iterable[Any], key: Callable[[Any], Any]) -> list[list[Any]]:
    """Lists of items with equal keys, in the order in which the keys first appear."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


class JointGroup(eqx.Module):
    """Joints of one kind, stacked along a leading axis.

    - `first`, `second`: port rows of their frames F (predecessor) and M (successor).
    - `in_tree`: whether they are edges of the spanning tree.
    - `children`: for tree joints, the rows of their child bodies, without the ground.
    - `reversed`: for tree joints, whether M is on the parent.
    """

    joint: AbstractJoint
    names: tuple[str, ...] = eqx.field(static=True)
    first: IndexSet = eqx.field(static=True)
    second: IndexSet = eqx.field(static=True)
    in_tree: bool = eqx.field(static=True)
    reversed: bool = eqx.field(static=True)
    children: IndexSet = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.names)

    def relative_poses(self, ports: Pose) -> Pose:
        """X_FM of every joint, from the poses of all ports."""
        return jax.vmap(se3.between)(self.first.take_tree(ports), self.second.take_tree(ports))

    @property
    def counts_no_turns(self) -> bool:
        """True if the coordinate is an angle that a pose determines within (-π, π] only."""
        return self.joint.rotation.nq == 1 and not isinstance(self.joint, Screw)


class RotorGroup(eqx.Module):
    """Rotors behind gears on joints of one group; `rows` are the rows of the joints."""

    rotor: Any
    names: tuple[str, ...] = eqx.field(static=True)
    group: int = eqx.field(static=True)
    rows: IndexSet = eqx.field(static=True)


class BodyGroup(eqx.Module):
    """Bodies of one kind, stacked along a leading axis.

    - `rows`: rows of the bodies among all bodies, without the ground.
    - `n_elastic`: number of elastic coordinates of each body; `first`: index of the first one of
      the group among the elastic coordinates of all bodies. The others of the group follow.
    - `ports`: rows of the frames on these bodies, among all attached frames; `carriers`: for each
      of these frames, the row of its body within the group; `nodes`: the row of its node, or -1.
    """

    body: AbstractBody
    names: tuple[str, ...] = eqx.field(static=True)
    rows: IndexSet = eqx.field(static=True)
    n_elastic: int = eqx.field(static=True)
    first: int = eqx.field(static=True)
    ports: IndexSet = eqx.field(static=True)
    carriers: IndexSet = eqx.field(static=True)
    nodes: IndexSet = eqx.field(static=True)

    def own(self, x: Float[Array, "n_elastic"]) -> Float[Array, "n k"]:
        """The part of the elastic coordinates of all bodies, or of their rates, of this group."""
        n, k = len(self.names), self.n_elastic
        return x[self.first : self.first + n * k].reshape(n, k)

    def offsets(self, offsets: Pose, eta: Float[Array, "n_elastic"]) -> Pose:
        """Poses of frames relative to these bodies at η, given the poses `offsets` at η = 0."""
        return jax.vmap(lambda body, node, X, eta: body.frame_at_node(node, X, eta))(
            *self._frames(offsets), self.carriers.take(self.own(eta))
        )

    def offset_twists(
        self, offsets: Pose, eta: Float[Array, "n_elastic"], rates: Float[Array, "n_elastic"]
    ) -> Float[Array, "n 6"]:
        """Twists of frames relative to these bodies, along the axes of the frames."""
        own = (self.carriers.take(self.own(x)) for x in (eta, rates))
        return jax.vmap(lambda body, node, X, *x: body.twist_at_node(node, X, *x))(
            *self._frames(offsets), *own
        )

    def _frames(self, offsets: Pose) -> tuple[AbstractBody, Int[Array, "n"], Pose]:
        """Body, node and undeformed pose of each frame on these bodies."""
        bodies = self.carriers.take_tree(self.body)
        return bodies, jnp.asarray(self.nodes.array), self.ports.take_tree(offsets)


def rigid_part(body: AbstractBody) -> RigidBody:
    """The rigid body with the kinetic energy of a body at η = 0 and η̇ = 0."""
    eta = jnp.zeros(body.n_elastic, float_type(body))
    inertia = body.mass_matrix(eta)[:6, :6]
    mass = inertia[0, 0]
    com = jnp.stack([inertia[1, 5], inertia[2, 3], inertia[0, 4]]) / mass
    outer = com @ com * jnp.eye(3, dtype=com.dtype) - jnp.outer(com, com)
    return RigidBody(mass, inertia[3:, 3:] - mass * outer, com)


def required_force(
    body: AbstractBody, eta: Float[Array, "k"], u: Float[Array, "6+k"], u_dot: Float[Array, "6+k"]
) -> Float[Array, "6+k"]:
    """Force on (V, η̇) that the motion of a body requires, with elastic forces and damping."""
    force = body.inertial_force(eta, u, u_dot)
    return jnp.concatenate([force[:6], force[6:] + body.internal_force(eta, u[6:])])
