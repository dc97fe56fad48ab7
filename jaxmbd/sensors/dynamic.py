"""Sensors of accelerations, reactions, driving forces and states of elements."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import RigidBody
from ..errors import ModelError
from ..lie import Pose
from ..mechanism.elements import Fields
from ..model.model import unknown
from ..model.values import as_leaf
from ..system.abstract import AbstractSystem, State, Time
from ..system.acceleration import accelerations
from ..system.inverse_dynamics import driving_forces
from ..system.loads import contacts, element_states
from ..system.reactions import reactions
from .abstract import AbstractSensor


class Accelerometer(AbstractSensor):
    """Acceleration of a frame less that of free fall, along its own axes, shape `(3,)` [m/s²].

    The acceleration of free fall is the sum over the model's fields of ∂f/∂m of `wrench`, for a
    body of 1 kg without extent at the frame. For `Gravity` it is `g`; for forces that do not depend
    on the mass, such as drag or lift, it is zero, and the accelerometer measures their effect. A
    force in proportion to mass and velocity counts as free fall too. Bodies made of artificial
    springs (`NaturalCoordinates`) are taken as rigid bodies of the same motion.

    **Arguments:** `frame`: its name; `gravity`: the acceleration of free fall in the world, in
    place of that of the fields.

    For example:

        accelerometer = sensors.Accelerometer("tip")
    """

    frame: str = eqx.field(static=True)
    gravity: Float[Array, "3"] | None

    def __init__(self, frame: str, gravity: Any = None):
        self.frame = frame
        given = None if gravity is None else as_leaf(gravity, (3,), "Accelerometer: gravity")
        self.gravity = given

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "3"]:
        # Unstretched springs instead of rigid bodies have no centripetal force.
        system = system.rigid()
        vdot, _ = accelerations(system, t, state)

        def velocity(t: Time, q: Array, v: Array) -> Array:
            """Velocity of the frame's origin, along the axes of the world."""
            return system.frames(t, q)[self.frame].R @ system.twists(t, q, v)[self.frame][:3]

        tangents = jnp.ones_like(t), system.rates(state.q, state.v), vdot
        _, rate = jax.jvp(velocity, (t, state.q, state.v), tangents)
        X = system.frames(t, state.q)[self.frame]
        if self.gravity is not None:
            return (rate - jnp.asarray(self.gravity, rate.dtype)) @ X.R
        return rate @ X.R - _free_fall(system, t, X, system.twists(t, state.q, state.v)[self.frame])


def _free_fall(system: AbstractSystem, t: Time, X: Pose, V: Float[Array, "6"]) -> Float[Array, "3"]:
    """Acceleration of a mass at a frame by the fields, along the frame's axes [m/s²]."""

    def force(mass: Float[Array, ""]) -> Float[Array, "3"]:
        extent = jnp.zeros((3, 3), dtype=mass.dtype)
        body = RigidBody(mass, extent, jnp.zeros(3, dtype=mass.dtype))
        total = jnp.zeros(3, dtype=mass.dtype)
        fields = [group for group in system.mechanism.elements if isinstance(group, Fields)]
        for group in fields:
            each = jax.vmap(lambda field: field.wrench(t, body, X, V)[:3])(group.element)
            total = total + jnp.sum(each, axis=0)
        return total

    one = jnp.ones((), dtype=X.p.dtype)
    return jax.jvp(force, (one,), (one,))[1]


class ElementState(AbstractSensor):
    """First-order states of an element, such as the current of a motor [A].

    Shape `(n_states,)`, or `()` if there is one state.

    For example:

        current = sensors.ElementState("motor")
    """

    element: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        states = element_states(system, state)
        if self.element not in states:
            raise ModelError(unknown("sensor: unknown element with states", self.element, states))
        return states[self.element]


class JointReaction(AbstractSensor):
    """Wrench `[f, τ]` of a joint, as computed by `reactions`, shape `(6,)` [N, N m].

    For example:

        load_cell = sensors.JointReaction("hinge")
    """

    joint: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "6"]:
        wrenches = reactions(system, t, state)
        if self.joint not in wrenches:
            raise ModelError(unknown("sensor: unknown joint", self.joint, wrenches))
        return wrenches[self.joint]


class DriverForce(AbstractSensor):
    """Force or torque of one of the model's drivers [N or N m].

    For example:

        torque = sensors.DriverForce("motor")
    """

    driver: str = eqx.field(static=True)

    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, ""]:
        forces = driving_forces(system, t, state)
        if self.driver not in forces:
            raise ModelError(unknown("sensor: unknown driver", self.driver, forces))
        return forces[self.driver]


# Sensors of contact forces ------------------------------------------------------------------------


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
