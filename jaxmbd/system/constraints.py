"""Constraint equations of a system: residual g(t, q), rate, Jacobian, bias; reversed joints.

    ġ = G v + ∂g/∂t,   g̈ = G v̇ + γ

Rows are ordered by group, then by joint: fixed motions, then nonholonomic constraints. Couplings,
drivers and intrinsic constraints of the coordinates follow. The residual of a nonholonomic row is
zero; its constraint is that the rate vanishes. Rows of joints are functions of the relative pose,
and their rate and bias are its directional derivatives. Rows of couplings and drivers are functions
of the joints' coordinates.
"""

from collections.abc import Sequence
from math import pi
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..joints.abstract import AbstractJoint, n_rows
from ..lie import Pose, se3, vector
from ..mechanism.elements import JointForces, Wrenches
from ..mechanism.groups import IndexSet, JointGroup
from ..programs import stored
from ..programs.tracing import kernel, of_directions, stop_gradients
from .abstract import AbstractSystem, Time, Velocities
from .configuration import AbstractConfiguration
from .joint_motion import relative_accelerations, scatter
from .loads import generalized
from .mass_and_energy import twist_rates
from .nodal import AbstractNodalSystem

Coordinates = dict[int, Float[Array, "_n _nq"]]  # For groups that couplings or drivers refer to.


def constrained_groups(system: AbstractSystem) -> list[tuple[int, JointGroup]]:
    """Groups of joints with constraint rows, each after its index."""
    groups = [(g, system.mechanism.joints[g]) for g in system.constrained]
    return [(g, group) for g, group in groups if n_rows(group.joint) > 0]


def row_names(system: AbstractSystem) -> list[str]:
    """Name of the joint (or coupling, driver, rotor) of each constraint row."""
    names = []
    for _, group in constrained_groups(system):
        for name in group.names:
            names += [name] * n_rows(group.joint)
    return names + coordinate_names(system)


def coordinate_names(system: AbstractSystem) -> list[str]:
    """Name of the coupling, driver or rotor of each constraint on coordinates."""
    mechanism = system.mechanism
    names = [name for group in (*mechanism.couplings, *mechanism.drivers) for name in group.names]
    return names + system.intrinsic_names()


def is_holonomic(system: AbstractSystem) -> Bool[np.ndarray, "ng"]:
    """Mask of the holonomic constraint rows, which are constraints on positions."""
    rows: list[bool] = []
    for _, group in constrained_groups(system):
        n_fixed = group.joint.sizes()[2]
        rows += len(group) * ([True] * n_fixed + [False] * group.joint.n_nonholonomic)
    return np.asarray(rows + [True] * len(coordinate_names(system)), dtype=bool)


def n_constraints(system: AbstractSystem) -> int:
    """Number of constraint rows."""
    return len(row_names(system))


def may_be_redundant(system: AbstractSystem) -> bool:
    """True if any constraint row is possibly redundant."""
    return bool(possibly_redundant(system).any())


def redundant_rows(system: AbstractSystem) -> tuple[bool, ...]:
    """`possibly_redundant` as a hashable tuple."""
    return tuple(possibly_redundant(system).tolist())


def possibly_redundant(system: AbstractSystem) -> Bool[np.ndarray, "ng"]:
    """Mask of the rows that may depend on other rows; in general those of tree joints never do."""
    own = system.own_possibly_redundant()
    if own is not None:
        return own
    mechanism = system.mechanism
    groups = (*mechanism.couplings, *mechanism.drivers)
    names = {*mechanism.topology.loops, *(name for group in groups for name in group.names)}
    return np.asarray([name in names for name in row_names(system)], dtype=bool)


class PortMotion(NamedTuple):
    """Twists of all ports and their rates at v̇ = 0, each along its own axes."""

    twists: Float[Array, "n_ports 6"]
    accelerations: Float[Array, "n_ports 6"]


def port_motion(system: AbstractSystem, c: AbstractConfiguration, v: Velocities) -> PortMotion:
    """Twists of all ports and their rates at v̇ = 0."""
    return PortMotion(c.twists(v), port_accelerations(system, c, v))


def magnitude(system: AbstractSystem, twists: Float[Array, "n_ports 6"]) -> Float[Array, ""]:
    """Largest entry of the twists, or of their rates, of bodies and of frames of constraints.

    It scales rounding errors of the rates of constraints.
    """
    frames = [
        x.array for _, group in constrained_groups(system) for x in (group.first, group.second)
    ]
    ports = np.unique(np.concatenate([system.mechanism.body_ports.array, *frames]))
    return jnp.max(jnp.abs(IndexSet.of(ports).take(twists)), initial=0.0)


