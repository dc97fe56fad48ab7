"""Points and forces of contacts at a state."""

import jax

from ..forces import Contact, ContactPoints
from ..mechanism.elements import FrameElements, Motion
from ..programs import stored
from .abstract import AbstractSystem, State, Time, as_state, as_time


def contacts(system: AbstractSystem, t: float | Time, state: State) -> dict[str, ContactPoints]:
    """Points of all contacts at a state, in the world, with their forces, by name of the element.

    Points out of contact are among them, with a negative depth and no force.
    """
    return _contacts(system, as_time(t, system), as_state(state, system))


@stored
def _contacts(system: AbstractSystem, t: Time, state: State) -> dict[str, ContactPoints]:
    c = system.configuration(t, state.q, state.z)
    motion, by_name = Motion(c, state.v), {}
    for group in system.mechanism.elements:
        if not (isinstance(group, FrameElements) and isinstance(group.element, Contact)):
            continue
        args = *group.positions(c), *group.velocities(motion), group.states(c.z)
        points = jax.vmap(lambda contact, *args: contact.at_points(*args))(group.element, *args)
        for row, name in enumerate(group.names):
            by_name[name] = jax.tree.map(lambda x, row=row: x[row], points)
    return by_name
