"""Checks for components that points and vectors cannot represent."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...bodies import RigidBody
from ...errors import ModelError
from ...lie import Pose
from ...mechanism.groups import IndexSet
from ...mechanism.mechanism import Mechanism
from ...model.model import in_float_type
from ...model.values import is_concrete
from .system import second_moments


def check_rotors(caller: str, mechanism: Mechanism) -> None:
    """**Raises** `ModelError`, naming it, for a rotor: its angle is not a point of a body."""
    names = [name for group in mechanism.rotors for name in group.names]
    if names:
        raise ModelError(
            f"rotor {names[0]!r}: {caller} has no coordinate for its angle; use "
            "JointCoordinates() or MaximalCoordinates(), or omit the rotor"
        )


def check_bodies(caller: str, mechanism: Mechanism) -> Mechanism:
    """The mechanism; **raises** `ModelError`, naming it, for a body that is not rigid."""
    for group in mechanism.bodies:
        if not isinstance(group.body, RigidBody):
            raise ModelError(
                f"body {group.names[0]!r}: {caller} represents rigid bodies only, not a "
                f"{type(group.body).__name__}; use JointCoordinates() or MaximalCoordinates()"
            )
    return mechanism


def check_joints(caller: str, mechanism: Mechanism) -> None:
    """**Raises** `ModelError`, naming it, for a joint with nonholonomic constraints."""
    for group in mechanism.joints:
        if group.joint.n_nonholonomic > 0:
            raise ModelError(
                f"joint {group.names[0]!r}: {caller} has no rows for the nonholonomic constraints "
                f"of a {type(group.joint).__name__} joint; use JointCoordinates() or "
                "MaximalCoordinates()"
            )


def check_inertias(caller: str, mechanism: Mechanism) -> None:
    """**Raises** `ModelError`, naming it, for a flat body, without extent in some direction."""
    inertia = mechanism.rigid.inertia
    if not is_concrete(inertia):
        return
    symmetric = jax.vmap(lambda body: body.symmetric_inertia())(mechanism.rigid)
    moments = np.linalg.eigvalsh(np.asarray(jax.vmap(second_moments)(symmetric)))
    for name, own in zip(mechanism.topology.bodies[1:], moments, strict=True):
        if own[0] <= 10 * float(np.finfo(own.dtype).eps) ** 0.9 * own[2]:
            raise ModelError(
                f"body {name!r} is flat: the mass matrix of {caller} would be singular (∫ρ s sᵀ "
                f"has the principal values {own}); give it some thickness, or use other coordinates"
            )


# Body frames at the centres of mass ---------------------------------------------------------------


def with_bodies_at_com(mechanism: Mechanism) -> Mechanism:
    """The mechanism with the frame of every body moved to its centre of mass.

    Elements have a node at the centre of mass, so that weight acts at a node. The original frames
    of the bodies become attached ports with the names of the bodies.
    """
    (group,) = mechanism.bodies
    n, bodies = mechanism.n_bodies, mechanism.rigid
    at_com = jnp.concatenate([jnp.zeros((1, 3), dtype=bodies.com.dtype), bodies.com])
    axes = jnp.broadcast_to(jnp.eye(3, dtype=bodies.com.dtype), (n, 3, 3))
    own = in_float_type(Pose(-bodies.com, axes), mechanism.dtype)
    shifted = mechanism.offsets.p - mechanism.port_bodies.take(at_com)
    others = eqx.tree_at(lambda frame: frame.p, mechanism.offsets, shifted)
    offsets = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), others, own)
    names = mechanism.port_names
    return replace(
        mechanism,
        bodies=(eqx.tree_at(lambda group: group.body.com, group, jnp.zeros_like(bodies.com)),),
        offsets=offsets,
        port_bodies=IndexSet.of([*mechanism.port_bodies.index, *range(1, n + 1)]),
        port_names=(names[0], *[None] * n, *names[n + 1 :], *names[1 : n + 1]),
    )
