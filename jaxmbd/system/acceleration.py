"""Accelerations and multipliers: the index-1 problem.

    M v̇ = f - b + Gᵀ λ,   G v̇ + γ = -2α ġ - β² g

With A = G M⁻¹ Gᵀ this is A λ = -γ - 2α ġ - β² g - G M⁻¹ (f - b): eqs (4939) to (4943) of
"Equations of Multi-Body Motion", whose J is G here and whose Q is -γ. (Eq. 4941 in that text lacks
the minus sign of the applied force.) If constraints are redundant, A is singular. The accelerations
are unique nevertheless, and the multipliers returned are the minimum-norm ones.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from scalarjit.with_room import with_room

from ..accelerators import products_as_sums
from ..linear import after
from ..linear.constrained import DISTURBANCE
from ..model.arguments import as_instance
from ..programs import stored
from ..programs.tracing import stop_gradients
from . import constraints, refinement, sizes
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .configuration import AbstractConfiguration
from .equation_residuals import constraint_rates, motion_residual
from .kernels import kernel
from .loads import loads
from .saddle_point import SaddlePoint, saddle_point
from .sizes import is_checked, is_rounding_small, load_scale
from .stabilization import AbstractCorrection, AbstractStabilization, Baumgarte

# Tolerance of γ in units of the error that violated velocities cause. Measured errors along
# redundant rows are up to 10 of these units.
VELOCITY_TOLERANCE = 100.0


def accelerations(
    system: AbstractSystem,
    t: float | Time,
    state: State,
    stabilization: AbstractStabilization | None = None,
) -> tuple[Velocities, Float[Array, "ng"]]:
    """Accelerations v̇, shape `(nv,)`, and multipliers λ, shape `(ng,)`, of a state.

    If constraints are redundant (redundant joints, or a singular position), λ are the minimum-norm
    multipliers, by the sum of squares of forces in N and moments in N m. Their resultant on each
    body is unique. In a singular position the constraints determine fewer components of v̇ than
    elsewhere; inertia and forces determine the others.

    v̇ and λ are NaN if G v̇ + γ = 0 or the equations of motion do not hold to rounding. Then the
    constraints contradict one another, or the float type is not precise enough for them.

    **Arguments:** `stabilization`: adds terms that reduce constraint residuals. Default: none.

    For example:

        vdot, lam = mbd.accelerations(system, 0.0, state)
    """
    if stabilization is not None:
        as_instance(stabilization, AbstractStabilization, "stabilization", "such as Baumgarte()")
    return _accelerations(system, as_time(t, system), as_state(state, system), stabilization)


@stored
@with_room
def _accelerations(
    system: AbstractSystem, t: Time, state: State, stabilization: AbstractStabilization | None
) -> tuple[Velocities, Float[Array, "ng"]]:
    system = system.prepared()
    if constraints.n_constraints(system) == 0:
        rates = products_as_sums(free_accelerations)(system, t, state)
        return rates, jnp.zeros(0, dtype=state.q.dtype)
    # Corrections of states add no term: one kernel for them, for no stabilization, and for
    # Baumgarte's terms, if those need no more than ranks do.
    if stabilization is None or isinstance(stabilization, AbstractCorrection):
        stabilization = Baumgarte(0.0, 0.0) if constraints.may_be_redundant(system) else None
    return products_as_sums(kernel(constrained_accelerations))(system, t, state, stabilization)


def free_accelerations(system: AbstractSystem, t: Time, state: State) -> Velocities:
    """M⁻¹ (f - b), for systems without constraints."""
    own = system.own_free_accelerations(t, state)
    return general_free_accelerations(system, t, state) if own is None else own


def general_free_accelerations(system: AbstractSystem, t: Time, state: State) -> Velocities:
    """`free_accelerations` by the mass matrix."""
    c = system.configuration(t, state.q, state.z)
    return system.solve_mass(c, -motion_residual(system, c, state.v, jnp.zeros_like(state.v)))


def constrained_accelerations(
    system: AbstractSystem, t: Time, state: State, stabilization: AbstractStabilization | None
) -> tuple[Velocities, Float[Array, "ng"]]:
    """v̇ and λ of systems with constraints, in general from A = G M⁻¹ Gᵀ."""
    own = system.own_constrained_accelerations(t, state, stabilization)
    if own is not None:
        return own
    c, v = system.configuration(t, state.q, state.z), state.v
    motion = constraints.port_motion(system, c, v)
    bias = constraints.constraint_bias(system, c, v, motion)
    g, target = constraints.residual(system, c), -bias
    redundant = constraints.may_be_redundant(system)
    is_needed, error = redundant or stabilization is not None, None
    rates = constraint_rates(system, c, v) if is_needed else jnp.zeros_like(g)
    if stabilization is not None:
        target = target + stabilization.correction(g, rates)
    if redundant:
        speed = constraints.magnitude(system, motion.twists)
        error = DISTURBANCE * sizes.violation(c, rates) * speed
    noise = constraints.bias_noise(system, motion)
    equations = saddle_point(system, c, g, demand=bias, noise=noise, error=error)
    f = -motion_residual(system, c, v, jnp.zeros_like(v))
    vdot, lam = equations.solve(f, target)
    agree = jnp.ones((), dtype=bool)
    if redundant:
        error, agree = _error_by_velocities(system, c, motion, equations, after(rates, vdot))
        f = after(after(f, error), agree)
    noise = constraints.noise(system, c, motion, vdot)
    holds = agree & equations.holds((vdot, lam), f, target, noise, error)
    if is_checked(v.dtype):
        solution = after(vdot, holds), lam
        holds = holds & _is_rounding_small(system, c, v, equations, solution, target)
    least = equations.minimum_norm(after(lam, holds))
    holds, lam = holds & equations.is_same_force(least, lam), least
    return jnp.where(holds, vdot, jnp.nan), jnp.where(holds, lam, jnp.nan)


def _error_by_velocities(
    system: AbstractSystem,
    c: AbstractConfiguration,
    motion: constraints.PortMotion,
    equations: SaddlePoint,
    rates: Float[Array, "ng"],
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Magnitude of the error of γ that is due to ġ ≠ 0, and whether some velocities have ġ = 0.

    γ is a quadratic function of the velocities: the correction δ of v that makes ġ zero changes it
    by terms of the size |δ| (|v| + |δ|). Redundant rows are consistent up to these terms only. No
    velocities have ġ = 0 if drivers contradict one another.
    """
    c, motion, equations, rates = stop_gradients((c, motion, equations, rates))
    zeros = after(jnp.zeros(c.nv, dtype=rates.dtype), rates)
    change, lam = equations.solve_once(zeros, rates)
    off, size = (constraints.magnitude(system, x) for x in (c.twists(change), motion.twists))
    part = off / jnp.where(off + size > 0, off + size, 1.0)
    error = VELOCITY_TOLERANCE * part * (constraints.bias_noise(system, motion) + off**2)
    if not system.mechanism.drivers:
        return error, jnp.ones((), dtype=bool)
    zeros = after(zeros, change)
    return error, equations.constraints_hold(change, lam, zeros, rates, size + off)


