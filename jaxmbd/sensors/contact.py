"""Sensors of contact forces."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.model import unknown
from ..system.abstract import AbstractSystem, State, Time
from ..system.contacts import contacts
from .abstract import AbstractSensor


class ContactForce(AbstractSensor):
    """Force of a contact on its first body, along the axes of the world, shape `(3,)` [N].

    It is the sum over the points of contact. `mbd.contacts` gives each of them.

    **Arguments:** `contact`: name of the element.

    For example:

        scale = sensors.ContactForce("touch")
    """

    contact: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "3"]:
        known = contacts(system, t, state)
        if self.contact not in known:
            raise ModelError(unknown("sensor: unknown contact", self.contact, known))
        return jnp.sum(known[self.contact].force, axis=0)
