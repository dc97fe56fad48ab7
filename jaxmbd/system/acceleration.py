"""Accelerations and multipliers: the index-1 problem and its stabilization.

    M v̇ = f - b + Gᵀ λ,   G v̇ + γ = -2α ġ - β² g

With A = G M⁻¹ Gᵀ this is A λ = -γ - 2α ġ - β² g - G M⁻¹ (f - b): eqs (4939) to (4943) of
"Equations of Multi-Body Motion", whose J is G here and whose Q is -γ. (Eq. 4941 in that text lacks
the minus sign of the applied force.) If constraints are redundant, A is singular. The accelerations
are unique nevertheless, and the multipliers returned are the minimum-norm ones.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float

from scalarjit.with_room import with_room

from ..accelerators import products_as_sums
from ..bodies import AbstractBody
from ..errors import ModelError
from ..linear import after
from ..linear.constrained import DISTURBANCE
from ..model.values import as_instance, as_leaf, is_concrete
from ..programs import stored
from ..programs.tracing import kernel, stop_gradients
from . import constraints, sizes
from .abstract import AbstractSystem, State, Time, Velocities, as_state, as_time
from .configuration import AbstractConfiguration
from .equation_residuals import constraint_rates, motion_residual
from .loads import loads
from .mass_and_energy import forces_on_bodies, inertia_matrix, twist_rates
from .saddle_point import SaddlePoint, saddle_point
from .sizes import is_checked, is_rounding_small, load_scale

# Stabilization of constraints: terms in the accelerations, or corrections of states ---------------

# Data chosen at the start of a step, such as a set of coordinates, or None.
Choice = Any


class AbstractStabilization(eqx.Module):
    """A term in the accelerations, or corrections of states.

    - `corrects`: whether `stage`, `corrected` and `placed` change states.
    """

    corrects: eqx.AbstractClassVar[bool]

    @abstractmethod
    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        """The target of g̈, shape `(ng,)`."""

    def choose(self, system: AbstractSystem, t: Time, state: State) -> Choice:
        """Compute `choice`, data for all stages of a step from `state`. Default: None."""
        return None

    def stage(self, system: AbstractSystem, t: Time, state: State, choice: Choice) -> State:
        """The state of a stage, at which accelerations are evaluated. Default: unchanged."""
        return state

    def corrected(self, system: AbstractSystem, t: Time, state: State, choice: Choice) -> State:
        """The state at the end of a step. Default: unchanged."""
        return state

    def placed(self, system: AbstractSystem, t: Time, state: State) -> State:
        """An interpolated state, moved onto the constraints. Default: unchanged."""
        return state


class Baumgarte(AbstractStabilization):
    """Accelerations with `g̈ + 2α ġ + β² g = 0` instead of `g̈ = 0` (Baumgarte 1972).

    Constraint residuals decay like a damped oscillator instead of growing with time; α = β damps
    them critically. Large gains make the equations stiff: choose α dt well below one.

    **Arguments:** `alpha` [1/s] and `beta` [1/s]. Defaults: 10.
    """

    alpha: Float[Array, ""]
    beta: Float[Array, ""]
    corrects: ClassVar[bool] = False

    def __init__(self, alpha: Any = 10.0, beta: Any = 10.0):
        self.alpha = as_leaf(alpha, (), "Baumgarte: alpha")
        self.beta = as_leaf(beta, (), "Baumgarte: beta")
        for name, x in (("alpha", self.alpha), ("beta", self.beta)):
            if is_concrete(x) and not (np.isfinite(x) and np.asarray(x) >= 0):
                raise ModelError(f"Baumgarte: {name} must not be negative, and finite, got {x}")

    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        alpha, beta = (jnp.asarray(x, g.dtype) for x in (self.alpha, self.beta))
        return -2.0 * alpha * g_dot - beta**2 * g


class AbstractCorrection(AbstractStabilization):
    """Corrections that move states onto the constraints, without a term in the accelerations."""

    corrects: ClassVar[bool] = True

    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        return jnp.zeros_like(g)


# Accelerations and multipliers --------------------------------------------------------------------

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
    """True if one step of iterative refinement changes v̇ little; see `sizes`."""
    system, c, v, equations, solution, target = stop_gradients(
        (system, c, v, equations, solution, target)
    )
    vdot, lam = solution
    rest = -motion_residual(system, c, v, vdot, lam)
    change, _ = equations.solve_once(rest, target - equations.G @ vdot)
    if not system.mechanism.all_rigid:
        return are_changes_small(system, c, v, vdot, change)
    bodies = slice(1, system.mechanism.n_bodies + 1)
    scale = load_scale(system.mechanism, c.twists(v)[bodies], *loads(c, v))
    changed, rates = c.twists(change)[bodies], c.twists(vdot)[bodies]
    return is_rounding_small(system.mechanism.rigid, changed, rates, scale)


# Rounding errors of accelerations of bodies of any kind, in single precision ----------------------
#
# One step of iterative refinement corrects accelerations without constraints. With and without
# constraints, they are NaN if a pivot of the mass matrix consists of rounding errors, or if the
# step changes them too much; see `sizes`.

# Least pivot of the mass matrix in units of the precision and of its diagonal entry. Largest change
# of the acceleration of a body, relative to the largest one of all bodies, and in units of the
# precision and of the largest acceleration that the loads would give a free body. In 4,800 random
# trees with a flexible body, errors of finite accelerations are at most 0.6 %. A least pivot of 30
# lets errors of 99 % pass. One of 100 makes every tenth draw over 6 decades of masses NaN without
# need.
MIN_PIVOT, MAX_CHANGE, MAX_ROUNDINGS = 100.0, 0.01, 10.0


def refined_accelerations(system: AbstractSystem, t: Time, state: State) -> Velocities:
    """M⁻¹ (f - b) after one step of iterative refinement; NaN if rounding errors are large.

    The derivative is that of the accelerations before the step, and NaN too.
    """
    c, v = system.configuration(t, state.q, state.z), state.v
    vdot = system.solve_mass(c, -motion_residual(system, c, v, jnp.zeros_like(v)))
    change, holds = correction(system, c, v, vdot)
    return (vdot + change) * jnp.where(holds, 1.0, jnp.nan).astype(v.dtype)


def correction(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities, vdot: Velocities
) -> tuple[Velocities, Bool[Array, ""]]:
    """A step of iterative refinement, and whether rounding errors are small.

    Neither has a derivative.
    """
    system, c, v, vdot = stop_gradients((system, c, v, vdot))
    L = jnp.linalg.cholesky(system.mass_at(c))
    change = jsl.cho_solve((L, True), -motion_residual(system, c, v, vdot))
    return change, are_changes_small(system, c, v, vdot, change)


def are_changes_small(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Velocities,
    vdot: Velocities,
    change: Velocities,
) -> Bool[Array, ""]:
    """Whether rounding errors of v̇ are small.

    They are if each pivot of the mass matrix exceeds its rounding errors, and if a step of
    iterative refinement changes the accelerations of all bodies little. False if one of these
    numbers is NaN.

    **Arguments:** `change`: what the step adds to v̇.
    """
    eps = float(jnp.finfo(v.dtype).eps)
    M = system.mass_at(c)
    pivots = jnp.diagonal(jnp.linalg.cholesky(M)) ** 2
    bodies = slice(1, system.mechanism.n_bodies + 1)
    rates = twist_rates(system, c, v, vdot)[bodies]
    size = jnp.max(_sizes(c, rates, c.elastic_rates(vdot)))
    changed = jnp.max(_sizes(c, c.twists(change)[bodies], c.elastic_rates(change)))
    limit = MAX_CHANGE * size + MAX_ROUNDINGS * eps * _load_scale(system, c, v)
    return jnp.all(pivots > MIN_PIVOT * eps * jnp.diagonal(M)) & (changed <= limit)


def _sizes(
    c: AbstractConfiguration, rates: Float[Array, "n 6"], elastic: Float[Array, "n_elastic"]
) -> Float[Array, "n"]:
    """Root mean squares of the accelerations of the points of each body [m/s²]."""

    def size(body: AbstractBody, eta: Array, A: Array, x: Array) -> Float[Array, ""]:
        u, I = jnp.concatenate([A, x]), inertia_matrix(body, eta)
        return _root(u @ I @ u, I[0, 0])

    return jnp.concatenate(
        [
            jax.vmap(size)(g.body, g.own(c.elastic), g.rows.take(rates), g.own(elastic))
            for g in c.mechanism.bodies
        ]
    )


def _load_scale(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities
) -> Float[Array, ""]:
    """The largest acceleration that a load, its motion or its deformation would give a free body.

    The unit is m/s².
    """
    mechanism, found = system.mechanism, []
    forces = forces_on_bodies(system, c, v, jnp.zeros_like(v))
    for group, force in zip(mechanism.bodies, forces, strict=True):

        def size(body: AbstractBody, eta: Array, F: Array) -> Float[Array, ""]:
            I = inertia_matrix(body, eta)
            is_zero = (jnp.diagonal(I) == 0).astype(I.dtype)  # Massless links.
            whitened = jsl.solve_triangular(
                jnp.linalg.cholesky(I + jnp.diag(is_zero)), F, lower=True
            )
            return _root(whitened @ whitened, I[0, 0])

        found.append(jnp.max(jax.vmap(size)(group.body, group.own(c.elastic), force)))
    twists = c.twists(v)[1 : mechanism.n_bodies + 1]
    return jnp.max(jnp.stack([*found, load_scale(mechanism, twists, *loads(c, v))]))


def _root(x: Float[Array, ""], mass: Float[Array, ""]) -> Float[Array, ""]:
    """√(x / m); zero for massless links, which have no motion of their own."""
    return jnp.sqrt(jnp.where(mass > 0, jnp.maximum(x, 0.0) / jnp.where(mass > 0, mass, 1.0), 0.0))


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
