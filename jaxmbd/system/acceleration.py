"""Accelerations and multipliers: the index-1 problem.

    M v̇ = f - b + Gᵀ λ,   G v̇ + γ = -2α ġ - β² g

With A = G M⁻¹ Gᵀ this is A λ = -γ - 2α ġ - β² g - G M⁻¹ (f - b): eqs (4939) to (4943) of
"Equations of Multi-Body Motion", whose J is G here and whose Q is -γ. (In the text at hand eq. 4941
has no minus before the applied force.) Where constraints repeat one another, A is singular, the
accelerations are unique nevertheless, and the multipliers reported are the smallest ones.
"""

from functools import singledispatch

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linear import solve_scaled, solve_semidefinite, solve_spd, unit_scale
from . import constraints
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .loads import applied
from .stabilization import AbstractStabilization


def accelerations(
    system: AbstractSystem,
    t: float | Time,
    state: State,
    stabilization: AbstractStabilization | None = None,
) -> tuple[Velocities, Float[Array, "ng"]]:
    """v̇, shape `(nv,)`, and multipliers λ, shape `(ng,)`, of a state.

    **Arguments:**

    - `stabilization`: adds terms that pull a violated constraint back; none where it is left out.

    Where constraints repeat one another (redundant joints, or a singular position), λ is the
    smallest of those that do, by the sum of squares, forces in N and moments in N m. What it does
    to a body altogether is unique. In a singular position the constraints do not determine all of
    v̇ that they determine elsewhere; it is then what inertia and forces say.
    """
    return _accelerations(system, as_time(t, system), as_state(state, system), stabilization)


@eqx.filter_jit
def _accelerations(
    system: AbstractSystem, t: Time, state: State, stabilization: AbstractStabilization | None
) -> tuple[Velocities, Float[Array, "ng"]]:
    system = system.prepared()
    if constraints.n_constraints(system) == 0:
        return free_accelerations(system, t, state), jnp.zeros(0, dtype=state.q.dtype)
    return constrained_accelerations(system, t, state, stabilization)


@singledispatch
def free_accelerations(system: AbstractSystem, t: Time, state: State) -> Velocities:
    """M⁻¹ (f - b), as if there were no constraints. Formulations may register a faster way."""
    q, v = state.q, state.v
    return system.solve_mass(q, applied(system, t, q, v) - system.bias(q, v))


@singledispatch
def constrained_accelerations(
    system: AbstractSystem, t: Time, state: State, stabilization: AbstractStabilization | None
) -> tuple[Velocities, Float[Array, "ng"]]:
    """v̇ and λ where there are constraints. Formulations may register a faster way."""
    q, v = state.q, state.v
    kinematics = system.kinematics(t, q)
    G = constraints.jacobian(system, kinematics, q)
    target = -constraints.quadratic(system, t, kinematics, q, v)
    if stabilization is not None:
        g = constraints.residual(system, t, kinematics, q)
        g_dot = G @ v + constraints.drift(system, t, q)
        target = target + stabilization.correction(g, g_dot)
    free = free_accelerations(system, t, state)
    spread = system.solve_mass(q, G.T)
    lam = solve_constraints(system, G @ spread, target - G @ free)
    return free + spread @ lam, smallest(system, G, lam)


def solve_constraints(
    system: AbstractSystem, A: Float[Array, "ng ng"], b: Float[Array, "ng *k"]
) -> Float[Array, "ng *k"]:
    """λ of A λ = b, A = G M⁻¹ Gᵀ, where constraints may depend on one another.

    Rows are scaled to the same inertia first: which ones repeat others must not depend on how
    heavy the bodies are.
    """
    return solve_scaled(A, b) if constraints.may_repeat(system) else solve_spd(A, b)


def smallest(
    system: AbstractSystem, G: Float[Array, "ng nv"], lam: Float[Array, "ng"]
) -> Float[Array, "ng"]:
    """The smallest multipliers that do the same as `lam`: without what Gᵀ does not see.

    Which that is must not depend on units, so that rows have length one where it is decided.
    """
    if not constraints.may_repeat(system):
        return lam
    scale = unit_scale(jnp.sum(G * G, axis=1))
    J = scale[:, None] * G
    unit = jnp.eye(lam.size, dtype=lam.dtype)
    A = J @ J.T
    unseen = unit - solve_semidefinite(A, A)
    idle = scale[:, None] * unseen  # Multipliers that do nothing, as columns.
    # The second term only completes a matrix that otherwise is zero where nothing is idle.
    square = idle.T @ idle + (unit - unseen)
    return lam - idle @ solve_spd(square, idle.T @ lam)


__all__ = [
    "accelerations",
    "constrained_accelerations",
    "free_accelerations",
    "smallest",
    "solve_constraints",
]
