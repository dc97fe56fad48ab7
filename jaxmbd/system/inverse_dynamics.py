"""The generalized force that a given acceleration needs."""

from functools import singledispatch

import equinox as eqx

from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .float_types import as_own
from .loads import applied


def inverse_dynamics(
    system: AbstractSystem, t: float | Time, state: State, vdot: Velocities
) -> Velocities:
    """M v̇ + b - f, shape `(nv,)`: what has to be added to the applied forces to get `vdot`.

    In `JointCoordinates` of an open tree these are the joint torques and forces. In coordinates
    with constraints the force includes what the joints themselves transmit.
    """
    state, vdot = as_state(state, system), as_own(vdot, system, "vdot")
    return _inverse_dynamics(system, as_time(t, system), state, vdot)


@eqx.filter_jit
def _inverse_dynamics(
    system: AbstractSystem, t: Time, state: State, vdot: Velocities
) -> Velocities:
    return inverse_dynamics_of(system, t, state, vdot)


@singledispatch
def inverse_dynamics_of(
    system: AbstractSystem, t: Time, state: State, vdot: Velocities
) -> Velocities:
    """By the mass matrix. Formulations may register a faster way."""
    q, v = state.q, state.v
    return system.mass(q) @ vdot + system.bias(q, v) - applied(system, t, q, v)