def noise(
    system: AbstractSystem, c: AbstractConfiguration, motion: PortMotion, vdot: Velocities
) -> Float[Array, ""]:
    """Magnitude of the terms of G v̇ and γ [m/s², rad/s²], which scales rounding errors."""
    return bias_noise(system, motion) + magnitude(system, c.twists(vdot))


def bias_noise(system: AbstractSystem, motion: PortMotion) -> Float[Array, ""]:
    """Magnitude of the terms of γ [m/s², rad/s²]."""
    return magnitude(system, motion.accelerations) + magnitude(system, motion.twists) ** 2


def residual(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "ng"]:
    """Constraint residuals g(t, q), shape `(ng,)` [m, then dimensionless]."""

    def of_joint(joint: AbstractJoint, X: Pose) -> Array:
        return jnp.concatenate(
            [joint.residual(X), jnp.zeros(joint.n_nonholonomic, dtype=X.p.dtype)]
        )

    parts = [
        jax.vmap(of_joint)(group.joint, c.relative_poses(g)).ravel()
        for g, group in constrained_groups(system)
    ]
    parts += _coordinate_residuals(system, c.t, _coordinates(system, c))
    return jnp.concatenate([*parts, system.intrinsic_constraint(c)])


def rate(system: AbstractSystem, c: AbstractConfiguration, v: Velocities) -> Float[Array, "ng"]:
    """G v [m/s, then 1/s], linear in `v`; equal to ġ if the constraints do not depend on time."""
    twists, parts = c.twists(v), []
    for g, group in constrained_groups(system):
        V = c.relative_twists(g, twists)
        parts.append(jax.vmap(_joint_rate)(group.joint, c.relative_poses(g), V).ravel())
    return jnp.concatenate([*parts, coordinate_rate(system, c, v)])


def coordinate_rate(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities
) -> Float[Array, "n_coordinate"]:
    """The entries of G v for constraints on coordinates."""
    q = _coordinates(system, c)
    q_dot = {g: c.coordinate_rates(g, v) for g in q}
    rates = jax.jvp(lambda q: _coordinate_residuals(system, c.t, q), (q,), (q_dot,))[1]
    return jnp.concatenate([*rates, system.intrinsic_rate(c, v)])


def time_derivative(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "ng"]:
    """∂g/∂t [m/s, then 1/s]: the negative rates that drivers prescribe."""
    if not system.mechanism.drivers:
        return jnp.zeros(n_constraints(system), dtype=c.t.dtype)
    q = _coordinates(system, c)
    rates = jax.jvp(lambda t: _coordinate_residuals(system, t, q), (c.t,), (jnp.ones_like(c.t),))[1]
    before = n_constraints(system) - len(coordinate_names(system))
    after = len(system.intrinsic_names())
    zeros = (jnp.zeros(n, dtype=c.t.dtype) for n in (before, after))
    return jnp.concatenate([next(zeros), *rates, next(zeros)])


def constraint_bias(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Velocities,
    motion: PortMotion | None = None,
) -> Float[Array, "ng"]:
    """Constraint bias γ of g̈ = G v̇ + γ, shape `(ng,)`.

    **Arguments:** `motion`: `port_motion` of these velocities. Default: computed.
    """
    motion = port_motion(system, c, v) if motion is None else motion
    parts = []
    for g, group in constrained_groups(system):
        X = c.relative_poses(g)
        V, A = relative_accelerations(group, X, *motion)

        def second_derivative(joint: AbstractJoint, X: Pose, V: Array, A: Array) -> Array:
            # The rate of the residual, differentiated once more: X moves with V, V changes by A.
            return jax.jvp(lambda X, V: _joint_rate(joint, X, V), (X, V), (se3.rate(X, V), A))[1]

        parts.append(jax.vmap(second_derivative)(group.joint, X, V, A).ravel())
    parts.append(_coordinate_bias(system, c, v, motion))
    return jnp.concatenate([*parts, system.intrinsic_bias(c, v, motion)])


def _coordinate_bias(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Velocities,
    motion: PortMotion,
) -> Float[Array, "n"]:
    """Second time derivative of the constraints of couplings and drivers at v̇ = 0."""
    q = _coordinates(system, c)
    if not q:
        return jnp.zeros(0, dtype=c.t.dtype)
    q_dot = {g: c.coordinate_rates(g, v) for g in q}
    q_ddot = {g: c.coordinate_bias(g, v, *motion) for g in q}

    def rates(t: Time, q: Coordinates, q_dot: Coordinates) -> list[Array]:
        one = jnp.ones_like(t)
        return jax.jvp(lambda t, q: _coordinate_residuals(system, t, q), (t, q), (one, q_dot))[1]

    bias = jax.jvp(rates, (c.t, q, q_dot), (jnp.ones_like(c.t), q_dot, q_ddot))[1]
    return jnp.concatenate(bias)


