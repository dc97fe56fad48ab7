"""Applied forces, and their generalized forces by duality."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..forces import AbstractField, AbstractFrameForce, AbstractJointForce
from ..lie import Pose
from .abstract import AbstractSystem, Time, Velocities
from .configuration import AbstractConfiguration
from .groups import ForceGroup, JointForceGroup
from .mechanism import Mechanism
from .rows import Rows

Wrenches = Float[Array, "n_ports 6"]
JointForces = dict[int, Float[Array, "_n _nv"]]  # Only groups with a force have an entry.


def applied(system: AbstractSystem, c: AbstractConfiguration, v: Velocities) -> Velocities:
    """f(t, q, v): generalized force of everything in `Model.forces`."""
    return generalized(c, *loads(c, v))


def loads(c: AbstractConfiguration, v: Velocities) -> tuple[Wrenches, JointForces]:
    """Wrench on every port, along its own axes, and force on every joint velocity, by group."""
    mechanism, ports, twists = c.mechanism, c.ports, c.twists(v)
    bodies = Rows.of(range(1, mechanism.n_bodies + 1))
    in_fields = field_wrenches(mechanism, c.t, bodies.take_tree(ports), bodies.take(twists))
    wrenches = bodies.add_to(frame_wrenches(mechanism, c.t, ports, twists), in_fields)
    return wrenches, joint_forces(c, v)


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


def joint_forces(c: AbstractConfiguration, v: Velocities) -> JointForces:
    """Force on every joint velocity, by group, of the forces on joints."""
    forces: JointForces = {}
    for g, groups in _by_joint_group(c.mechanism).items():
        coordinates, rates = c.coordinates(g), c.rates(g, v)
        total = jnp.zeros_like(rates)
        for group in groups:
            q, nu = group.rows.take(coordinates), group.rows.take(rates)
            force = jax.vmap(lambda force, q, v: force.force(c.t, q, v))(group.force, q, nu)
            total = group.rows.add_to(total, force)
        forces[g] = total
    return forces


def _by_joint_group(mechanism: Mechanism) -> dict[int, list[JointForceGroup]]:
    found: dict[int, list[JointForceGroup]] = {}
    for group in mechanism.joint_forces:
        found.setdefault(group.group, []).append(group)
    return found


def generalized(
    c: AbstractConfiguration, wrenches: Wrenches, joint_forces: JointForces
) -> Velocities:
    """Generalized force of port wrenches and joint forces: the transpose of the velocity maps."""

    def velocities(v: Velocities) -> tuple[Array, dict[int, Array]]:
        return c.twists(v), {g: c.rates(g, v) for g in joint_forces}

    shape = jax.ShapeDtypeStruct((c.nv,), c.q.dtype)
    return jax.linear_transpose(velocities, shape)((wrenches, joint_forces))[0]


def potential(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, ""]:
    """Potential energy [J] of all conservative forces, those of the formulation included."""
    return sum(potentials(c), system.internal_potential(c.q))


def potentials(c: AbstractConfiguration) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Potential energies [J] of the fields and of the other forces in the model."""
    mechanism, ports, t = c.mechanism, c.ports, c.t
    in_fields = elastic = jnp.zeros((), dtype=c.q.dtype)
    bodies = slice(1, mechanism.n_bodies + 1)
    X = Pose(ports.p[bodies], ports.R[bodies])
    for group in mechanism.fields:

        def energies(field):
            return jax.vmap(lambda body, X: field.potential(t, body, X))(mechanism.bodies, X)

        in_fields = in_fields + jnp.sum(jax.vmap(energies)(group.force))
    for group in mechanism.frame_forces:
        X = at_frames(group, ports)
        elastic = elastic + jnp.sum(jax.vmap(lambda f, X: f.potential(t, X))(group.force, X))
    for group in mechanism.joint_forces:
        q_joint = group.rows.take(c.coordinates(group.group))
        each = jax.vmap(lambda f, q: f.potential(t, q))(group.force, q_joint)
        elastic = elastic + jnp.sum(each)
    return in_fields, elastic
