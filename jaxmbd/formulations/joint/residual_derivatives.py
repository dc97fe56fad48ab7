"""Derivatives of the equations of motion of rigid trees in closed form, by composite rigid bodies.

The residual is r = Hᵀ T⁻ᵀ (F - W) + (rotors) v̇ - τ with rates of momentum F of the bodies, applied
wrenches W and forces τ on the joints. A displacement of velocity j moves all bodies beyond it by
the twist s = Hⱼ. Seen from the moved bodies, it changes their world twists V by one ν, and the
rates of these by α + ν × V:

    ν = V_F × s,   α = V̇_F × s + V_F × ν     for a displacement,
    ν = s,         α = V_F × s + V_M × s      for a change of velocity j,

with the twists of the bodies that carry the frames F and M of the joint, and further terms where
the motion subspace of the joint depends on its own coordinates. So F changes by I α + B ν with
B ν = V ×* I ν - I (V × ν) + ν ×* I V. Written out for a body with the momentum p and V = (u, ω),
a translation ν has no effect, and a rotation w gives the force 2 w × p and the moment 2 N w with
N = (h · u) 1 - u hᵀ - [ω]× (½ tr(J) 1 - J). With sums over subtrees of I, p, N, F, W and of the
derivatives of W each entry is a few products. Singh, Russo and Wensing (2022), "Efficient
analytical derivatives of rigid-body dynamics using spatial vector algebra", give it for joints
with constant subspaces.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...joints import AbstractJoint
from ...lie import Pose, se3, so3
from ...mechanism.elements import JointElements
from ...mechanism.groups import IndexSet
from ...system import constraints
from ...system.loads import loads
from .load_derivatives import (
    Plan,
    by_displacements,
    by_twists,
    number_of_directions,
    plan_of,
    wrenches_on_bodies,
)
from .system import JointSystem
from .tree_configuration import (
    JointConfiguration,
    WorldInertia,
    carriers_of,
    flatten,
    join,
    split,
    sum_over_ancestors,
    sum_over_subtrees,
    unflatten,
    velocity_product_twists,
)
from .tree_dynamics import add_joint_forces


class _Changes(NamedTuple):
    """Changes ν and α by one unit of each velocity, as seen from the moved bodies."""

    nu: Float[Array, "nv 6"]
    alpha: Float[Array, "nv 6"]


# Largest number of velocities for which entries of the matrices are computed one by one, and code
# is generated. Programs for more are too long.
MAX_BY_ENTRIES = 40

# Rows of two arrays whose products are entries of a matrix.
Factors = tuple[Float[Array, "nv k"], Float[Array, "nv k"]]


class _Subtrees(NamedTuple):
    """Sums over the bodies that each velocity moves.

    - `F`: rates of momentum; `P`: linear momenta; `N`: moments of B.
    - `damping`: changes of wrenches by twists of their own bodies.
    - `beside`: changes of wrenches by twists of other bodies, for each pair of the plan.
    """

    inertia: WorldInertia
    F: Float[Array, "nv 6"]
    P: Float[Array, "nv 3"]
    N: Float[Array, "nv 3 3"]
    damping: Float[Array, "nv 6 6"]
    beside: Float[Array, "n_pairs 6 6"]

    def forces(self, changes: _Changes) -> Float[Array, "nv 6"]:
        """Change of the sum of each velocity by its own unit."""
        momenta = jax.vmap(WorldInertia.momentum)(self.inertia, changes.alpha)
        w = 2.0 * changes.nu[:, 3:]
        of_B = jax.vmap(so3.cross)(w, self.P), jnp.einsum("jab,jb->ja", self.N, w)
        damping = jnp.einsum("jab,jb->ja", self.damping, changes.nu)
        return momenta + jnp.concatenate(of_B, axis=1) - damping

    def works(self, H: Float[Array, "nv 6"], changes: _Changes) -> list[Factors]:
        """Work along H of the change of the sums by units of other velocities, as products."""
        momenta = jax.vmap(WorldInertia.momentum)(self.inertia, H)
        moments = jax.vmap(so3.cross)(self.P, H[:, :3])
        moments = moments + jnp.einsum("ia,iab->ib", H[:, 3:], self.N)
        damping = jnp.einsum("ia,iab->ib", H, self.damping)
        nu = changes.nu
        return [(momenta, changes.alpha), (2.0 * moments, nu[:, 3:]), (-damping, nu)]


def rest_stiffness(
    system: JointSystem, c: JointConfiguration, lam: Float[Array, "ng"]
) -> Float[Array, "nv nv"] | None:
    """Derivative of the residual at rest by displacements of q, at constant multipliers.

    None for loops, flexible bodies, elements with states, and where it would not pay.
    """
    plan = plan_of(system)
    if plan is None or number_of_directions(plan) >= system.nv:
        return None
    v = jnp.zeros(system.nv, c.q.dtype)
    K = _by_displacements(system, c, plan, v, c.world_twists(v), None)
    return K if lam.size == 0 else K - _of_couplings(system, c, lam)


def _of_couplings(
    system: JointSystem, c: JointConfiguration, lam: Float[Array, "ng"]
) -> Float[Array, "nv nv"]:
    """Derivative of the forces Gᵀ λ of couplings and drivers by displacements of q."""
    zeros = jnp.zeros(system.nv, c.q.dtype)

    def force(delta: Float[Array, "nv"]) -> Float[Array, "nv"]:
        moved = system.configuration(c.t, system.retract(c.q, delta), c.z)
        no_wrenches = jnp.zeros((system.mechanism.n_ports, 6), lam.dtype)
        _, on_joints = constraints.coordinate_loads(system, moved, lam, no_wrenches, {})
        return add_joint_forces(system, zeros, on_joints)

    return jax.jacfwd(force)(zeros)


def residual_derivatives(
    system: JointSystem,
    c: JointConfiguration,
    plan: Plan,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """Derivatives of M v̇ + b - f at constant v̇, by displacements of q and by v."""
    mechanism, inertia = system.mechanism, system.inertia(c)
    V, A = c.world_twists(v), velocity_product_twists(c, v)
    A = A + sum_over_ancestors(mechanism, system.layout, c.H * vdot[:, None])
    F, P, N = jax.vmap(_inertial)(inertia, V, A)
    own, beside = by_twists(c, plan, V)
    rows, *others = _subtrees(system, flatten(inertia), F, P, N, own)
    sums = _Subtrees(unflatten(rows), *others, beside=beside)
    displaced, faster = _changes(system, c, v, vdot, V, A)
    by_q = _by_displacements(system, c, plan, v, V, (sums, displaced))
    return by_q, _by_velocities(system, c, plan, v, sums, faster)


def _inertial(
    inertia: WorldInertia, V: Float[Array, "6"], A: Float[Array, "6"]
) -> tuple[Float[Array, "6"], Float[Array, "3"], Float[Array, "3 3"]]:
    """Rate of momentum of a body, its linear momentum, and N."""
    momentum, h, J = inertia.momentum(V), inertia.h, inertia.J
    second_moments = 0.5 * jnp.trace(J) * jnp.eye(3, dtype=J.dtype) - J
    N = (h @ V[:3]) * jnp.eye(3, dtype=J.dtype) - jnp.outer(V[:3], h)
    N = N - so3.hat(V[3:]) @ second_moments
    return inertia.momentum(A) + se3.cross_wrench(V, momentum), momentum[:3], N


def _changes(
    system: JointSystem,
    c: JointConfiguration,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
    V: Float[Array, "n_bodies 6"],
    A: Float[Array, "n_bodies 6"],
) -> tuple[_Changes, _Changes]:
    """ν and α by displacements, and by velocities."""
    mechanism, layout = system.mechanism, system.layout
    V, A = (jnp.concatenate([jnp.zeros((1, 6), v.dtype), x]) for x in (V, A))
    velocities, rates = split(mechanism, layout, v), split(mechanism, layout, vdot)
    parts = []
    for g, entries in zip(layout.groups, layout.velocities, strict=True):
        group = mechanism.joints[g]
        of_F, of_M = (carriers_of(mechanism, rows) for rows in (group.first, group.second))
        H = entries.take(c.H).reshape(*velocities[g].shape, 6)
        V_F, A_F, V_M = of_F.take(V), of_F.take(A), of_M.take(V)
        X = c.frames_M(g)
        own = jax.vmap(partial(_own_changes, -1.0 if group.reversed else 1.0))(
            group.joint, c.values[g], velocities[g], rates[g], X
        )
        cross = jax.vmap(jax.vmap(se3.cross_twist, (None, 0)))
        nu = cross(V_F, H) + own.nu
        alpha = cross(A_F, H) + cross(V_F, nu) + cross(V_M, own.nu) + own.alpha
        parts.append((nu, alpha, H, cross(V_F + V_M, H) + own.of_velocity))
    by = [join(layout, list(x), layout.velocities, layout.nv) for x in zip(*parts, strict=True)]
    return _Changes(*by[:2]), _Changes(*by[2:])


class _Own(NamedTuple):
    """Further terms of joints whose motion subspaces depend on their own coordinates."""

    nu: Float[Array, "nv 6"]
    alpha: Float[Array, "nv 6"]
    of_velocity: Float[Array, "nv 6"]


def _own_changes(
    sign: float,
    joint: AbstractJoint,
    q: Float[Array, "nq"],
    nu: Float[Array, "nv"],
    nu_dot: Float[Array, "nv"],
    X: Pose,
) -> _Own:
    def twist(q: Array) -> Float[Array, "6"]:
        return joint.motion(q) @ nu

    def rate(q: Array, nu: Array) -> Float[Array, "6"]:
        changing = jax.jvp(lambda q: joint.motion(q) @ nu, (q,), (joint.rates(q, nu),))[1]
        return joint.motion(q) @ nu_dot + changing

    def along(unit: Float[Array, "nv"]) -> _Own:
        dot = joint.rates(q, unit)
        changes = (
            jax.jvp(twist, (q,), (dot,))[1],
            jax.jvp(lambda q: rate(q, nu), (q,), (dot,))[1],
            jax.jvp(lambda nu: rate(q, nu), (nu,), (unit,))[1],
        )
        return _Own(*(sign * se3.transform_twist(X, x) for x in changes))

    return jax.vmap(along)(jnp.eye(nu.size, dtype=nu.dtype))


def _by_displacements(
    system: JointSystem,
    c: JointConfiguration,
    plan: Plan,
    v: Float[Array, "nv"],
    V: Float[Array, "n_bodies 6"],
    inertial: tuple[_Subtrees, _Changes] | None,
) -> Float[Array, "nv nv"]:
    """∂r/∂q along displacements of each velocity; without inertial forces at rest."""
    H = c.H
    own, beside = by_displacements(c, plan, V)
    K, W = _subtrees(system, own, wrenches_on_bodies(c, V))
    left = -W
    deeper = [(-jnp.einsum("ia,iab->ib", H, K), H)]
    forces = -jnp.einsum("jab,jb->ja", K, H)
    changes = [(beside, H)]
    if inertial is not None:
        sums, by_q = inertial
        deeper, forces = deeper + sums.works(H, by_q), forces + sums.forces(by_q)
        left = left + sums.F
        changes.append((sums.beside, by_q.nu))
    turned = jax.vmap(se3.cross_wrench)(H, left)  # The moved bodies turn with their wrenches.
    R = _by_nearness(system, deeper, (H, forces + turned)) - _between(system, plan, H, changes)
    fixed = _moves(system) & ~_takes_along(system)
    if fixed.any():
        R = R - jnp.where(jnp.asarray(fixed), turned @ H.T, 0.0)
    return _with_joints(system, c, v, left, R)


def _by_velocities(
    system: JointSystem,
    c: JointConfiguration,
    plan: Plan,
    v: Float[Array, "nv"],
    sums: _Subtrees,
    changes: _Changes,
) -> Float[Array, "nv nv"]:
    """∂r/∂v."""
    R = _by_nearness(system, sums.works(c.H, changes), (c.H, sums.forces(changes)))
    R = R - _between(system, plan, c.H, [(sums.beside, changes.nu)])
    return _without_joint_forces(system, c, v, R)


def _subtrees(
    system: JointSystem, *parts: Float[Array, "n_bodies *k"]
) -> list[Float[Array, "nv *k"]]:
    """For each velocity, the sums over all bodies that it moves."""
    n, nv = system.mechanism.n_bodies, system.nv
    flat = jnp.concatenate([x.reshape(n, -1) for x in parts], axis=1)
    sums = system.layout.bodies.take(sum_over_subtrees(system.mechanism, flat))
    ends = np.cumsum([x[0].size for x in parts])[:-1]
    pieces = jnp.split(sums, ends, axis=1)
    return [y.reshape(nv, *x.shape[1:]) for x, y in zip(parts, pieces, strict=True)]


def _moves(system: JointSystem) -> Bool[np.ndarray, "nv nv"]:
    """True where velocity j (column) moves the body that i moves."""
    return _moves_bodies(system)[system.layout.bodies.array]


def _moves_bodies(system: JointSystem) -> Bool[np.ndarray, "n_bodies nv"]:
    """True where a velocity (column) moves a body."""
    bodies, ends = system.layout.bodies.array, system.mechanism.topology.subtree_ends - 1
    row = np.arange(system.mechanism.n_bodies)[:, None]
    return (row >= bodies) & (row < ends[bodies])


def _by_nearness(
    system: JointSystem, deeper: Sequence[Factors], higher: Factors
) -> Float[Array, "nv nv"]:
    """`deeper` where j (column) moves the body that i moves, `higher` where i moves that of j.

    Other entries are zero. Generated code computes these entries only; of larger systems, which it
    leaves to XLA, whole products take less time than gathers.
    """
    moves, nv = _moves(system), system.nv
    if nv > MAX_BY_ENTRIES:
        # Constants: to compute the masks at each evaluation takes a third more time for 50 links.
        deep, high = jnp.asarray(moves), jnp.asarray(moves.T)
        beyond = jnp.where(high, higher[0] @ higher[1].T, 0.0)
        return jnp.where(deep, sum(a @ b.T for a, b in deeper), beyond)
    places = np.nonzero(moves), np.nonzero(moves.T & ~moves)

    def products(at: tuple[np.ndarray, ...], factors: Factors) -> Float[Array, "n"]:
        rows = [IndexSet.of(k).take(x) for k, x in zip(at, factors, strict=True)]
        return jnp.sum(rows[0] * rows[1], axis=1)

    of_deeper = sum(products(places[0], x) for x in deeper)
    values = [of_deeper, products(places[1], higher), jnp.zeros(1, higher[0].dtype)]
    number = np.full((nv, nv), sum(len(i) for i, _ in places))
    start = 0
    for i, j in places:
        number[i, j] = start + np.arange(len(i))
        start += len(i)
    return IndexSet.of(number.ravel()).take(jnp.concatenate(values)).reshape(nv, nv)


def _takes_along(system: JointSystem) -> Bool[np.ndarray, "nv nv"]:
    """True where velocity j (column) moves the body with the frame M of the joint of i."""
    mechanism, carriers = system.mechanism, np.zeros(system.layout.nv, dtype=int)
    for g, entries in zip(system.layout.groups, system.layout.velocities, strict=True):
        bodies = carriers_of(mechanism, mechanism.joints[g].second).array
        carriers[entries.array] = np.repeat(bodies, len(entries) // max(len(bodies), 1))
    moved = _moves_bodies(system)
    return np.concatenate([np.zeros_like(moved[:1]), moved])[carriers]


def _between(
    system: JointSystem,
    plan: Plan,
    H: Float[Array, "nv 6"],
    changes: Sequence[tuple[Float[Array, "n_pairs 6 6"], Float[Array, "nv 6"]]],
) -> Float[Array, "nv nv"] | float:
    """Work along H (rows) of wrenches that the motion of other bodies changes."""
    if len(plan.pairs[0]) == 0:
        return 0.0
    on, by = (_moves_bodies(system)[list(rows)] for rows in plan.pairs)
    total = jnp.zeros((), H.dtype)
    for blocks, units in changes:
        works = jnp.einsum("pib,jb->pij", jnp.einsum("ia,pab->pib", H, blocks), units)
        total = total + works
    both = jnp.asarray(on[:, :, None] & by[:, None, :])
    return jnp.sum(jnp.where(both, total, 0.0), axis=0)


def _with_joints(
    system: JointSystem,
    c: JointConfiguration,
    v: Float[Array, "nv"],
    left: Float[Array, "nv 6"],
    R: Float[Array, "nv nv"],
) -> Float[Array, "nv nv"]:
    """R with the changes of motion subspaces and of joint forces by their own coordinates.

    **Arguments:** `left`: inertial minus applied wrenches beyond each velocity.
    """

    def blocks(g: int, entries: IndexSet) -> Float[Array, "n nv nv"]:
        group = system.mechanism.joints[g]
        rates = jax.vmap(_unit_rates)(group.joint, c.values[g])
        own = entries.take(left).reshape(*rates.shape[:2], 6)
        turned = jax.vmap(_own_turn)(group.joint, c.values[g], c.frames_M(g), own, rates)
        turned = -turned if group.reversed else turned
        return turned - _slopes_by_coordinates(c, v, g, rates) if g in _loaded(system) else turned

    return R + _block_diagonal(system, blocks)


def _without_joint_forces(
    system: JointSystem, c: JointConfiguration, v: Float[Array, "nv"], R: Float[Array, "nv nv"]
) -> Float[Array, "nv nv"]:
    """R minus the changes of joint forces by their own velocities."""
    loaded = _loaded(system)
    if not loaded:
        return R

    def blocks(g: int, entries: IndexSet) -> Float[Array, "n nv nv"]:
        if g in loaded:
            return _slopes_by_velocities(c, v, g, entries)
        n, nv = len(system.mechanism.joints[g]), system.mechanism.joints[g].joint.sizes()[1]
        return jnp.zeros((n, nv, nv), v.dtype)

    return R - _block_diagonal(system, blocks)


def _block_diagonal(
    system: JointSystem, blocks: Callable[[int, IndexSet], Float[Array, "n nv nv"]]
) -> Float[Array, "nv nv"]:
    """The matrix with the blocks of the joints of each group on its diagonal."""
    layout, first = system.layout, np.zeros(system.layout.nv, dtype=int)
    movable = [x for x in zip(layout.groups, layout.velocities, strict=True) if len(x[1])]
    parts = [blocks(g, entries) for g, entries in movable]
    widest = max((x.shape[-1] for x in parts), default=0)
    for part, (_, entries) in zip(parts, movable, strict=True):
        own = entries.array.reshape(part.shape[:2])
        first[own] = own[:, :1]
    padded = [jnp.pad(x, ((0, 0), (0, 0), (0, widest - x.shape[-1]))) for x in parts]
    rows = join(layout, padded, tuple(entries for _, entries in movable), layout.nv)
    place = np.arange(layout.nv) - first[:, None]
    return sum(
        (jnp.where(jnp.asarray(place == k), rows[:, k : k + 1], 0.0) for k in range(widest)),
        jnp.zeros((layout.nv, layout.nv), rows.dtype),
    )


def _loaded(system: JointSystem) -> set[int]:
    elements = system.mechanism.elements
    return {group.group for group in elements if isinstance(group, JointElements)}


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


def _slopes_by_coordinates(
    c: JointConfiguration, v: Float[Array, "nv"], g: int, rates: Float[Array, "n nv nq"]
) -> Float[Array, "n nv nv"]:
    """Changes of the forces on joints of a group by their own displacements (columns)."""

    def forces(values: Float[Array, "n nq"]) -> Float[Array, "n nv"]:
        changed = tuple(values if k == g else x for k, x in enumerate(c.values))
        return loads(replace(c, values=changed), v)[1][g]

    def along(rate: Float[Array, "n nq"]) -> Float[Array, "n nv"]:
        return jax.jvp(forces, (c.values[g],), (rate,))[1]

    return jax.vmap(along, in_axes=1, out_axes=2)(rates)


def _slopes_by_velocities(
    c: JointConfiguration, v: Float[Array, "nv"], g: int, entries: IndexSet
) -> Float[Array, "n nv nv"]:
    """Changes of the forces on joints of a group by their own velocities (columns)."""
    n = len(c.mechanism.joints[g])

    def along(unit: Float[Array, "nv"]) -> Float[Array, "n nv"]:
        dot = entries.add_to(jnp.zeros_like(v), jnp.tile(unit, n))
        return jax.jvp(lambda v: loads(c, v)[1][g], (v,), (dot,))[1]

    return jax.vmap(along, out_axes=2)(jnp.eye(len(entries) // n, dtype=v.dtype))
