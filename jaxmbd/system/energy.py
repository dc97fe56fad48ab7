"""Energy and momentum of a state."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import RigidBody
from ..lie import Pose, se3
from ..programs import stored
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .configuration import AbstractConfiguration
from .kernels import kernel
from .loads import potentials
from .mass_matrix import body_velocities, momentum_of


class Energy(eqx.Module):
    """Energies of a state [J], by kind.

    - `kinetic`: kinetic energy of the bodies, and of rotors behind gears.
    - `field`: potential energy of fields such as gravity.
    - `elastic`: potential energy of all other forces in the model, such as springs.
    - `artificial`: potential energy of springs that a formulation uses instead of rigid bodies.
      Unless it is a small part of the total, the motion is not that of rigid bodies.
    """

    kinetic: Float[Array, "*batch"]
    field: Float[Array, "*batch"]
    elastic: Float[Array, "*batch"]
    artificial: Float[Array, "*batch"]

    @property
    def potential(self) -> Float[Array, "*batch"]:
        """All energy that is not kinetic [J]."""
        return self.field + self.elastic + self.artificial

    @property
    def total(self) -> Float[Array, "*batch"]:
        """Kinetic and potential energy together [J]."""
        return self.kinetic + self.potential


class Momentum(eqx.Module):
    """Linear [N s] and angular [N m s] momentum, the latter about the world's origin."""

    linear: Float[Array, "*batch 3"]
    angular: Float[Array, "*batch 3"]


def energy(system: AbstractSystem, t: float | Time, state: State) -> Energy:
    """Energies of a state [J], by kind; friction and drives have no potential.

    For example:

        mbd.energy(system, 0.0, state).total  # [J]
    """
    return _energy(system, as_time(t, system), as_state(state, system))


def momentum(system: AbstractSystem, t: float | Time, state: State) -> Momentum:
    """Momentum of all bodies about the world's origin, without rotors behind gears.

    For example:

        mbd.momentum(system, 0.0, state).angular  # (3,) [N m s]
    """
    return _momentum(system, as_time(t, system), as_state(state, system))


@stored
@kernel
def _energy(system: AbstractSystem, t: Time, state: State) -> Energy:
    c = system.configuration(t, state.q, state.z)
    artificial = system.internal_potential(state.q)
    return Energy(kinetic_energy(system, c, state.v), *potentials(c), artificial)


def kinetic_energy(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities
) -> Float[Array, ""]:
    """Kinetic energy [J], from the twists of bodies if the system has no own way."""
    own = system.own_kinetic_energy(c, v)
    if own is not None:
        return own
    mechanism = system.mechanism
    if mechanism.all_rigid:
        V = c.twists(v)[1 : mechanism.n_bodies + 1]
        kinetic = 0.5 * jnp.sum(V * jax.vmap(momentum_of)(mechanism.rigid, V))
    else:
        kinetic = jnp.zeros((), dtype=v.dtype)
        for group, u in zip(mechanism.bodies, body_velocities(c, v), strict=True):
            eta, V, eta_dot = group.own(c.elastic), u[:, :6], u[:, 6:]
            of_body = jax.vmap(lambda body, *args: body.kinetic_energy(*args))
            kinetic += jnp.sum(of_body(group.body, eta, V, eta_dot))
    for group in mechanism.rotors:
        reflected = jax.vmap(lambda rotor: rotor.reflected_inertia())(group.rotor)
        rates = group.rows.take(c.rates(group.group, v))
        kinetic += 0.5 * jnp.sum(reflected * jnp.sum(rates**2, axis=1))
    return kinetic


@stored
@kernel
def _momentum(system: AbstractSystem, t: Time, state: State) -> Momentum:
    return momentum_at(system, system.configuration(t, state.q, state.z), state.v)


def momentum_at(system: AbstractSystem, c: AbstractConfiguration, v: Velocities) -> Momentum:
    """Momentum, from the twists of bodies if the system has no own way."""
    own = system.own_momentum_at(c, v)
    if own is not None:
        return own
    mechanism = system.mechanism
    bodies = slice(1, mechanism.n_bodies + 1)
    X = Pose(c.ports.p[bodies], c.ports.R[bodies])
    total = jnp.zeros(6, dtype=v.dtype)
    for group, u in zip(mechanism.bodies, body_velocities(c, v), strict=True):
        if isinstance(group.body, RigidBody):
            P = jax.vmap(momentum_of)(group.body, u)
        else:
            of_body = jax.vmap(lambda body, eta, u: body.momentum(eta, u)[:6])
            P = of_body(group.body, group.own(c.elastic), u)
        total += jnp.sum(jax.vmap(se3.transform_wrench)(group.rows.take_tree(X), P), axis=0)
    return Momentum(total[:3], total[3:])
