"""Inverse dynamics and reactions in a tree by the Newton–Euler equations."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...joints import AbstractJoint
from ...lie import se3
from ...mechanism.elements import JointForces, Wrenches
from ...mechanism.index_sets import IndexSet
from ...system import joint_motion
from ...system.abstract import State
from ...system.discrete_gradients import on_bodies
from ...system.equation_residuals import forces_and_reactions, residual_by_bodies
from ...system.loads import loads
from ...system.reactions import constraint_reactions
from .system import JointSystem
from .tree_configuration import JointConfiguration, sum_over_subtrees


def motion_residual(
    system: JointSystem,
    c: JointConfiguration,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
    lam: Float[Array, "ng"] | None,
) -> Float[Array, "nv"]:
    """The residual by one pass from root to tips and one from tips to root (Newton–Euler)."""
    if not system.mechanism.all_rigid:
        residual = residual_by_bodies(system, c, v, vdot, lam)
        return residual + system.reflected_inertias() * vdot
    wrenches, joint_forces, intrinsic = forces_and_reactions(system, c, v, lam)
    force = _net_force(system, c, v, vdot, wrenches, joint_forces)
    return system.reflected_inertias() * vdot - force - intrinsic


def rest_residual(
    system: JointSystem, c: JointConfiguration, lam: Float[Array, "ng"] | None
) -> Float[Array, "nv"] | None:
    """-(f + Gᵀ λ) for rigid bodies, whose inertial forces are zero at rest.

    Wrenches are added along the world's axes, as in `motion_residual`: then loads that are
    perpendicular to a free direction have no component along it, not even rounding errors.
    """
    if not system.mechanism.all_rigid:
        return None
    v = jnp.zeros(system.nv, c.q.dtype)
    wrenches, joint_forces, intrinsic = forces_and_reactions(system, c, v, lam)
    force = system.project(c, _external_wrenches(c, wrenches, joint_forces))
    return -add_joint_forces(system, force, joint_forces) - intrinsic


def reactions_of(
    system: JointSystem, t: Float[Array, ""], state: State, solved: tuple[Array, Array]
) -> dict[str, Float[Array, "6"]]:
    """Reactions of tree joints from the wrenches that the bodies beyond them require."""
    mechanism = system.mechanism
    vdot, lam = solved
    c = system.configuration(t, state.q, state.z)
    wrenches, joint_forces, _ = forces_and_reactions(system, c, state.v, lam)
    external = _external_wrenches(c, wrenches, joint_forces)
    inertial = system.inertial_wrenches(c, state.v, vdot)
    subtrees = sum_over_subtrees(mechanism, inertial - external)
    by_name = constraint_reactions(system, c, lam)
    for g in system.layout.groups:
        group = mechanism.joints[g]
        X_WM = c.frames_M(g)
        W = jax.vmap(se3.transform_wrench_back)(X_WM, group.children.take(subtrees))

        def reaction(joint: AbstractJoint, q: Array, W: Array) -> Array:
            return W - joint.dual_motion(q) @ (joint.motion(q).T @ W)  # Without driving forces.

        W = jax.vmap(reaction)(group.joint, c.values[g], W)
        sign = -1.0 if group.reversed else 1.0
        by_name |= {name: sign * W[row] for row, name in enumerate(group.names)}
    return by_name


def net_force(
    system: JointSystem, c: JointConfiguration, v: Float[Array, "nv"], vdot: Float[Array, "nv"]
) -> Float[Array, "nv"]:
    """f - b - M v̇ without the inertial forces of rotors, by one pass over the tree."""
    return _net_force(system, c, v, vdot, *loads(c, v))


def external_loads(
    c: JointConfiguration, v: Float[Array, "nv"]
) -> tuple[Float[Array, "n_bodies 6"], JointForces]:
    """Applied wrenches on every body, about its reference point, and forces on joints."""
    wrenches, joint_forces = loads(c, v)
    return _external_wrenches(c, wrenches, joint_forces), joint_forces


def _net_force(
    system: JointSystem,
    c: JointConfiguration,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
    wrenches: Wrenches,
    joint_forces: JointForces,
) -> Float[Array, "nv"]:
    external = _external_wrenches(c, wrenches, joint_forces)
    force = system.project(c, external - system.inertial_wrenches(c, v, vdot))
    return add_joint_forces(system, force, joint_forces)


def add_joint_forces(
    system: JointSystem, total: Float[Array, "nv"], joint_forces: JointForces
) -> Float[Array, "nv"]:
    """`total` with the forces on the joints of the tree added."""
    entries = dict(zip(system.layout.groups, system.layout.velocities, strict=True))
    for g, value in joint_forces.items():
        if g in entries:
            total = entries[g].add_to(total, value.ravel())
    return total


def _external_wrenches(
    c: JointConfiguration, wrenches: Wrenches, joint_forces: JointForces
) -> Float[Array, "n_bodies 6"]:
    """Sums of the port wrenches and of forces on joints outside the tree, on every body.

    They are about its reference point.
    """
    mechanism = c.mechanism
    for g, value in joint_forces.items():
        group = mechanism.joints[g]
        if not group.in_tree:
            X_FM, q = c.relative_poses(g), c.coordinates(g)
            driven = joint_motion.driving_wrenches(group, X_FM, q, value, mechanism.n_ports)
            wrenches = wrenches + driven
    world = jax.vmap(se3.transform_wrench)(c.shifted, wrenches)
    return on_bodies(c.mechanism, world)


def applied_wrenches(
    c: JointConfiguration,
    on_bodies: Float[Array, "n_bodies 6"] | None,
    on_ports: Wrenches | None,
    loaded: Iterable[int],
) -> Float[Array, "n_bodies 6"]:
    """Sum of the wrenches on every body and its ports, about its reference point.

    Ports that are not `loaded` have no wrench: most frames of a robot's file are such.
    """
    mechanism = c.mechanism
    total = jnp.zeros((mechanism.n_bodies, 6), c.q.dtype)
    if on_bodies is not None:
        X = jax.tree.map(lambda x: x[1 : mechanism.n_bodies + 1], c.shifted)
        total = jax.vmap(se3.transform_wrench)(X, on_bodies)
    if on_ports is None:
        return total
    row = [*range(1 + mechanism.n_bodies), *mechanism.port_bodies.index]
    ports = IndexSet.of(k for k in sorted(loaded) if row[k] > 0)  # Row 0 is the ground.
    bodies = IndexSet.of(row[k] - 1 for k in ports.index)
    world = jax.vmap(se3.transform_wrench)(ports.take_tree(c.shifted), ports.take(on_ports))
    return total + bodies.add_to(jnp.zeros((mechanism.n_bodies, 6), world.dtype), world)
