"""Velocities that the constraints allow."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linear import solve_spd
from . import constraints
from .abstract import AbstractSystem, State, Time, Velocities


def project_velocities(system: AbstractSystem, t: Time, state: State) -> Velocities:
    """The velocities nearest to `v`, in the kinetic metric, that satisfy G v = 0.

    v - M⁻¹ Gᵀ (G M⁻¹ Gᵀ)⁻¹ G v; NaN where constraints depend on one another.
    """
    if constraints.n_constraints(system) == 0:
        return state.v
    G = constraints.jacobian(system, system.kinematics(t, state.q), state.q)
    spread = system.solve_mass(state.q, G.T)
    return state.v - spread @ solve_spd(G @ spread, G @ state.v)


def spread_of(system: AbstractSystem, t: Time, q: Array) -> Float[Array, "nv ng"]:
    """M⁻¹ Gᵀ: the velocities that impulses of the constraints cause."""
    G = constraints.jacobian(system, system.kinematics(t, q), q)
    return jnp.asarray(system.solve_mass(q, G.T))


__all__ = ["project_velocities", "spread_of"]
