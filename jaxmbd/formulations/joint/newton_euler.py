"""Forces along the tree: inverse dynamics and reactions by Newton and Euler."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...joints import AbstractJoint
from ...lie import Pose, se3
from ...system import constraints, joint_motion
from ...system.abstract import State
from ...system.acceleration import accelerations
from ...system.inverse_dynamics import inverse_dynamics_of
from ...system.loads import JointForces, loads
from ...system.mechanism import Mechanism
from ...system.reactions import constraint_reactions, reactions_of, with_couplings
from ...system.two_point import on_bodies
from .kinematics import JointKinematics, collect
from .system import JointSystem


@inverse_dynamics_of.register
def _(
    system: JointSystem, t: Float[Array, ""], state: State, vdot: Float[Array, "nv"]
) -> Float[Array, "nv"]:
    """One pass outwards and one back (recursive Newton–Euler), without the mass matrix."""
    kinematics = system.kinematics(t, state.q)
    force = net_force(system, t, kinematics, state.v, vdot)
    return system.reflected_inertias() * vdot - force


@reactions_of.register
def _(system: JointSystem, t: Float[Array, ""], state: State) -> dict[str, Float[Array, "6"]]:
    """A tree joint carries what the bodies beyond it need and applied wrenches do not give."""
    mechanism = system.mechanism
    vdot, lam = accelerations(system, t, state)
    kinematics = system.kinematics(t, state.q)
    wrenches, joint_forces = loads(mechanism, t, kinematics, state.v)
    wrenches = wrenches + constraints.constraint_wrenches(system, kinematics, lam)
    joint_forces = with_couplings(system, kinematics, joint_forces, lam)
    wrenches = wrenches + loop_joint_wrenches(mechanism, kinematics, joint_forces)
    given = external_wrenches(mechanism, kinematics.ports, wrenches)
    needed = system.inertial_wrenches(kinematics, state.v, vdot)
    carried = collect(mechanism, needed - given)
    found = constraint_reactions(system, kinematics, lam)
    for g in system.layout.groups:
        group = mechanism.joints[g]
        X_WM = group.second.take_tree(kinematics.ports)
        W = jax.vmap(se3.transform_wrench_back)(X_WM, group.children.take(carried))

        def held(joint: AbstractJoint, q: Array, W: Array) -> Array:
            return W - joint.drive(q) @ (joint.motion(q).T @ W)  # The rest drives the joint.

        W = jax.vmap(held)(group.joint, kinematics.values[g], W)
        sign = -1.0 if group.reversed else 1.0
        found |= {name: sign * W[row] for row, name in enumerate(group.names)}
    return found


def net_force(
    system: JointSystem,
    t: Float[Array, ""],
    kinematics: JointKinematics,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
) -> Float[Array, "nv"]:
    """f - b - M v̇, by one pass over the tree; rotors at v̇ are not in it."""
    mechanism = system.mechanism
    wrenches, joint_forces = loads(mechanism, t, kinematics, v)
    wrenches = wrenches + loop_joint_wrenches(mechanism, kinematics, joint_forces)
    given = external_wrenches(mechanism, kinematics.ports, wrenches)
    force = system.project(kinematics, given - system.inertial_wrenches(kinematics, v, vdot))
    return add_joint_forces(system, force, joint_forces)


def add_joint_forces(
    system: JointSystem, total: Float[Array, "nv"], joint_forces: JointForces
) -> Float[Array, "nv"]:
    """`total` and what acts on the joints of the tree."""
    entries = dict(zip(system.layout.groups, system.layout.velocities, strict=True))
    for g, value in joint_forces.items():
        if g in entries:
            total = entries[g].add_to(total, value.ravel())
    return total


def loop_joint_wrenches(
    mechanism: Mechanism, kinematics: JointKinematics, joint_forces: JointForces
) -> Float[Array, "n_ports 6"]:
    """Wrenches on the ports of the forces that act on joints outside the tree."""
    total = jnp.zeros((mechanism.n_ports, 6), dtype=kinematics.H.dtype)
    for g, value in joint_forces.items():
        group = mechanism.joints[g]
        if not group.in_tree:
            q, ports = kinematics.joint_coordinates()[g], kinematics.ports
            total = total + joint_motion.drive(group, ports, q, value, mechanism.n_ports)
    return total


def external_wrenches(
    mechanism: Mechanism, ports: Pose, wrenches: Float[Array, "n_ports 6"]
) -> Float[Array, "n_bodies 6"]:
    """Sum of the port wrenches on every body, about the world's origin."""
    world = jax.vmap(se3.transform_wrench)(ports, wrenches)
    return on_bodies(mechanism, world)
