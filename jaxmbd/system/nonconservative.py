"""Loads of elements minus those from potentials.

The differences are computed for each element, at its frames and joints: a difference of generalized
forces would leave a remainder if constraints have residuals.
"""

from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..joints.abstract import AbstractJoint
from ..lie import Pose, se3
from ..mechanism.elements import Fields, FrameElements, JointElements, JointForces, Loads, Wrenches
from .abstract import Time, Velocities
from .configuration import AbstractConfiguration
from .loads import generalized, loads


def nonconservative(c: AbstractConfiguration, v: Velocities) -> Velocities:
    """Generalized force of dampers, friction, drives and all other loads without a potential."""
    wrenches, joint_forces = loads(c, v)
    W, on_joints = _conservative(c)
    joint_forces = {g: force - on_joints.get(g, 0.0) for g, force in joint_forces.items()}
    return generalized(c, wrenches - W, joint_forces)


def conservative(c: AbstractConfiguration) -> Velocities:
    """Generalized force of the potentials."""
    return generalized(c, *_conservative(c))


def _conservative(c: AbstractConfiguration) -> tuple[Wrenches, JointForces]:
    """The part of `loads` from potentials."""
    total = Loads(c)
    for group in c.mechanism.elements:
        if group.has_potential:
            group.add(total, conservative_loads(group, c))
    return total.wrenches, total.joint_forces


@singledispatch
def conservative_loads(group: Any, c: AbstractConfiguration) -> Any:
    """Negative gradient of each element's potential, in the shape of the loads of the group."""
    raise NotImplementedError(f"{type(group).__name__}: register `conservative_loads`")


@conservative_loads.register
def _(group: FrameElements, c: AbstractConfiguration) -> Float[Array, "n n_frames 6"]:
    (X,) = group.positions(c)
    gradient = jax.vmap(jax.grad(lambda X, element: element.potential(c.t, X)))(X, group.element)
    return jax.vmap(jax.vmap(_wrench))(X, gradient)


@conservative_loads.register
def _(group: Fields, c: AbstractConfiguration) -> Float[Array, "n_bodies 6"]:
    bodies, X = group.positions(c)

    def energy(X: Pose, body: Any, fields: Any, t: Time) -> Float[Array, ""]:
        return jnp.sum(jax.vmap(lambda field: field.potential(t, body, X))(fields))

    gradient = jax.vmap(jax.grad(energy), in_axes=(0, 0, None, None))
    return jax.vmap(_wrench)(X, gradient(X, bodies, group.element, c.t))


@conservative_loads.register
def _(group: JointElements, c: AbstractConfiguration) -> Float[Array, "n nv"]:
    joint = group.rows.take_tree(c.mechanism.joints[group.group].joint)
    (q,) = group.positions(c)

    def force(element: Any, joint: AbstractJoint, q: Array) -> Array:
        gradient = jax.grad(lambda q: element.potential(c.t, q))(q)
        zeros = jnp.zeros(joint.sizes()[1], dtype=q.dtype)
        return -jax.linear_transpose(lambda v: joint.rates(q, v), zeros)(gradient)[0]

    return jax.vmap(force)(group.element, joint, q)


def _wrench(X: Pose, gradient: Pose) -> Float[Array, "6"]:
    """Wrench along a frame's own axes, from the gradient of a potential by the frame's pose."""
    zeros = jnp.zeros(6, dtype=X.p.dtype)
    return -jax.linear_transpose(lambda V: se3.rate(X, V), zeros)(gradient)[0]
