"""Stiffness at rest of rigid trees in closed form, by composite rigid bodies.

The residual at rest is r = -Hᵀ T⁻ᵀ W - τ, with wrenches W on the bodies and forces τ on the joints.
A body's twist ξ changes its wrench, and those on bodies that forces connect with it, by blocks of
6 × 6 numbers. With sums over subtrees, S of the wrenches and C of the blocks of single bodies:

    ∂rᵢ/∂δⱼ = -Hⱼ · (Hᵢ × Sᵢ) - Hᵢ · C Hⱼ - …

with the C of the velocity that is nearer to the tips. Only the blocks are differentiated, in a few
directions for all bodies at once, whatever their number.
"""

from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...joints import AbstractJoint
from ...lie import Pose, se3, so3
from ...mechanism.elements import Fields, FrameElements, JointElements
from ...mechanism.mechanism import Mechanism
from ...mechanism.rows import Rows
from ...system import constraints
from ...system.loads import loads
from ...system.residuals import rest_stiffness
from .configuration import JointConfiguration, ancestors, reference_points, sum_over_subtrees
from .newton_euler import external_wrenches
from .system import JointSystem


@rest_stiffness.register
def _(
    system: JointSystem, c: JointConfiguration, lam: Float[Array, "ng"]
) -> Float[Array, "nv nv"] | None:
    """None for loops, flexible bodies, elements with states, and where it would not pay."""
    plan = _plan(system)
    if plan is None:
        return None
    colours, pairs = plan
    own, beside = _blocks(c, colours, pairs)
    W, _ = _loads(c)
    H, bodies = c.H, system.layout.bodies
    S = bodies.take(sum_over_subtrees(system.mechanism, W))
    C = bodies.take(sum_over_subtrees(system.mechanism, own.reshape(len(own), 36)))
    C = C.reshape(-1, 6, 6)
    below = bodies.take(ancestors(system.mechanism).T).T  # Of bodies by velocities.
    is_ancestor = bodies.take(below)  # Whether j moves the body that i moves.
    as_deeper = jnp.einsum("ia,iab->ib", H, C) @ H.T
    as_higher = H @ jnp.einsum("jab,jb->ja", C, H).T
    K = jnp.where(is_ancestor, as_deeper, jnp.where(is_ancestor.T, as_higher, 0.0))
    turned = jax.vmap(se3.cross_wrench)(H, S)
    carried = jnp.concatenate([jnp.zeros_like(below[:1]), below])
    K = K + jnp.where(_frames(system).take(carried), turned @ H.T, 0.0)
    if len(pairs[0]):
        moved = jnp.where(below[:, None, :], H.T[None], 0.0)  # Twists of the bodies.
        on, by = (Rows.of(rows).take(moved) for rows in pairs)
        K = K + jnp.einsum("pai,paj->ij", on, jnp.einsum("pab,pbj->paj", beside, by))
    return -_with_joints(system, c, S, K)


def _loads(c: JointConfiguration) -> tuple[Float[Array, "n_bodies 6"], dict[int, Array]]:
    """Wrenches on the bodies about their reference points, and forces on joints, at rest."""
    wrenches, joint_forces = loads(c, jnp.zeros(c.nv, c.q.dtype))
    return external_wrenches(c, wrenches), joint_forces


