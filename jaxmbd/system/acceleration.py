"""Accelerations and multipliers: the index-1 problem.

    M v̇ = f - b + Gᵀ λ,   G v̇ + γ = -2α ġ - β² g

With A = G M⁻¹ Gᵀ this is A λ = -γ - 2α ġ - β² g - G M⁻¹ (f - b): eqs (4939) to (4943) of
"Equations of Multi-Body Motion", whose J is G here and whose Q is -γ. (In the text at hand eq. 4941
has no minus before the applied force.)
"""

from functools import singledispatch

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linear import solve_spd
from . import constraints
from .abstract import AbstractSystem, State, Time, Velocities, as_time
from .loads import applied
from .stabilization import Baumgarte


def accelerations(
    system: AbstractSystem,
    t: float | Time,
    state: State,
    stabilization: Baumgarte | None = None,
) -> tuple[Velocities, Float[Array, "ng"]]:
    """v̇, shape `(nv,)`, and multipliers λ, shape `(ng,)`, of a state.

    **Arguments:**

    - `stabilization`: adds terms that pull a violated constraint back; none where it is left out.

    Both are NaN where the constraints depend on one another (redundant joints, or a singular
    position): G M⁻¹ Gᵀ is then no longer positive definite.
    """
    return _accelerations(system, as_time(t, system), state, stabilization)


@eqx.filter_jit
def _accelerations(
    system: AbstractSystem, t: Time, state: State, stabilization: Baumgarte | None
) -> tuple[Velocities, Float[Array, "ng"]]:
    system = system.prepared()
    if constraints.n_constraints(system) == 0:
        return free_accelerations(system, t, state), jnp.zeros(0, dtype=state.q.dtype)
    return _constrained(system, t, state, stabilization)


@singledispatch
def free_accelerations(system: AbstractSystem, t: Time, state: State) -> Velocities:
    """M⁻¹ (f - b), as if there were no constraints. Formulations may register a faster way."""
    q, v = state.q, state.v
    return system.solve_mass(q, applied(system, t, q, v) - system.bias(q, v))


def _constrained(
    system: AbstractSystem, t: Time, state: State, stabilization: Baumgarte | None
) -> tuple[Velocities, Float[Array, "ng"]]:
    q, v = state.q, state.v
    kinematics = system.kinematics(t, q)
    G = constraints.jacobian(system, kinematics, q)
    target = -constraints.quadratic(system, t, kinematics, q, v)
    if stabilization is not None:
        g = constraints.residual(system, kinematics, q)
        target = target + stabilization.correction(g, G @ v)
    free = free_accelerations(system, t, state)
    spread = system.solve_mass(q, G.T)
    lam = solve_spd(G @ spread, target - G @ free)
    return free + spread @ lam, lam
