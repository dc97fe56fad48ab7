"""What implicit integrators make zero: the balance of forces and the constraints at one time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import constraints
from .abstract import AbstractKinematics, AbstractSystem, Coordinates, State, Time, Velocities
from .inverse_dynamics import inverse_dynamics_of


def force_balance(
    system: AbstractSystem, t: Time, state: State, vdot: Velocities, lam: Float[Array, "ng"]
) -> Velocities:
    """M v̇ + b - f - Gᵀ λ."""
    needed = inverse_dynamics_of(system, t, state, vdot)
    if lam.size == 0:
        return needed
    return needed - constraint_force(system, system.kinematics(t, state.q), state.q, lam)


def constraint_force(
    system: AbstractSystem,
    kinematics: AbstractKinematics,
    q: Coordinates,
    lam: Float[Array, "ng"],
) -> Velocities:
    """Gᵀ λ, as the transpose of the map v ↦ ġ."""

    def rate(v: Velocities) -> Float[Array, "ng"]:
        return constraints.rate(system, kinematics, q, v)

    shape = jax.ShapeDtypeStruct((system.nv,), q.dtype)
    return jax.linear_transpose(rate, shape)(lam)[0]


def gaps(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, "ng"]:
    """g(t, q)."""
    return constraints.residual(system, t, system.kinematics(t, q), q)


def gap_rates(system: AbstractSystem, t: Time, state: State) -> Float[Array, "ng"]:
    """ġ = G v + g_t."""
    rate = constraints.rate(system, system.kinematics(t, state.q), state.q, state.v)
    return rate + constraints.drift(system, t, state.q)


def closures(system: AbstractSystem, t: Time, h: Time, state: State) -> Float[Array, "ng"]:
    """What a step of length h makes zero: g, and h ġ of the constraints of velocities alone."""
    g, holonomic = gaps(system, t, state.q), constraints.is_holonomic(system)
    if holonomic.all():
        return g
    return jnp.where(jnp.asarray(holonomic), g, h * gap_rates(system, t, state))


__all__ = ["closures", "constraint_force", "force_balance", "gap_rates", "gaps"]
