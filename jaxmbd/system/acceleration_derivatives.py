"""Derivatives of accelerations by positions and velocities."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scalarjit.with_room import with_room

from ..programs import stored
from .abstract import AbstractSystem, State, Time, as_state, as_time
from .acceleration import accelerations

Matrices = tuple[Float[Array, "nv nv"], Float[Array, "nv nv"]]


def acceleration_derivatives(system: AbstractSystem, t: float | Time, state: State) -> Matrices:
    """∂v̇/∂q and ∂v̇/∂v of the accelerations of a state, each of shape `(nv, nv)`.

    Column j of ∂v̇/∂q is the change by a unit displacement along velocity j, in the sense of
    `system.retract`, at constant v and z. Both are NaN where `accelerations` are.

    Trees of rigid bodies in joint coordinates without constraints, and without elements with states
    or controllers, have derivatives in closed form, for the cost of a few evaluations of the
    accelerations. All other systems are differentiated, in 2 `nv` directions.

    For example:

        by_q, by_v = mbd.acceleration_derivatives(system, 0.0, state)
    """
    return _derivatives(system, as_time(t, system), as_state(state, system))


@stored
@with_room
def _derivatives(system: AbstractSystem, t: Time, state: State) -> Matrices:
    system = system.prepared()
    found = system.own_acceleration_derivatives(t, state)
    if found is not None:
        return found

    def vdot(dq: Float[Array, "nv"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        now = State(system.retract(state.q, dq), v, state.z)
        return accelerations(system, t, now)[0]

    return jax.jacfwd(vdot, (0, 1))(jnp.zeros_like(state.v), state.v)
