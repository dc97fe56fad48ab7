"""Accelerations and multipliers of large systems by sparse factorization.

    M v̇ - Gᵀ λ = f - b,   G v̇ = -γ - 2α ġ - β² g

are linear equations with the sparsity pattern of an implicit step.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..nonlinear import linear_root
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.residuals import constraint_rates, motion_residual
from ..system.stabilization import AbstractStabilization

# From this number of unknowns on sparse solutions take less time than the dense G M⁻¹ Gᵀ.
MIN_UNKNOWNS = 1000


def sparse_accelerations(
    system: AbstractSystem, t: Time, state: State, stabilization: AbstractStabilization | None
) -> tuple[Velocities, Float[Array, "ng"]] | None:
    """v̇ and λ; NaN if the equations are singular.

    None for small systems and for systems with possibly redundant constraints: the dense method
    solves them.
    """
    ng = constraints.n_constraints(system)
    if system.nv + ng < MIN_UNKNOWNS or constraints.may_be_redundant(system):
        return None
    pattern = system.sparsity_pattern()
    assert pattern is not None
    zeros = jnp.zeros(system.nv + ng, state.q.dtype)
    x = linear_root(_equations, zeros, (system, t, state, stabilization), system.nv, pattern)
    return x[: system.nv], x[system.nv :]


def _equations(x: Float[Array, "n"], args: tuple[Any, ...]) -> Float[Array, "n"]:
    system, t, state, stabilization = args
    vdot, lam = x[: system.nv], x[system.nv :]
    c, v = system.configuration(t, state.q, state.z), state.v
    g_ddot = constraints.rate(system, c, vdot) + constraints.constraint_bias(system, c, v)
    if stabilization is not None:
        g = constraints.residual(system, c)
        g_ddot = g_ddot - stabilization.correction(g, constraint_rates(system, c, v))
    return jnp.concatenate([motion_residual(system, c, v, vdot, lam), g_ddot])


__all__ = ["sparse_accelerations"]
