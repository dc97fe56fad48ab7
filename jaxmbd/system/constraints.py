"""Constraints that a formulation does not build in: residual g(t, q), rate, Jacobian.

    ġ = G v + g_t,   g̈ = G v̇ + γ

Rows are ordered by group, then by joint, then by what it fixes, velocities that it keeps beside
that last; couplings of joints, drivers and intrinsic constraints of the coordinates follow. Rows of
velocities (nonholonomic ones) have no residual, it is zero; their rate is what they keep at zero.
All but the rows on coordinates is local to a joint: the residual of its relative pose, one
directional derivative of it, and a second one.
"""

from collections.abc import Sequence
from functools import singledispatch

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..joints.abstract import AbstractJoint, n_rows
from ..lie import Pose, se3
from .abstract import AbstractKinematics, AbstractSystem, Coordinates, Time, Velocities
from .duality import twist_rates
from .groups import JointGroup
from .joint_motion import relative_poses, relative_twists, spread
from .loads import Wrenches, generalized


def constrained_groups(system: AbstractSystem) -> list[JointGroup]:
    """Groups that contribute constraint rows."""
    groups = [system.mechanism.joints[g] for g in system.constrained]
    return [group for group in groups if n_rows(group.joint) > 0]


def row_names(system: AbstractSystem) -> list[str]:
    """For each constraint row the joint (or coupling, driver, rotor) it belongs to."""
    names = []
    for group in constrained_groups(system):
        for name in group.names:
            names += [name] * n_rows(group.joint)
    return names + coordinate_names(system)


def coordinate_names(system: AbstractSystem) -> list[str]:
    """For each constraint on coordinates the coupling, driver or rotor it belongs to."""
    mechanism = system.mechanism
    names = [name for group in (*mechanism.couplings, *mechanism.drivers) for name in group.names]
    return names + system.intrinsic_names()


def is_holonomic(system: AbstractSystem) -> Bool[np.ndarray, "ng"]:
    """For each constraint row whether it is one of positions; otherwise one of velocities alone."""
    rows: list[bool] = []
    for group in constrained_groups(system):
        n_fixed = group.joint.sizes()[2]
        rows += len(group) * ([True] * n_fixed + [False] * group.joint.n_slip)
    return np.asarray(rows + [True] * len(coordinate_names(system)), dtype=bool)


def coordinate_constraint(
    system: AbstractSystem, t: Time, q: Coordinates
) -> Float[Array, "n_coordinate"]:
    """Constraints that are functions of coordinates: couplings, drivers, then intrinsic ones."""
    mechanism = system.mechanism
    if not mechanism.couplings and not mechanism.drivers:
        return system.intrinsic_constraint(q)
    coordinates = system.kinematics(t, q).joint_coordinates()
    gaps = [group.gaps(coordinates) for group in mechanism.couplings]
    gaps += [group.gaps(t, coordinates) for group in mechanism.drivers]
    return jnp.concatenate([*gaps, system.intrinsic_constraint(q)])


def n_constraints(system: AbstractSystem) -> int:
    """Number of constraint rows."""
    return len(row_names(system))


def may_repeat(system: AbstractSystem) -> bool:
    """Whether constraints may depend on one another; in a tree without drives they never do."""
    return bool(possibly_redundant(system).any())


def redundant_rows(system: AbstractSystem) -> tuple[bool, ...]:
    """`possibly_redundant`, to be hashed."""
    return tuple(possibly_redundant(system).tolist())


@singledispatch
def possibly_redundant(system: AbstractSystem) -> Bool[np.ndarray, "ng"]:
    """For each row whether it may depend on others; those of the tree's joints never do.

    Formulations in which others may as well register their own.
    """
    mechanism = system.mechanism
    groups = (*mechanism.couplings, *mechanism.drivers)
    names = {*mechanism.topology.loops, *(name for group in groups for name in group.names)}
    return np.asarray([name in names for name in row_names(system)], dtype=bool)


