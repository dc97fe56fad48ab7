"""Checks for components that points and vectors cannot represent."""

import jax
import numpy as np

from ...bodies import RigidBody
from ...errors import ModelError
from ...mechanism.mechanism import Mechanism
from ...model.values import is_concrete
from .system import second_moments


def check_rotors(who: str, mechanism: Mechanism) -> None:
    """**Raises** `ModelError`, naming it, for a rotor: its angle is not a point of a body."""
    names = [name for group in mechanism.rotors for name in group.names]
    if names:
        raise ModelError(
            f"rotor {names[0]!r}: {who} has no coordinate for its angle; use "
            "JointCoordinates() or MaximalCoordinates(), or omit the rotor"
        )


def check_bodies(who: str, mechanism: Mechanism) -> Mechanism:
    """The mechanism; **raises** `ModelError`, naming it, for a body that is not rigid."""
    for group in mechanism.bodies:
        if not isinstance(group.body, RigidBody):
            raise ModelError(
                f"body {group.names[0]!r}: {who} represents rigid bodies only, not a "
                f"{type(group.body).__name__}; use JointCoordinates() or MaximalCoordinates()"
            )
    return mechanism


def check_joints(who: str, mechanism: Mechanism) -> None:
    """**Raises** `ModelError`, naming it, for a joint with nonholonomic constraints."""
    for group in mechanism.joints:
        if group.joint.n_nonholonomic > 0:
            raise ModelError(
                f"joint {group.names[0]!r}: {who} has no rows for the nonholonomic constraints of "
                f"a {type(group.joint).__name__} joint; use JointCoordinates() or "
                "MaximalCoordinates()"
            )


def check_inertias(who: str, mechanism: Mechanism) -> None:
    """**Raises** `ModelError`, naming it, for a flat body, without extent in some direction."""
    inertia = mechanism.rigid.inertia
    if not is_concrete(inertia):
        return
    symmetric = jax.vmap(lambda body: body.symmetric_inertia())(mechanism.rigid)
    moments = np.linalg.eigvalsh(np.asarray(jax.vmap(second_moments)(symmetric)))
    for name, own in zip(mechanism.topology.bodies[1:], moments, strict=True):
        if own[0] <= 10 * float(np.finfo(own.dtype).eps) ** 0.9 * own[2]:
            raise ModelError(
                f"body {name!r} is flat: the mass matrix of {who} would be singular (∫ρ s sᵀ has "
                f"the principal values {own}); give it some thickness, or use other coordinates"
            )
