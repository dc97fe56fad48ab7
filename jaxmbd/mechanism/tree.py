"""Poses of bodies from the coordinates of the spanning tree's joints."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..accelerators import for_accelerator
from ..joints.abstract import AbstractJoint
from ..lie import Pose
from .groups import IndexSet, JointGroup, in_order
from .mechanism import Mechanism

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
    world = Pose(jnp.zeros((1, 3), dtype=mechanism.dtype), jnp.eye(3, dtype=mechanism.dtype)[None])
    bodies = _compose(mechanism, relative)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), world, bodies)


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

    def between(joint: AbstractJoint, q: Array, on_parent: Pose, on_child: Pose) -> Pose:
        return joint.between(q, on_parent, on_child, group.reversed)

    return jax.vmap(between)(group.joint, q, *ends)


def _compose(mechanism: Mechanism, relative: Pose) -> Pose:
    """World poses of bodies 1 … n_bodies from their poses in their parents."""

    def world() -> Pose:
        return Pose(jnp.zeros(3, dtype=mechanism.dtype), jnp.eye(3, dtype=mechanism.dtype))

    if for_accelerator():
        return _doubled(mechanism, world(), relative)
    return forward_pass(mechanism, Pose.__matmul__, world(), relative)


def _doubled(mechanism: Mechanism, world: Pose, relative: Pose) -> Pose:
    """`_compose` in as many operations as the depth of the tree has binary digits.

    In each round the known part of each path towards the root doubles its length: a body's pose in
    an ancestor is composed with the ancestor's pose in its own (Hillis and Steele 1986).
    """
    poses = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), world, relative)
    ancestors = np.concatenate([[0], mechanism.topology.parents])
    while ancestors.any():
        above = IndexSet.of(ancestors).take_tree(poses)
        poses = jax.vmap(Pose.__matmul__)(above, poses)
        ancestors = ancestors[ancestors]
    return jax.tree.map(lambda x: x[1:], poses)


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
