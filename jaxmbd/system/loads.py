"""Loads of all elements, their generalized forces, potentials, state rates and contacts."""

from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..contact import Terrain
from ..forces import Contact, ContactPoints, Gaps, Tyre, TyreContact
from ..joints.abstract import AbstractJoint
from ..lie import Pose, se3
from ..mechanism.elements import (
    Fields,
    FrameElements,
    JointElements,
    JointForces,
    Loads,
    Motion,
    Wrenches,
)
from ..mechanism.mechanism import Mechanism
from ..programs import stored
from ..programs.tracing import kernel
from ..signals import AbstractSignal
from .abstract import AbstractSystem, State, States, Time, Velocities, as_state, as_time
from .configuration import AbstractConfiguration

TIME_TOLERANCE = 1e-6  # Times that differ by at most this part of a period count as equal.


def time_tolerance(t: Array, period: Array) -> Array:
    """Difference [s] up to which a time and a multiple of a period count as equal."""
    return TIME_TOLERANCE * period + 8.0 * jnp.finfo(period.dtype).eps * jnp.abs(t)


def applied(system: AbstractSystem, c: AbstractConfiguration, v: Velocities) -> Velocities:
    """f(t, q, v, z): generalized force of all elements."""
    return generalized(c, *loads(c, v)) + elastic_force(c, v)


def elastic_force(c: AbstractConfiguration, v: Velocities) -> Velocities:
    """Generalized force of the fields on the elastic coordinates of bodies."""
    mechanism = c.mechanism
    if mechanism.n_elastic == 0:
        return jnp.zeros_like(v)
    motion = Motion(c, v)
    total = jnp.zeros(mechanism.n_elastic, dtype=v.dtype)
    for group in mechanism.elements:
        if isinstance(group, Fields):
            total = total + group.elastic_loads(motion)
    return jax.linear_transpose(c.elastic_rates, v)(total)[0]


def loads(c: AbstractConfiguration, v: Velocities) -> tuple[Wrenches, JointForces]:
    """Wrench on every port, along its own axes, and force on every joint velocity, by group."""
    total = total_loads(Motion(c, v))
    return total.wrenches, total.joint_forces


def total_loads(motion: Motion) -> Loads:
    """Loads of all elements at a motion."""
    total = Loads(motion.c)
    for group in motion.c.mechanism.elements:
        group.add(total, group.loads(motion))
    return total


def generalized(
    c: AbstractConfiguration, wrenches: Wrenches, joint_forces: JointForces
) -> Velocities:
    """Generalized force of port wrenches and joint forces (transpose of the velocity maps)."""

    def velocities(v: Velocities) -> tuple[Array, dict[int, Array]]:
        return c.twists(v), {g: c.rates(g, v) for g in joint_forces}

    shape = jax.ShapeDtypeStruct((c.nv,), c.q.dtype)
    return jax.linear_transpose(velocities, shape)((wrenches, joint_forces))[0]


def potential(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, ""]:
    """Potential energy [J] of all conservative elements, springs of the formulation included."""
    return sum(potentials(c), system.internal_potential(c.q))


