"""Systems whose coordinates are those of joints with one degree of freedom each."""

import jax.numpy as jnp
import numpy as np

from ..system import constraints
from ..system.abstract import AbstractSystem, State
from ..system.joint_states import joint_states


def joint_order(system: AbstractSystem) -> list[str] | None:
    """The joint of each coordinate and velocity; None unless they are equal to those of joints.

    So they are in `JointCoordinates` of an open tree of revolute, prismatic and screw joints.
    """
    if system.nq != system.nv or system.nv == 0 or constraints.n_constraints(system):
        return None
    # Small numbers that differ, at which angles are within half a turn.
    numbers = np.linspace(0.1, 0.2, system.nq)
    state = State(jnp.asarray(numbers), jnp.asarray(-numbers), jnp.zeros(system.nz))
    if system.mechanism.dtype != state.q.dtype:
        return None
    read = {
        name: (float(x.q), float(x.v))
        for name, x in joint_states(system, 0.0, state).items()
        if x.q.ndim == 0
    }
    order = []
    for number in numbers:
        names = [n for n, x in read.items() if np.allclose(x, (number, -number), rtol=1e-6)]
        if len(names) != 1:
            return None
        order.append(names[0])
    return order