def _joint_rate(joint: AbstractJoint, X: Pose, V: Array) -> Array:
    fixed = jax.jvp(joint.residual, (X,), (se3.rate(X, V),))[1]
    return jnp.concatenate([fixed, joint.nonholonomic(X, V)])


def _coordinates(system: AbstractSystem, c: AbstractConfiguration) -> Coordinates:
    return {g: c.coordinates(g) for g in system.mechanism.constrained_coordinates}


def _coordinate_residuals(system: AbstractSystem, t: Time, q: Coordinates) -> list[Array]:
    """Residuals of couplings and of drivers."""
    mechanism = system.mechanism
    of_couplings = [group.residuals(q) for group in mechanism.couplings]
    return of_couplings + [group.residuals(t, q) for group in mechanism.drivers]


def port_accelerations(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities
) -> Float[Array, "n_ports 6"]:
    """Rates of the port twists at v̇ = 0."""
    own = system.own_port_accelerations(c, v)
    return twist_rates(system, c, v, jnp.zeros_like(v)) if own is None else own


def local_jacobians(group: JointGroup, X_FM: Pose) -> Float[Array, "n m 6"]:
    """Jacobian of each joint's rows with respect to the twist of M in F."""

    def jacobian(joint: AbstractJoint, X: Pose) -> Array:
        units = jnp.eye(6, dtype=X.p.dtype)
        return jax.vmap(lambda V: _joint_rate(joint, X, V), out_axes=1)(units)

    return jax.vmap(jacobian)(group.joint, X_FM)


def constraint_wrenches(
    system: AbstractSystem, c: AbstractConfiguration, lam: Float[Array, "ng"]
) -> Wrenches:
    """Wrenches of the joints' multipliers on all ports, along the ports' own axes."""
    n_ports = system.mechanism.n_ports
    wrenches = jnp.zeros((n_ports, 6), dtype=lam.dtype)
    by_group = wrenches_at_joints(system, c, lam)
    for (g, group), W_M in zip(constrained_groups(system), by_group, strict=True):
        wrenches = wrenches + scatter(group, c.relative_poses(g), W_M, n_ports)
    return wrenches


def coordinate_loads(
    system: AbstractSystem,
    c: AbstractConfiguration,
    lam: Float[Array, "ng"],
    wrenches: Wrenches,
    joint_forces: JointForces,
) -> tuple[Wrenches, JointForces]:
    """Add the loads of couplings and drivers to wrenches on ports and forces on joints."""
    q, joint_forces = _coordinates(system, c), dict(joint_forces)
    if not q:
        return wrenches, joint_forces
    stop = lam.size - len(system.intrinsic_names())
    start = lam.size - len(coordinate_names(system))

    def residuals(q: Coordinates) -> Array:
        return jnp.concatenate(_coordinate_residuals(system, c.t, q))

    forces = jax.vjp(residuals, q)[1](lam[start:stop])[0]
    for g, force in forces.items():
        on_ports, on_joints = c.coordinate_loads(g, force)
        wrenches = wrenches + on_ports
        joint_forces[g] = joint_forces[g] + on_joints if g in joint_forces else on_joints
    return wrenches, joint_forces


def wrenches_at_joints(
    system: AbstractSystem, c: AbstractConfiguration, lam: Float[Array, "ng"]
) -> list[Float[Array, "_n 6"]]:
    """Wrenches of the multipliers on M, along its axes, for the joints of constrained groups."""
    return wrenches_of(c, [g for g, _ in constrained_groups(system)], lam)


def wrenches_of(
    c: AbstractConfiguration, groups: Sequence[int], lam: Float[Array, "m"]
) -> list[Float[Array, "_n 6"]]:
    """Wrenches of multipliers on M, along its axes, for the joints of the given groups.

    `lam` has an entry for each row of these joints.
    """
    wrenches, start = [], 0
    for g in groups:
        group = c.mechanism.joints[g]
        n, m = len(group), n_rows(group.joint)
        own = lam[start : start + n * m].reshape(n, m)
        start += n * m

        def wrench(joint: AbstractJoint, X: Pose, lam: Array) -> Array:
            shape = jax.ShapeDtypeStruct((6,), lam.dtype)
            return jax.linear_transpose(lambda V: _joint_rate(joint, X, V), shape)(lam)[0]

        wrenches.append(jax.vmap(wrench)(group.joint, c.relative_poses(g), own))
    return wrenches