def violation(kinematics: AbstractKinematics, residual: Float[Array, "ng"]) -> Float[Array, ""]:
    """The largest constraint residual, relative to the extent of a mechanism smaller than 1 m.

    It estimates the relative error of G in a configuration that is not exactly on the constraints.
    """
    extent = jnp.max(jnp.ptp(kinematics.ports.p, axis=0))
    extent = jnp.where((extent > 0) & (extent < 1), extent, 1.0)
    return jnp.max(jnp.abs(residual), initial=0.0) / extent


def bias_noise(
    system: AbstractSystem, t: Time, kinematics: AbstractKinematics, q: Coordinates, v: Velocities
) -> Float[Array, ""]:
    """Size of the terms of the constraint bias [m/s², rad/s²], which rounding is relative to."""
    twists = jnp.max(jnp.abs(kinematics.twists(v)))
    return jnp.max(jnp.abs(port_accelerations(system, t, q, v))) + twists**2


def residual(
    system: AbstractSystem, t: Time, kinematics: AbstractKinematics, q: Coordinates
) -> Float[Array, "ng"]:
    """g(t, q): how far the joints are from being closed [m, then dimensionless]."""

    def of_joint(joint: AbstractJoint, X: Pose) -> Array:
        return jnp.concatenate([joint.residual(X), jnp.zeros(joint.n_slip, dtype=X.p.dtype)])

    parts = [
        jax.vmap(of_joint)(group.joint, relative_poses(group, kinematics.ports)).ravel()
        for group in constrained_groups(system)
    ]
    return jnp.concatenate([*parts, coordinate_constraint(system, t, q)])


def _joint_rate(joint: AbstractJoint, X: Pose, V: Array) -> Array:
    fixed = jax.jvp(joint.residual, (X,), (se3.rate(X, V),))[1]
    return jnp.concatenate([fixed, joint.slip(X, V)])


def rate(
    system: AbstractSystem, kinematics: AbstractKinematics, q: Coordinates, v: Velocities
) -> Float[Array, "ng"]:
    """G v [m/s, then 1/s], linear in `v`: ġ of constraints that do not change with time."""
    twists, parts = kinematics.twists(v), []
    for group in constrained_groups(system):
        X = relative_poses(group, kinematics.ports)
        V = relative_twists(group, X, twists)
        parts.append(jax.vmap(_joint_rate)(group.joint, X, V).ravel())
    still = jnp.zeros(
        (), dtype=q.dtype
    )  # What drivers want moves, how they see the joint does not.
    return jnp.concatenate([*parts, _coordinate_rate(system, still, q, v, 0.0)])


def drift(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, "ng"]:
    """g_t [m/s, then 1/s]: what drivers prescribe, negative."""
    others = n_constraints(system) - len(coordinate_names(system))
    still = jnp.zeros(others, dtype=q.dtype)
    if not system.mechanism.drivers:
        return jnp.zeros(n_constraints(system), dtype=q.dtype)
    v = jnp.zeros(system.nv, dtype=q.dtype)
    return jnp.concatenate([still, _coordinate_rate(system, t, q, v, 1.0)])


def _coordinate_rate(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities, speed: float
) -> Array:
    """Rate of the constraints on coordinates, time going at a `speed` (1, or 0)."""
    passing = jnp.full_like(t, speed)

    def gaps(t: Time, q: Coordinates) -> Array:
        return coordinate_constraint(system, t, q)

    return jax.jvp(gaps, (t, q), (passing, system.rates(q, v)))[1]


def quadratic(
    system: AbstractSystem,
    t: Time,
    kinematics: AbstractKinematics,
    q: Coordinates,
    v: Velocities,
) -> Float[Array, "ng"]:
    """γ of g̈ = G v̇ + γ: what the constraints accelerate by at v̇ = 0."""
    parts, groups = [], constrained_groups(system)
    twists = kinematics.twists(v)
    accelerations = port_accelerations(system, t, q, v)
    for group in groups:
        X = relative_poses(group, kinematics.ports)
        V = relative_twists(group, X, twists)
        A = relative_twists(group, X, accelerations)
        carried = jax.vmap(se3.transform_twist_back)(X, group.first.take(twists))
        # d/dt of -Ad(X_MF) V_F adds ad(V_FM) Ad(X_MF) V_F to the difference of the rates.
        A = A + jax.vmap(se3.cross_twist)(V, carried)

        def second_derivative(joint: AbstractJoint, X: Pose, V: Array, A: Array) -> Array:
            return jax.jvp(lambda X, V: _joint_rate(joint, X, V), (X, V), (se3.rate(X, V), A))[1]

        parts.append(jax.vmap(second_derivative)(group.joint, X, V, A).ravel())

    def rates(t: Time, q: Coordinates) -> Array:
        return _coordinate_rate(system, t, q, v, 1.0)

    own = jax.jvp(rates, (t, q), (jnp.ones_like(t), system.rates(q, v)))[1]
    return jnp.concatenate([*parts, own])


