"""Coordinates and velocities of joints by name, whatever the formulation."""

import equinox as eqx
from jaxtyping import Array, Float

from .abstract import AbstractSystem, State, Time, as_state, as_time


class JointState(eqx.Module):
    """Coordinates `q`, shape `(..., nq)`, and velocities `v`, shape `(..., nv)`, of one joint.

    Their last axis is left out for joints with one coordinate.
    """

    q: Float[Array, "..."]
    v: Float[Array, "..."]


def joint_states(system: AbstractSystem, t: float | Time, state: State) -> dict[str, JointState]:
    """Coordinates and velocities of every joint of a state, by name.

    In formulations without joint coordinates angles are read off the poses, within (-π, π].
    """
    return _joint_states(system, as_time(t, system), as_state(state, system))


@eqx.filter_jit
def _joint_states(system: AbstractSystem, t: Time, state: State) -> dict[str, JointState]:
    c = system.configuration(t, state.q, state.z)
    found = {}
    for group, q, v in zip(
        system.mechanism.joints,
        c.joint_coordinates(),
        c.joint_rates(state.v),
        strict=True,
    ):
        for row, name in enumerate(group.names):
            scalar = q.shape[1] == 1
            found[name] = JointState(q[row, 0], v[row, 0]) if scalar else JointState(q[row], v[row])
    return found