def _is_rounding_small(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Velocities,
    equations: SaddlePoint,
    solution: tuple[Velocities, Float[Array, "ng"]],
    target: Float[Array, "ng"],
) -> Bool[Array, ""]:
    """True if one step of iterative refinement changes v̇ little; see `sizes` and `refined`."""
    system, c, v, equations, solution, target = stop_gradients(
        (system, c, v, equations, solution, target)
    )
    vdot, lam = solution
    rest = -motion_residual(system, c, v, vdot, lam)
    change, _ = equations.solve_once(rest, target - equations.G @ vdot)
    if not system.mechanism.all_rigid:
        return refinement.is_rounding_small(system, c, v, vdot, change)
    bodies = slice(1, system.mechanism.n_bodies + 1)
    scale = load_scale(system.mechanism, c.twists(v)[bodies], *loads(c, v))
    changed, rates = c.twists(change)[bodies], c.twists(vdot)[bodies]
    return is_rounding_small(system.mechanism.rigid, changed, rates, scale)


# Derivatives of accelerations by positions and velocities -----------------------------------------

Matrices = tuple[Float[Array, "nv nv"], Float[Array, "nv nv"]]


def acceleration_derivatives(system: AbstractSystem, t: float | Time, state: State) -> Matrices:
    """∂v̇/∂q and ∂v̇/∂v of the accelerations of a state, each of shape `(nv, nv)`.

    Column j of ∂v̇/∂q is the change by a unit displacement along velocity j, in the sense of
    `system.retract`, at constant v and z. Both are NaN where `accelerations` are.

    Trees of rigid bodies in joint coordinates without constraints, and without elements with states
    or controllers, have derivatives in closed form, for the cost of a few evaluations of the
    accelerations. All other systems are differentiated, in 2 `nv` directions.

    For example:

        by_q, by_v = mbd.acceleration_derivatives(system, 0.0, state)
    """
    return _derivatives(system, as_time(t, system), as_state(state, system))


@stored
@with_room
def _derivatives(system: AbstractSystem, t: Time, state: State) -> Matrices:
    system = system.prepared()
    found = system.own_acceleration_derivatives(t, state)
    if found is not None:
        return found

    def vdot(dq: Float[Array, "nv"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        now = State(system.retract(state.q, dq), v, state.z)
        return accelerations(system, t, now)[0]

    return jax.jacfwd(vdot, (0, 1))(jnp.zeros_like(state.v), state.v)