@singledispatch
def port_accelerations(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities
) -> Float[Array, "n_ports 6"]:
    """Rates of the port twists at v̇ = 0. Formulations may register a faster way."""
    return twist_rates(system, t, q, v, jnp.zeros_like(v))


def local_jacobians(group: JointGroup, ports: Pose) -> Float[Array, "n m 6"]:
    """Derivative of each joint's rows with respect to the twist of M in F."""

    def jacobian(joint: AbstractJoint, X: Pose) -> Array:
        units = jnp.eye(6, dtype=X.p.dtype)
        return jax.vmap(lambda V: _joint_rate(joint, X, V), out_axes=1)(units)

    return jax.vmap(jacobian)(group.joint, relative_poses(group, ports))


def constraint_wrenches(
    system: AbstractSystem, kinematics: AbstractKinematics, lam: Float[Array, "ng"]
) -> Wrenches:
    """Wrenches of the joints' multipliers on all ports, along the ports' own axes."""
    n_ports = system.mechanism.n_ports
    wrenches = jnp.zeros((n_ports, 6), dtype=lam.dtype)
    for group, W_M in zip(
        constrained_groups(system), wrenches_at_joints(system, kinematics, lam), strict=True
    ):
        wrenches = wrenches + spread(group, kinematics.ports, W_M, n_ports)
    return wrenches


def wrenches_at_joints(
    system: AbstractSystem, kinematics: AbstractKinematics, lam: Float[Array, "ng"]
) -> list[Float[Array, "_n 6"]]:
    """Wrench of the multipliers on M, along its axes, of every joint of each constrained group."""
    return wrenches_of(constrained_groups(system), kinematics, lam)


def wrenches_of(
    groups: Sequence[JointGroup], kinematics: AbstractKinematics, lam: Float[Array, "m"]
) -> list[Float[Array, "_n 6"]]:
    """The same of joints of any groups, by a multiplier for each row of their residuals."""
    found, start = [], 0
    for group in groups:
        D = local_jacobians(group, kinematics.ports)
        stop = start + D.shape[0] * D.shape[1]
        found.append(jnp.einsum("nmi,nm->ni", D, lam[start:stop].reshape(D.shape[:2])))
        start = stop
    return found


@singledispatch
def jacobian(
    system: AbstractSystem, kinematics: AbstractKinematics, q: Coordinates
) -> Float[Array, "ng nv"]:
    """G(t, q), row by row as the transpose of the velocity maps.

    Formulations may register a faster way.
    """
    ng = n_constraints(system)
    joint_rows = ng - len(coordinate_names(system))
    v = jnp.zeros(system.nv, dtype=q.dtype)

    def row(lam: Array) -> Velocities:
        return generalized(kinematics, v, constraint_wrenches(system, kinematics, lam), {})

    rows = jax.vmap(row)(jnp.eye(joint_rows, ng, dtype=q.dtype))
    return jnp.concatenate([rows, coordinate_jacobian(system, q)])


def coordinate_jacobian(system: AbstractSystem, q: Coordinates) -> Float[Array, "n_coordinate nv"]:
    """The rows of G that belong to constraints on coordinates."""
    if not coordinate_names(system):
        return jnp.zeros((0, system.nv), dtype=q.dtype)
    units, still = jnp.eye(system.nv, dtype=q.dtype), jnp.zeros((), dtype=q.dtype)

    def column(v: Velocities) -> Array:
        return _coordinate_rate(system, still, q, v, 0.0)

    return jax.vmap(column, out_axes=1)(units)
