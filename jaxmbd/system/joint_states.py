"""Coordinates and velocities of joints by name, in all formulations."""

import equinox as eqx
from jaxtyping import Array, Float

from ..programs import stored
from ..programs.tracing import kernel
from .abstract import AbstractSystem, State, Time, as_state, as_time


class JointState(eqx.Module):
    """Coordinates `q`, shape `(..., nq)`, and velocities `v`, shape `(..., nv)`, of one joint.

    For a joint with one coordinate the shapes are `(...)`.
    """

    q: Float[Array, "..."]
    v: Float[Array, "..."]


def joint_states(system: AbstractSystem, t: float | Time, state: State) -> dict[str, JointState]:
    """Coordinates and velocities of all joints at a state, by name.

    Formulations without joint coordinates compute angles from poses, within (-π, π].

    For example:

        mbd.joint_states(system, 0.0, state)["hinge"].q  # [rad]
    """
    return _joint_states(system, as_time(t, system), as_state(state, system))


@stored
@kernel
def _joint_states(system: AbstractSystem, t: Time, state: State) -> dict[str, JointState]:
    c = system.configuration(t, state.q, state.z)
    states = {}
    for group, q, v in zip(
        system.mechanism.joints,
        c.joint_coordinates(),
        c.joint_rates(state.v),
        strict=True,
    ):
        for row, name in enumerate(group.names):
            scalar = q.shape[1] == 1
            own = (q[row, 0], v[row, 0]) if scalar else (q[row], v[row])
            states[name] = JointState(*own)
    return states
