"""Applied forces, and their generalized forces by duality."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..forces import AbstractField, AbstractFrameForce, AbstractJointForce
from ..lie import Pose
from .abstract import AbstractKinematics, AbstractSystem, Coordinates, Time, Velocities
from .groups import ForceGroup
from .mechanism import Mechanism
from .rows import Rows

Wrenches = Float[Array, "n_ports 6"]
JointForces = dict[int, Float[Array, "_n _nv"]]  # Only groups with a force have an entry.


def applied(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> Velocities:
    """f(t, q, v): generalized force of everything in `Model.forces`."""
    kinematics = system.kinematics(t, q)
    return generalized(kinematics, v, *loads(system.mechanism, t, kinematics, v))


def loads(
    mechanism: Mechanism, t: Time, kinematics: AbstractKinematics, v: Velocities
) -> tuple[Wrenches, JointForces]:
    """Wrench on every port, along its own axes, and force on every joint velocity, by group."""
    ports, twists = kinematics.ports, kinematics.twists(v)
    bodies = Rows.of(range(1, mechanism.n_bodies + 1))
    in_fields = field_wrenches(mechanism, t, bodies.take_tree(ports), bodies.take(twists))
    wrenches = bodies.add_to(frame_wrenches(mechanism, t, ports, twists), in_fields)
    return wrenches, joint_forces(mechanism, t, kinematics, v)


def frame_wrenches(mechanism: Mechanism, t: Time, ports: Pose, twists: Wrenches) -> Wrenches:
    """Wrench on every port, along its own axes, of the forces between frames."""
    wrenches = jnp.zeros_like(twists)
    for group in mechanism.frame_forces:
        X = at_frames(group, ports)
        V = at_frames(group, twists)
        W = jax.vmap(lambda force, X, V: force.wrenches(t, X, V))(group.force, X, V)
        for k, rows in enumerate(group.ports):
            wrenches = rows.add_to(wrenches, W[:, k])
    return wrenches


def has_potential(force: AbstractFrameForce | AbstractJointForce | AbstractField) -> bool:
    """Whether a kind of force states a potential of its own."""
    none = AbstractFrameForce.potential, AbstractJointForce.potential, AbstractField.potential
    return type(force).potential not in none


def at_frames(group: ForceGroup, x: Any) -> Any:
    """Rows of port data for every force of a group and each of its frames, `(n, n_frames, …)`."""
    taken = [rows.take_tree(x) for rows in group.ports]
    return jax.tree.map(lambda *frames: jnp.stack(frames, axis=1), *taken)


def field_wrenches(
    mechanism: Mechanism, t: Time, X: Pose, V: Float[Array, "n_bodies 6"]
) -> Float[Array, "n_bodies 6"]:
    """Wrench on every body, along its own axes, of the fields."""
    total = jnp.zeros_like(V)
    for group in mechanism.fields:

        def wrenches(field):
            return jax.vmap(lambda body, X, V: field.wrench(t, body, X, V))(mechanism.bodies, X, V)

        total = total + jnp.sum(jax.vmap(wrenches)(group.force), axis=0)
    return total


def joint_forces(
    mechanism: Mechanism, t: Time, kinematics: AbstractKinematics, v: Velocities
) -> JointForces:
    """Force on every joint velocity, by group, of the forces on joints."""
    if not mechanism.joint_forces:
        return {}
    coordinates, rates = kinematics.joint_coordinates(), kinematics.joint_rates(v)
    forces: JointForces = {}
    for group in mechanism.joint_forces:
        q, nu = group.rows.take(coordinates[group.group]), group.rows.take(rates[group.group])
        force = jax.vmap(lambda force, q, v: force.force(t, q, v))(group.force, q, nu)
        total = forces.get(group.group, jnp.zeros_like(rates[group.group]))
        forces[group.group] = group.rows.add_to(total, force)
    return forces


def generalized(
    kinematics: AbstractKinematics, v: Velocities, wrenches: Wrenches, joint_forces: JointForces
) -> Velocities:
    """Generalized force of port wrenches and joint forces: the transpose of the velocity maps."""

    def velocities(v: Velocities) -> tuple[Array, dict[int, Array]]:
        rates = kinematics.joint_rates(v) if joint_forces else ()
        return kinematics.twists(v), {g: rates[g] for g in joint_forces}

    return jax.linear_transpose(velocities, v)((wrenches, joint_forces))[0]


def potential(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, ""]:
    """Potential energy [J] of all conservative forces, those of the formulation included."""
    return sum(potentials(system, t, q), system.internal_potential(q))


def potentials(
    system: AbstractSystem, t: Time, q: Coordinates
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Potential energies [J] of the fields and of the other forces in the model."""
    mechanism, kinematics = system.mechanism, system.kinematics(t, q)
    ports = kinematics.ports
    in_fields = elastic = jnp.zeros((), dtype=q.dtype)
    bodies = slice(1, mechanism.n_bodies + 1)
    X = Pose(ports.p[bodies], ports.R[bodies])
    for group in mechanism.fields:

        def energies(field):
            return jax.vmap(lambda body, X: field.potential(t, body, X))(mechanism.bodies, X)

        in_fields = in_fields + jnp.sum(jax.vmap(energies)(group.force))
    for group in mechanism.frame_forces:
        X = at_frames(group, ports)
        elastic = elastic + jnp.sum(jax.vmap(lambda f, X: f.potential(t, X))(group.force, X))
    coordinates = kinematics.joint_coordinates() if mechanism.joint_forces else ()
    for group in mechanism.joint_forces:
        q_joint = group.rows.take(coordinates[group.group])
        each = jax.vmap(lambda f, q: f.potential(t, q))(group.force, q_joint)
        elastic = elastic + jnp.sum(each)
    return in_fields, elastic