def potentials(c: AbstractConfiguration) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Potential energies [J] of the fields and of the other elements."""
    in_fields = elastic = jnp.zeros((), dtype=c.q.dtype)
    for group in c.mechanism.elements:
        energy = jnp.sum(group.potentials(c))
        if isinstance(group, Fields):
            in_fields = in_fields + energy
        else:
            elastic = elastic + energy
    for group in c.mechanism.bodies:
        if group.n_elastic > 0:
            of_body = jax.vmap(lambda body, eta: body.elastic_energy(eta))
            elastic = elastic + jnp.sum(of_body(group.body, group.own(c.elastic)))
    return in_fields, elastic


StateInputs = tuple[tuple[Any, ...], ...]


def state_inputs(c: AbstractConfiguration, v: Velocities) -> StateInputs:
    """The arguments of `rates_of_states` besides z: time, positions and velocities.

    There is one entry for each group of elements with states. Under `vmap` over configurations each
    entry has an additional leading axis.
    """
    motion = Motion(c, v)
    return tuple(
        (c.t, *group.positions(c), *group.velocities(motion))
        for group in c.mechanism.elements
        if group.n_states > 0
    )


def rates_of_states(mechanism: Mechanism, inputs: StateInputs, z: States) -> States:
    """ż of all elements, from the result of `state_inputs` and z."""
    groups = [group for group in mechanism.elements if group.n_states > 0]
    parts = []
    for group, (t, *args) in zip(groups, inputs, strict=True):

        def rates(element: Any, *args: Any, t: Time = t) -> Float[Array, "n_states"]:
            return element.state_rates(t, *args)

        parts.append(jax.vmap(rates)(group.element, *args, group.states(z)).ravel())
    return jnp.concatenate([z[:0], *parts])


def state_rates(c: AbstractConfiguration, v: Velocities) -> States:
    """ż = r(t, q, v, z) of all elements, shape `(nz,)`."""
    if c.mechanism.n_states == 0:
        return jnp.zeros(0, dtype=c.q.dtype)
    assert c.z is not None
    return rates_of_states(c.mechanism, state_inputs(c, v), c.z)


def rates_at(system: AbstractSystem, t: Time, state: State) -> States:
    """ż at a state. Without first-order states no kinematics are computed."""
    if system.nz == 0:
        return state.z
    return state_rates(system.configuration(t, state.q, state.z), state.v)


def sampled(system: AbstractSystem, t: Time, state: State) -> State:
    """The state with z updated by the elements whose period divides t.

    Integrators call this function at the start of a step. Without elements that have a period
    nothing is computed.
    """
    groups = system.mechanism.sampled_groups
    if not groups:
        return state
    c = system.configuration(t, state.q, state.z)
    motion, z = Motion(c, state.v), state.z
    for group in groups:
        args = *group.positions(c), *group.velocities(motion), group.states(z)
        new = jax.vmap(lambda element, *args: element.update(t, *args))(group.element, *args)
        period = group.element.period
        distance = jnp.abs(t - period * jnp.round(t / period))
        due = distance <= time_tolerance(t, period)
        own = slice(group.first_state, group.first_state + new.size)
        z = z.at[own].set(jnp.where(due[:, None], new, args[-1]).ravel())
    return State(state.q, state.v, z)


def element_states(system: AbstractSystem, state: State) -> dict[str, Float[Array, "..."]]:
    """First-order states of elements by name; shape `(..., n_states)`, or `(...)` if only one."""
    z, by_name = as_state(state, system, batch=True).z, {}
    for name, (first, count) in system.mechanism.state_places.items():
        own = z[..., first : first + count]
        by_name[name] = own[..., 0] if count == 1 else own
    return by_name


# Loads of elements minus those from potentials ----------------------------------------------------
#
# The differences are computed for each element, at its frames and joints: a difference of
# generalized forces would leave a remainder if constraints have residuals.


def nonconservative(c: AbstractConfiguration, v: Velocities) -> Velocities:
    """Generalized force of dampers, friction, drives and all other loads without a potential."""
    wrenches, joint_forces = loads(c, v)
    W, on_joints = _conservative(c)
    joint_forces = {g: force - on_joints.get(g, 0.0) for g, force in joint_forces.items()}
    return generalized(c, wrenches - W, joint_forces)


def conservative(c: AbstractConfiguration) -> Velocities:
    """Generalized force of the potentials."""
    return generalized(c, *_conservative(c))


def _conservative(c: AbstractConfiguration) -> tuple[Wrenches, JointForces]:
    """The part of `loads` from potentials."""
    total = Loads(c)
    for group in c.mechanism.elements:
        if group.has_potential:
            group.add(total, conservative_loads(group, c))
    return total.wrenches, total.joint_forces


@singledispatch
def conservative_loads(group: Any, c: AbstractConfiguration) -> Any:
    """Negative gradient of each element's potential, in the shape of the loads of the group."""
    raise NotImplementedError(f"{type(group).__name__}: register `conservative_loads`")


@conservative_loads.register
def _(group: FrameElements, c: AbstractConfiguration) -> Float[Array, "n n_frames 6"]:
    (X,) = group.positions(c)
    gradient = jax.vmap(jax.grad(lambda X, element: element.potential(c.t, X)))(X, group.element)
    return jax.vmap(jax.vmap(_wrench))(X, gradient)


@conservative_loads.register
def _(group: Fields, c: AbstractConfiguration) -> Float[Array, "n_bodies 6"]:
    bodies, X = group.positions(c)

    def energy(X: Pose, body: Any, fields: Any, t: Time) -> Float[Array, ""]:
        return jnp.sum(jax.vmap(lambda field: field.potential(t, body, X))(fields))

    gradient = jax.vmap(jax.grad(energy), in_axes=(0, 0, None, None))
    return jax.vmap(_wrench)(X, gradient(X, bodies, group.element, c.t))


