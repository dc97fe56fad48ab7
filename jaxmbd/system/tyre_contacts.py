"""Contacts and forces of tyres at a state."""

import jax

from ..forces import Tyre, TyreContact
from ..mechanism.elements import FrameElements, Motion
from ..programs import stored
from .abstract import AbstractSystem, State, Time, as_state, as_time


def tyre_contacts(system: AbstractSystem, t: float | Time, state: State) -> dict[str, TyreContact]:
    """Contacts of all tyres at a state, in the world, with loads, slips and forces, by name."""
    return _tyre_contacts(system, as_time(t, system), as_state(state, system))


@stored
def _tyre_contacts(system: AbstractSystem, t: Time, state: State) -> dict[str, TyreContact]:
    c = system.configuration(t, state.q, state.z)
    motion, by_name = Motion(c, state.v), {}
    for group in system.mechanism.elements:
        if not (isinstance(group, FrameElements) and isinstance(group.element, Tyre)):
            continue
        args = *group.positions(c), *group.velocities(motion), group.states(c.z)
        found = jax.vmap(lambda tyre, *args: tyre.at_contact(*args))(group.element, *args)
        for row, name in enumerate(group.names):
            by_name[name] = jax.tree.map(lambda x, row=row: x[row], found)
    return by_name
