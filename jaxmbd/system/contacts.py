"""Contacts at a state: points, forces and gaps, of tyres too."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..contact import Terrain
from ..forces import Contact, ContactPoints, Gaps, Tyre, TyreContact
from ..mechanism.elements import FrameElements, Motion
from ..programs import stored
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .configuration import AbstractConfiguration


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


# Contacts and forces of tyres at a state ----------------------------------------------------------


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


# Gaps between the surfaces of all contacts of a system, and their velocities ----------------------


class Surfaces(eqx.Module):
    """Contacts of a system, without their forces.

    - `groups`: the groups of contacts.
    """

    groups: tuple[FrameElements, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the contact of every point."""
        return tuple(
            name
            for group in self.groups
            for name in group.names
            for _ in range(_contact(group).n_points)
        )

    @property
    def thickness(self) -> Float[Array, "n_points"]:
        """Smallest dimension of the solid of every point [m]."""
        parts = [
            jnp.repeat(jax.vmap(lambda x: x.thickness)(group.element), _contact(group).n_points)
            for group in self.groups
        ]
        return jnp.concatenate(parts)

    def at(self, c: AbstractConfiguration, v: Velocities) -> Gaps:
        """Gaps, normals and relative velocities of all points, shapes `(n_points, ...)`."""
        motion, parts = Motion(c, v), []
        for group in self.groups:
            args = *group.positions(c), *group.velocities(motion)
            gaps = jax.vmap(lambda contact, *args: contact.gaps(*args))(group.element, *args)
            parts.append(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), gaps))
        return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)

    def gaps(
        self, system: AbstractSystem, t: Time, state: State
    ) -> tuple[Float[Array, "n_points"], Float[Array, "n_points"]]:
        """Gaps [m] and their rates [m/s] at a state."""
        here = self.at(system.configuration(t, state.q, state.z), state.v)
        return here.gap, jnp.sum(here.normal * here.velocity, axis=1)

    def bristle_rates(
        self, system: AbstractSystem, t: Time, state: State
    ) -> Float[Array, "n_contacts"]:
        """Largest rate at which bristles of every contact relax [1/s], see `Contact`."""
        c = system.configuration(t, state.q, state.z)
        motion, parts = Motion(c, state.v), []
        for group in self.groups:
            args = *group.positions(c), *group.velocities(motion), group.states(c.z)
            rates = jax.vmap(lambda contact, *args: contact.bristle_rate(*args))
            parts.append(rates(group.element, *args))
        return jnp.concatenate(parts)


def _contact(group: FrameElements) -> Contact:
    assert isinstance(group.element, Contact)
    return group.element


def surfaces_of(system: AbstractSystem) -> Surfaces:
    """The contacts of a system."""
    groups = [x for x in system.mechanism.elements if isinstance(x, FrameElements)]
    return Surfaces(tuple(group for group in groups if isinstance(group.element, Contact)))


def names_on_terrain(system: AbstractSystem) -> tuple[str, ...]:
    """Names of contacts and tyres on terrain."""

    def is_on_terrain(element: Any) -> bool:
        shapes: tuple[Any, ...] = ()
        if isinstance(element, Contact):
            shapes = element.shape_a, element.shape_b
        elif isinstance(element, Tyre):
            shapes = (element.road,)
        return any(isinstance(shape, Terrain) for shape in shapes)

    groups = system.mechanism.elements
    return tuple(name for x in groups if is_on_terrain(x.element) for name in x.names)


def without_contacts(system: AbstractSystem) -> Any:
    """The system without the forces of its contacts."""
    rest = tuple(x for x in system.mechanism.elements if not isinstance(x.element, Contact))
    return eqx.tree_at(lambda s: s.mechanism.elements, system, rest)
