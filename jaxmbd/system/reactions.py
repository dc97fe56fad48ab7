"""Reactions: the wrenches by which joints hold what they do not leave free."""

from functools import singledispatch

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..joints.abstract import sizes
from . import constraints
from .abstract import AbstractKinematics, AbstractSystem, State, Time, as_time
from .acceleration import accelerations


def reactions(
    system: AbstractSystem, t: float | Time, state: State
) -> dict[str, Float[Array, "6"]]:
    """Reaction wrench `[f, τ]` [N, N m] of every joint, by name.

    It is the wrench on the successor, expressed and taken at the joint's frame M there; the
    predecessor gets the opposite one. It does no work on the joint's motion: drives, springs and
    friction in the joint are not in it.
    """
    return _reactions(system, as_time(t, system), state)


@eqx.filter_jit
def _reactions(system: AbstractSystem, t: Time, state: State) -> dict[str, Array]:
    return reactions_of(system, t, state)


@singledispatch
def reactions_of(system: AbstractSystem, t: Time, state: State) -> dict[str, Float[Array, "6"]]:
    """From the multipliers. Formulations without one for each joint register their own way."""
    _, lam = accelerations(system, t, state)
    return constraint_reactions(system, system.kinematics(t, state.q), lam)


def constraint_reactions(
    system: AbstractSystem, kinematics: AbstractKinematics, lam: Float[Array, "ng"]
) -> dict[str, Float[Array, "6"]]:
    """Reactions of the joints that are constraints; zero of those that constrain nothing."""
    found = {
        name: wrench
        for group, W_M in zip(
            constraints.constrained_groups(system),
            constraints.wrenches_at_joints(system, kinematics, lam),
            strict=True,
        )
        for name, wrench in zip(group.names, W_M, strict=True)
    }
    for g in system.constrained:
        group = system.mechanism.joints[g]
        if sizes(group.joint)[2] == 0:
            found |= {name: jnp.zeros(6, dtype=lam.dtype) for name in group.names}
    return found