def _frames(system: JointSystem) -> Rows:
    """For each velocity, the body that carries the frame M of its joint; 0 is the ground."""
    mechanism, skip = system.mechanism, 1 + system.mechanism.n_bodies
    carriers = np.zeros(system.layout.nv, dtype=int)
    for g, entries in zip(system.layout.groups, system.layout.velocities, strict=True):
        second = mechanism.port_bodies.array[mechanism.joints[g].second.array - skip]
        carriers[entries.array] = np.repeat(second, len(entries) // max(len(second), 1))
    return Rows.of(carriers)


def _blocks(
    c: JointConfiguration, colours: tuple[int, ...], pairs: tuple[tuple[int, ...], ...]
) -> tuple[Float[Array, "n_bodies 6 6"], Float[Array, "n_pairs 6 6"]]:
    """Change of the wrench on a body by its own twist, and by that of another body.

    Twists and wrenches are about the reference points, along the world's axes.
    """
    mechanism, n = c.mechanism, c.mechanism.n_bodies
    ground = jnp.zeros((1, 3), c.q.dtype)
    points = jnp.concatenate([ground, reference_points(c.layout, c.ports)])
    points = jnp.concatenate([points, mechanism.port_bodies.take(points)])

    def wrenches(ports: Pose) -> Float[Array, "n_bodies 6"]:
        return _loads(replace(c, ports=ports, shifted=Pose(ports.p - points, ports.R)))[0]

    def along(colour: Array, k: Array) -> Float[Array, "n_bodies 6"]:
        moves = jnp.asarray(np.asarray(colours, np.int32)) == colour
        twist = jnp.where(jnp.arange(6, dtype=jnp.int32) == k, 1.0, 0.0).astype(c.q.dtype)
        twists = jnp.where(moves[:, None], twist[None], 0.0)
        twists = jnp.concatenate([jnp.zeros((1, 6), c.q.dtype), twists])
        twists = jnp.concatenate([twists, mechanism.port_bodies.take(twists)])

        def moved(X: Pose, point: Array, V: Array) -> Pose:
            return Pose(V[:3] + so3.cross(V[3:], X.p - point), so3.hat(V[3:]) @ X.R)

        dots = jax.vmap(moved)(c.ports, points, twists)
        return jax.jvp(wrenches, (c.ports,), (dots,))[1]

    number, k = jnp.divmod(jnp.arange(6 * (max(colours) + 1), dtype=jnp.int32), 6)
    changes = jnp.moveaxis(jax.vmap(along)(number, k), 0, -1)  # Of bodies by components.
    changes = changes.reshape(n, 6, -1, 6)
    of = np.asarray(colours)
    own = changes[np.arange(n), :, of]
    return own, changes[np.asarray(pairs[0], int), :, of[np.asarray(pairs[1], int)]]


def _with_joints(
    system: JointSystem, c: JointConfiguration, S: Float[Array, "nv 6"], K: Float[Array, "nv nv"]
) -> Float[Array, "nv nv"]:
    """K with the changes of forces on joints, and of motion subspaces by their own coordinates."""
    layout, elements = system.layout, system.mechanism.elements
    loaded = {group.group for group in elements if isinstance(group, JointElements)}
    for g, entries in zip(layout.groups, layout.velocities, strict=True):
        group = system.mechanism.joints[g]
        nv = group.joint.sizes()[1]
        if nv == 0:
            continue
        rates = jax.vmap(_unit_rates)(group.joint, c.values[g])
        own = entries.take(S).reshape(len(group), nv, 6)
        blocks = jax.vmap(_own_turn)(group.joint, c.values[g], c.frames_M(g), own, rates)
        blocks = -blocks if group.reversed else blocks
        if g in loaded:
            blocks = blocks + _slopes_of_joint_forces(c, g, rates)
        rows = entries.array.reshape(len(group), nv)
        K = K.at[rows[:, :, None], rows[:, None, :]].add(blocks)
    return K


def _unit_rates(joint: AbstractJoint, q: Float[Array, "nq"]) -> Float[Array, "nv nq"]:
    """Rates of the coordinates of a joint by each of its velocities."""
    nv = joint.sizes()[1]
    return jax.vmap(lambda nu: joint.rates(q, nu))(jnp.eye(nv, dtype=q.dtype))


def _own_turn(
    joint: AbstractJoint,
    q: Float[Array, "nq"],
    X: Pose,
    S: Float[Array, "nv 6"],
    rates: Float[Array, "nv nq"],
) -> Float[Array, "nv nv"]:
    """Work of S on the changes of a joint's motion subspace by its own velocities (columns)."""

    def along(rate: Float[Array, "nq"]) -> Float[Array, "nv"]:
        change = jax.jvp(joint.motion, (q,), (rate,))[1]
        in_world = jax.vmap(lambda V: se3.transform_twist(X, V), in_axes=1)(change)
        return jnp.sum(in_world * S, axis=1)

    return jax.vmap(along, out_axes=1)(rates)


def _slopes_of_joint_forces(
    c: JointConfiguration, g: int, rates: Float[Array, "n nv nq"]
) -> Float[Array, "n nv nv"]:
    """Changes of the forces on joints of a group by their own velocities (columns)."""

    def forces(values: Float[Array, "n nq"]) -> Float[Array, "n nv"]:
        changed = tuple(values if k == g else x for k, x in enumerate(c.values))
        return _loads(replace(c, values=changed))[1][g]

    def along(rate: Float[Array, "n nq"]) -> Float[Array, "n nv"]:
        return jax.jvp(forces, (c.values[g],), (rate,))[1]

    return jax.vmap(along, in_axes=1, out_axes=2)(rates)


Pairs = tuple[tuple[int, ...], tuple[int, ...]]


def _plan(system: JointSystem) -> tuple[tuple[int, ...], Pairs] | None:
    """Colours of the bodies, and pairs of bodies that forces connect; None if AD is to be used."""
    mechanism = system.mechanism
    known = all(type(x) in (Fields, FrameElements, JointElements) for x in mechanism.elements)
    rigid = mechanism.all_rigid and mechanism.n_states == 0
    if not (known and rigid) or constraints.n_constraints(system) or system.constrained:
        return None
    return _coloured(mechanism.n_bodies, system.nv, _connected(mechanism))


def _connected(mechanism: Mechanism) -> tuple[tuple[int, ...], ...]:
    """Bodies, from 0, that each force between frames connects."""
    own = np.arange(mechanism.n_bodies + 1)
    carriers = np.concatenate([own, mechanism.port_bodies.array]) - 1
    found = set()
    for group in mechanism.elements:
        if isinstance(group, FrameElements):
            for ports in zip(*(rows.index for rows in group.ports), strict=True):
                found.add(tuple(sorted({int(carriers[port]) for port in ports} - {-1})))
    return tuple(sorted(x for x in found if len(x) > 1))


@lru_cache(maxsize=64)
def _coloured(
    n: int, nv: int, connected: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], Pairs] | None:
    """Bodies of one colour act on no common body; None for as many directions as velocities."""
    near = [{k} for k in range(n)]
    for bodies in connected:
        for k in bodies:
            near[k].update(bodies)
    colours: list[int] = []
    for k in range(n):
        taken = {colours[i] for j in near[k] for i in near[j] if i < k}
        colours.append(next(x for x in range(k + 1) if x not in taken))
    if n == 0 or 6 * (max(colours) + 1) >= nv:
        return None
    pairs = [(a, b) for a in range(n) for b in sorted(near[a]) if a != b]
    return tuple(colours), (tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


__all__: list[str] = []
