"""Applied forces less those that follow from potentials.

Force by force, at the frames and joints they act on: a difference of generalized forces would keep
a rest where constraints are not closed.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..joints.abstract import AbstractJoint
from ..lie import Pose, se3
from .abstract import Time, Velocities
from .configuration import AbstractConfiguration
from .loads import JointForces, Wrenches, at_frames, generalized, has_potential, loads
from .mechanism import Mechanism


def nonconservative(c: AbstractConfiguration, v: Velocities) -> Velocities:
    """Generalized force of dampers, friction, drives and whatever else has no potential."""
    wrenches, joint_forces = loads(c, v)
    W, pull = _conservative(c)
    joint_forces = {g: force - pull.get(g, 0.0) for g, force in joint_forces.items()}
    return generalized(c, wrenches - W, joint_forces)


def conservative(c: AbstractConfiguration) -> Velocities:
    """Generalized force of the potentials, the rest of the applied forces."""
    return generalized(c, *_conservative(c))


def _conservative(c: AbstractConfiguration) -> tuple[Wrenches, JointForces]:
    """The part of `loads` that follows from potentials."""
    wrenches = _conservative_wrenches(c.mechanism, c.t, c.ports)
    return wrenches, _conservative_joint_forces(c)


def _conservative_wrenches(mechanism: Mechanism, t: Time, ports: Pose) -> Wrenches:
    total = jnp.zeros((mechanism.n_ports, 6), dtype=ports.p.dtype)
    for group in mechanism.frame_forces:
        if not has_potential(group.force):
            continue
        X = at_frames(group, ports)
        slope = jax.vmap(jax.grad(lambda X, force: force.potential(t, X)))(X, group.force)
        W = jax.vmap(jax.vmap(_wrench))(X, slope)
        for k, rows in enumerate(group.ports):
            total = rows.add_to(total, W[:, k])
    own = slice(1, mechanism.n_bodies + 1)
    X = Pose(ports.p[own], ports.R[own])
    for group in mechanism.fields:
        if not has_potential(group.force):
            continue

        def energy(X: Pose, body: Any, fields: Any) -> Float[Array, ""]:
            return jnp.sum(jax.vmap(lambda field: field.potential(t, body, X))(fields))

        slope = jax.vmap(jax.grad(energy), in_axes=(0, 0, None))(X, mechanism.bodies, group.force)
        total = total.at[own].add(jax.vmap(_wrench)(X, slope))
    return total


def _wrench(X: Pose, slope: Pose) -> Float[Array, "6"]:
    """Wrench along a frame's own axes, of the derivative of a potential by the frame's pose."""
    still = jnp.zeros(6, dtype=X.p.dtype)
    return -jax.linear_transpose(lambda V: se3.rate(X, V), still)(slope)[0]


def _conservative_joint_forces(c: AbstractConfiguration) -> JointForces:
    mechanism, t = c.mechanism, c.t
    forces: JointForces = {}
    for group in mechanism.joint_forces:
        if not has_potential(group.force):
            continue
        joints = mechanism.joints[group.group]
        joint, q = group.rows.take_tree(joints.joint), group.rows.take(c.coordinates(group.group))

        def pull(force: Any, joint: AbstractJoint, q: Array) -> Array:
            slope = jax.grad(lambda q: force.potential(t, q))(q)
            still = jnp.zeros(joint.sizes()[1], dtype=q.dtype)
            return -jax.linear_transpose(lambda v: joint.rates(q, v), still)(slope)[0]

        each = jax.vmap(pull)(group.force, joint, q)
        total = forces.get(group.group, jnp.zeros((len(joints), each.shape[1]), dtype=each.dtype))
        forces[group.group] = group.rows.add_to(total, each)
    return forces


__all__ = ["conservative", "nonconservative"]