def constraint_force(
    system: AbstractSystem, c: AbstractConfiguration, lam: Float[Array, "ng"]
) -> Velocities:
    """Generalized force Gᵀ λ of the constraints, shape `(nv,)`."""
    wrenches = constraint_wrenches(system, c, lam)
    loads = coordinate_loads(system, c, lam, wrenches, {})
    return generalized(c, *loads) + intrinsic_force(system, c, lam)


def intrinsic_force(
    system: AbstractSystem, c: AbstractConfiguration, lam: Float[Array, "ng"]
) -> Velocities:
    """The part of Gᵀ λ from intrinsic constraints."""
    n, shape = len(system.intrinsic_names()), jax.ShapeDtypeStruct((system.nv,), lam.dtype)
    if n == 0:
        return jnp.zeros(system.nv, dtype=lam.dtype)
    return jax.linear_transpose(lambda v: system.intrinsic_rate(c, v), shape)(lam[-n:])[0]


def jacobian(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "ng nv"]:
    """Constraint Jacobian G(t, q), shape `(ng, nv)`."""
    own = system.own_jacobian(c)
    return general_jacobian(system, c) if own is None else own


def general_jacobian(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "ng nv"]:
    """`jacobian` from the transpose of the velocity maps."""
    ng = n_constraints(system)
    joint_rows = ng - len(coordinate_names(system))

    def row(lam: Array) -> Velocities:
        return generalized(c, constraint_wrenches(system, c, lam), {})

    rows = jax.vmap(row)(jnp.eye(joint_rows, ng, dtype=c.q.dtype))
    return jnp.concatenate([rows, coordinate_jacobian(system, c)])


def coordinate_jacobian(
    system: AbstractSystem, c: AbstractConfiguration
) -> Float[Array, "n_coordinate nv"]:
    """The rows of G for constraints on coordinates."""
    if not coordinate_names(system):
        return jnp.zeros((0, system.nv), dtype=c.q.dtype)
    units = jnp.eye(system.nv, dtype=c.q.dtype)
    return of_directions(lambda v: coordinate_rate(system, c, v), units).T


# Reversed joints: joints at a false root of their residuals ---------------------------------------
#
# Residuals of rotations are linear in the entries of the relative rotation. Most of them also
# vanish half a turn away from the joint's rotations (see `joints.rotation`). The constraints are
# then satisfied by a rotation that the joint does not allow. `AbstractJoint.misalignment` detects
# this.

# From this misalignment [rad] on the nearest root of the residual is a false one.
FALSE_ROOT = 0.5 * pi


def _checked_groups(system: AbstractSystem) -> list[int]:
    """Groups of joints whose rotations are determined by constraints, not by coordinates."""
    of_elements = isinstance(system, AbstractNodalSystem)
    return [
        g
        for g, group in enumerate(system.mechanism.joints)
        if of_elements or not group.in_tree or g in system.constrained
    ]


def checked_joints(system: AbstractSystem) -> list[str]:
    """Names of the joints of `misalignment_angles`, in its order."""
    return [name for g in _checked_groups(system) for name in system.mechanism.joints[g].names]


def misalignments(system: AbstractSystem, c: AbstractConfiguration) -> list[Float[Array, "_n _m"]]:
    """`AbstractJoint.misalignment` of the checked joints, by group."""
    return [
        jax.vmap(lambda joint, X: joint.misalignment(X))(
            system.mechanism.joints[g].joint, c.relative_poses(g)
        )
        for g in _checked_groups(system)
    ]


def misalignment_angles(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "n"]:
    """Norm of the misalignment of each checked joint [rad], without derivatives."""
    parts = [jax.vmap(vector.length)(x) for x in misalignments(*stop_gradients((system, c)))]
    return jnp.concatenate([jnp.zeros(0, dtype=system.mechanism.dtype), *parts])


def is_reversed(angles: Float[Array | np.ndarray, "*n"]) -> Bool[Array | np.ndarray, "*n"]:
    """Mask of the reversed joints, from the result of `misalignment_angles`; False for NaN."""
    return angles > FALSE_ROOT


def reversed_joints(names: Sequence[str], angles: Float[np.ndarray, "n"]) -> str:
    """The reversed joints with their angles, for messages; empty if there are none."""
    return ", ".join(
        f"{name!r} by {angle:.3g} rad"
        for name, angle in zip(names, angles, strict=True)
        if angle > FALSE_ROOT
    )


@stored
@kernel
def misalignment_angles_at(
    system: AbstractSystem, t: Time, q: Float[Array, "nq"]
) -> Float[Array, "n"]:
    """`misalignment_angles` at time `t` and coordinates `q`."""
    return misalignment_angles(system, system.configuration(t, q))