@conservative_loads.register
def _(group: JointElements, c: AbstractConfiguration) -> Float[Array, "n nv"]:
    joint = group.rows.take_tree(c.mechanism.joints[group.group].joint)
    (q,) = group.positions(c)

    def force(element: Any, joint: AbstractJoint, q: Array) -> Array:
        gradient = jax.grad(lambda q: element.potential(c.t, q))(q)
        zeros = jnp.zeros(joint.sizes()[1], dtype=q.dtype)
        return -jax.linear_transpose(lambda v: joint.rates(q, v), zeros)(gradient)[0]

    return jax.vmap(force)(group.element, joint, q)


def _wrench(X: Pose, gradient: Pose) -> Float[Array, "6"]:
    """Wrench along a frame's own axes, from the gradient of a potential by the frame's pose."""
    zeros = jnp.zeros(6, dtype=X.p.dtype)
    return -jax.linear_transpose(lambda V: se3.rate(X, V), zeros)(gradient)[0]


# Contacts at a state: points, forces and gaps, of tyres too ---------------------------------------


def contacts(system: AbstractSystem, t: float | Time, state: State) -> dict[str, ContactPoints]:
    """Points of all contacts at a state, in the world, with their forces, by name of the element.

    Points out of contact are among them, with a negative depth and no force.
    """
    return _contacts(system, as_time(t, system), as_state(state, system))


@stored
@kernel
def _contacts(system: AbstractSystem, t: Time, state: State) -> dict[str, ContactPoints]:
    return _by_name(system, t, state, Contact, lambda contact, *args: contact.at_points(*args))


def tyre_contacts(system: AbstractSystem, t: float | Time, state: State) -> dict[str, TyreContact]:
    """Contacts of all tyres at a state, in the world, with loads, slips and forces, by name."""
    return _tyre_contacts(system, as_time(t, system), as_state(state, system))


@stored
@kernel
def _tyre_contacts(system: AbstractSystem, t: Time, state: State) -> dict[str, TyreContact]:
    return _by_name(system, t, state, Tyre, lambda tyre, *args: tyre.at_contact(*args))


def _by_name(
    system: AbstractSystem, t: Time, state: State, kind: type, evaluate: Callable[..., Any]
) -> dict[str, Any]:
    """`evaluate` of all elements between frames of one kind, with their arguments at a state."""
    c = system.configuration(t, state.q, state.z)
    motion, by_name = Motion(c, state.v), {}
    for group in system.mechanism.elements:
        if not (isinstance(group, FrameElements) and isinstance(group.element, kind)):
            continue
        args = *group.positions(c), *group.velocities(motion), group.states(c.z)
        found = jax.vmap(evaluate)(group.element, *args)
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

    @kernel
    def gaps(
        self, system: AbstractSystem, t: Time, state: State
    ) -> tuple[Float[Array, "n_points"], Float[Array, "n_points"]]:
        """Gaps [m] and their rates [m/s] at a state."""
        here = self.at(system.configuration(t, state.q, state.z), state.v)
        return here.gap, jnp.sum(here.normal * here.velocity, axis=1)

    @kernel
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


# Signals that look values up in tables, evaluated once outside of generated code ------------------
#
# Generated code cannot search a long table. It is given the values instead.

S = TypeVar("S", bound=AbstractSystem)


class _Value(AbstractSignal):
    """The value of a signal at one time."""

    value: Float[Array, "..."]

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return self.value


def with_values_looked_up(system: S, t: Time) -> S:
    """The system at time t, with values instead of signals that look up.

    Only signals of elements that declare them in `signals_at_own_time` are replaced.
    """
    for g, group in enumerate(system.mechanism.elements):
        for name in type(group.element).signals_at_own_time:
            signal = getattr(group.element, name)
            if not (isinstance(signal, AbstractSignal) and signal.looks_up):
                continue
            values = jax.vmap(lambda signal: signal(t))(signal)

            def place(system: S, g: int = g, name: str = name) -> AbstractSignal:
                return getattr(system.mechanism.elements[g].element, name)

            system = eqx.tree_at(place, system, _Value(values))
    return system
