"""The energy- and momentum-conserving scheme of Bauchau et al. (2013), eqs (9) and (22).

δ are increments of the poses, u the velocities of the bodies along body-fixed axes:

    δ = h (u₀ + u₁) / 2
    (P₁ - P₀) / h = f̄(q₀, q₁) + Ḡ(q₀, q₁)ᵀ λ + f(t½, q½, v½),   g(q₁) = 0

The work of f̄ is the loss of the potentials, Ḡᵀ λ does no work, and f are the other applied forces.
First-order states follow the midpoint rule, z₁ = z₀ + h r(t½, q½, v½, z½), z½ = (z₀ + z₁) / 2, and
f depends on z½. Unknowns are δ and h² λ.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import IncompatibleIntegrator
from ..lie import Cayley, CayleyGibbsRodrigues
from ..nonlinear import Newton, as_newton
from ..system import loads
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.body_increments import (
    AbstractIncrements,
    MotionIncrements,
    RotationIncrements,
    as_increments,
)
from ..system.configuration import AbstractConfiguration
from ..system.constraints import constraint_force, n_constraints, residual
from ..system.discrete_gradients import conservative_wrenches, constraint_wrenches, on_bodies
from ..system.equation_residuals import constraint_rates
from ..system.loads import conservative, nonconservative
from .abstract import Attempt
from .implicit import Trend, after_middle, is_smooth, with_middle_states, with_stage_states
from .second_order import AbstractSecondOrder, StepMemory, check_discrete_gradients

# Base class and functions shared by the intrinsic schemes of Bauchau et al. (2013) ----------------

BodyRows = Float[Array, "n_bodies 6"]


class AbstractIntrinsic(AbstractSecondOrder):
    """A step in increments of the poses of all bodies."""

    increments: eqx.AbstractVar[AbstractIncrements]
    newton: eqx.AbstractVar[Newton]

    def check(self, system: AbstractSystem) -> None:
        check_bodies(type(self).__name__, system)
        check_discrete_gradients(type(self).__name__, system)


def check_bodies(caller: str, system: AbstractSystem) -> None:
    """**Raises** `IncompatibleIntegrator` if coordinates are more than poses of bodies."""
    if not system.absolute:
        raise IncompatibleIntegrator(
            f"{caller} needs the poses of all bodies for coordinates, {type(system).__name__} has "
            "others; use MaximalCoordinates(), or GeneralizedAlpha()"
        )
    names = system.intrinsic_names()
    if names:
        raise IncompatibleIntegrator(
            f"{caller} moves bodies only, and the rotor {names[0]!r} has an angle of its own; use "
            "GeneralizedAlpha(), or leave it out"
        )


class Start(eqx.Module):
    """Start of a step, the arguments of its equations."""

    increments: AbstractIncrements
    system: AbstractSystem
    t: Float[Array, ""]
    h: Float[Array, ""]
    state: State

    def each(self, method: Callable, *rows: Float[Array, "n_bodies _"]) -> Any:
        """Apply a method of the increments to every body."""
        return jax.vmap(method)(self.system.mechanism.rigid, *rows)

    @property
    def poses(self) -> Float[Array, "n_bodies 7"]:
        """Positions and quaternions."""
        return self.state.q.reshape(-1, 7)

    @property
    def u(self) -> BodyRows:
        """Velocities at the start."""
        return self.each(self.increments.components, self.state.v.reshape(-1, 6))

    def reached(self, delta: BodyRows, u: BodyRows) -> State:
        """State after increments, with velocities u after them and z of the start."""
        q = self.each(self.increments.moved, self.poses, delta)
        V = self.each(self.increments.twist, delta, u)
        return State(q.ravel(), V.ravel(), self.state.z)

    def gained(self, delta: BodyRows, u: BodyRows) -> BodyRows:
        """Momentum after increments minus momentum at the start."""
        momentum = self.increments.momentum
        return self.each(momentum, delta, u) - self.each(momentum, jnp.zeros_like(delta), self.u)

    def load(self, delta: BodyRows, force: Float[Array, "nv"]) -> BodyRows:
        """A generalized force after increments."""
        return self.each(self.increments.load, delta, force.reshape(-1, 6))

    def mean_load(self, delta: BodyRows, wrenches: BodyRows) -> BodyRows:
        """Mean load of two-point wrenches over a step of these increments."""
        return self.each(self.increments.mean_load, self.poses, delta, wrenches)

    def load_between(self, first: BodyRows, last: BodyRows, wrenches: BodyRows) -> BodyRows:
        """Two-point wrenches between two increments, work-conjugate to their difference."""
        return self.each(self.increments.load_between, self.poses, first, last, wrenches)

    def predicted(self, trend: Trend, share: float = 0.5) -> BodyRows:
        """Increments of a whole step, at the velocity extrapolated by a share of the step."""
        v, h = self.state.v, self.h
        V = v + jnp.where(is_smooth(h, v, trend.vdot), share * h * trend.vdot, 0.0)
        return h * self.each(self.increments.components, V.reshape(-1, 6))


# The energy- and momentum-conserving scheme of Bauchau et al. (2013), eqs (9) and (22) ------------


class EnergyMomentum(AbstractIntrinsic):
    """Scheme of order 2 that conserves energy and momentum to rounding.

    Energy is conserved for every choice of `increments`, with potential forces and joints too.
    Momentum is conserved without forces and joints; with them it is conserved if points move by
    v + ω × p̄ about their mean position, as for `RotationIncrements(CayleyGibbsRodrigues())` and
    `MotionIncrements(Cayley())`. Drives, dampers and friction act at the middle of the step.
    Vibration of any frequency is not damped. g = 0 holds at the end of each step.

    Advances models in `MaximalCoordinates` without rotors and couplings.

    **Arguments:**

    - `increments`: parameterization of the change of poses in a step.
      Default: `RotationIncrements(CayleyGibbsRodrigues())`.
    - `newton`: the solver of the equations of a step. Default: `Newton(tolerance=0.0)`, which
      iterates down to rounding; `Newton()` may lose a part of 5e-15 of the energy in every step.

    For example:

        bodies = mbd.formulate(model, mbd.MaximalCoordinates())
        start = mbd.assemble(bodies, {"hinge": 0.3})
        states = mbd.rollout(bodies, start, 0.01, 10, mbd.EnergyMomentum())
    """

    increments: AbstractIncrements
    newton: Newton

    def __init__(self, increments: AbstractIncrements | None = None, newton: Newton | None = None):
        default = RotationIncrements(CayleyGibbsRodrigues())
        given = default if increments is None else increments
        self.increments = as_increments(given, "EnergyMomentum")
        self.newton = as_newton(newton, "EnergyMomentum", Newton(tolerance=0.0))

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: StepMemory
    ) -> Attempt:
        start = Start(self.increments, system, t, h, state)
        ng = n_constraints(system)
        guess = jnp.concatenate([start.predicted(memory.trend).ravel(), h * h * memory.lam])
        root = self.solved(_equations, guess, start, system, t, h, state, memory)
        delta, impulse = _split(root.x, start)
        end = start.reached(delta, 2.0 * delta / h - start.u)
        if system.nz:
            end = State(end.q, end.v, after_middle(_middle(delta, start)[0], state.z))
        return self.finished(h, state, memory, end, impulse, root, rings=ng > 0)


def _split(x: Float[Array, "n"], start: Start) -> tuple[Array, Array]:
    nv = start.system.nv
    return x[:nv].reshape(-1, 6), x[nv:]


def _middle(delta: BodyRows, start: Start) -> tuple[AbstractConfiguration, Velocities]:
    """Configuration with first-order states, and velocities, at the middle of a step."""
    system, h = start.system, start.h
    state = start.reached(0.5 * delta, delta / h)
    c = system.configuration(start.t + 0.5 * h, state.q)
    return with_middle_states(system, c, state.v, h, start.state.z), state.v


def _equations(x: Float[Array, "n"], start: Start) -> Float[Array, "n"]:
    system, t, h = start.system, start.t, start.h
    delta, impulse = _split(x, start)
    u1 = 2.0 * delta / h - start.u
    end = start.reached(delta, u1)
    first, last = system.configuration(t, start.state.q), system.configuration(t + h, end.q)
    X0, X1 = first.ports, last.ports
    pull = conservative_wrenches(system.mechanism, t + 0.5 * h, X0, X1)
    push = constraint_wrenches(system, X0, X1, impulse)
    wrenches = h * h * on_bodies(system.mechanism, pull) + on_bodies(system.mechanism, push)
    rest = start.load(0.5 * delta, nonconservative(*_middle(delta, start)))
    # Eq. (9) times h² / 2: the derivative by δ is about the inertia.
    rows = h * start.gained(delta, u1) - start.mean_load(delta, wrenches) - h * h * rest
    return jnp.concatenate([0.5 * rows.ravel(), residual(system, last)])


# The momentum-conserving, energy-decaying scheme of Bauchau et al. (2013), eqs (10) and (23) ------
#
# Two stages, j just after the start of the step and f at its end:
#
#     δ_f = h (u_f + u_j) / 2,        (P_f - P_i) / h =  (A_f + A_j) / 2
#     δ_j = -h (u_f - u_j) / 6,       (P_j - P_i) / h = -(A_f - A_j) / 6
#     A = f(t, q, v) + G(q)ᵀ λ,       g(q_f) = 0,  G(q_f) v_f = 0
#
# The paper has the loads at the start instead of A_j. With A_j, as in the kinematics of the paper,
# the scheme for linear systems is the (1, 2) Padé approximation, which annihilates infinitely fast
# vibration in one step. Stage j is not a state of the motion: it differs from the start by h²/6 v̇,
# so that constraints are not enforced at j.
#
# Potential forces have the two-point force f̄(q_j, q_f), whose work is the loss of the potential
# from j to f, instead of (A_f + A_j) / 2, and -(f̄ - A_j) / 3 instead of -(A_f - A_j) / 6. For
# linear forces both forms are equal. If A_j · δ_j is no more than the loss from i to j, as in
# springs, the sum of kinetic and potential energy decreases. Unknowns are δ and h² λ of both
# stages. First-order states have the same stages:
#
#     (z_f - z_i) / h = (r_f + r_j) / 2,   (z_j - z_i) / h = -(r_f - r_j) / 6


class EnergyDecaying(AbstractIntrinsic):
    """Energy-decaying scheme of order 2, which damps fast vibration most.

    The kinetic energy of free bodies never grows: K₁ = K₀ - ½ (u_j - u₀)ᵀ M (u_j - u₀). With
    springs of any stiffness the total energy decreases. Momentum is conserved without forces. If
    `increments` are `MotionIncrements`, momentum is also conserved with forces and joints between
    bodies; `RotationIncrements` are more accurate if stiff springs force bodies on curves. g = 0
    and G v = 0 hold at the end of each step.

    Advances models in `MaximalCoordinates` without rotors and couplings.

    **Arguments:**

    - `increments`: parameterization of the change of poses in a step.
      Default: `MotionIncrements(Cayley())`.
    - `newton`: the solver of the equations of a step. Default: `Newton(tolerance=0.0)`, which
      iterates down to rounding; `Newton()` loses momentum, a part of 1e-12 in 5000 steps.

    For example:

        bodies = mbd.formulate(model, mbd.MaximalCoordinates())
        start = mbd.assemble(bodies, {"hinge": 0.3})
        states = mbd.rollout(bodies, start, 0.01, 10, mbd.EnergyDecaying())
    """

    increments: AbstractIncrements
    newton: Newton
    n_stages: ClassVar[int] = 2

    def __init__(self, increments: AbstractIncrements | None = None, newton: Newton | None = None):
        default = MotionIncrements(Cayley())
        given = default if increments is None else increments
        self.increments = as_increments(given, "EnergyDecaying")
        self.newton = as_newton(newton, "EnergyDecaying", Newton(tolerance=0.0))

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: StepMemory
    ) -> Attempt:
        start = Start(self.increments, system, t, h, state)
        whole = start.predicted(memory.trend)
        # δ_j = -h (u_f - u_j) / 6 with u_f - u_j = h v̇, and h times the velocity extrapolated by
        # half a step, less that at the start, is h² v̇ / 2.
        jump = (start.predicted(memory.trend, 0.0) - whole) / 3.0  # At constant v̇.
        push = h * h * memory.lam
        guess = jnp.concatenate([whole.ravel(), jump.ravel(), push, push])
        root = self.solved(_decaying_equations, guess, start, system, t, h, state, memory)
        (delta, u, impulse), _ = _stages(root.x, start)
        end = start.reached(delta, u)
        if system.nz:
            end = State(end.q, end.v, _moved(_stages(root.x, start), start)[0][0].z)
        return self.finished(h, state, memory, end, impulse, root)


def _stages(x: Float[Array, "n"], start: Start) -> Any:
    """Increments, velocities and h² λ at the end (f) and just after the start (j)."""
    nv, ng, h = start.system.nv, n_constraints(start.system), start.h
    whole, jump = x[:nv].reshape(-1, 6), x[nv : 2 * nv].reshape(-1, 6)
    ends = x[2 * nv : 2 * nv + ng], x[2 * nv + ng :]
    return (whole, (whole - 3.0 * jump) / h, ends[0]), (jump, (whole + 3.0 * jump) / h, ends[1])


# W of the first-order states at the stages f and j, times h: the inverse of the weights of r.
STATE_WEIGHTS = ((1.0, -3.0), (1.0, 3.0))


def _moved(stages: Any, start: Start) -> list[tuple[AbstractConfiguration, Velocities]]:
    """Configurations with first-order states, and velocities, at the stages f and j."""
    system, t, h, z = start.system, start.t, start.h, start.state.z
    moved = []
    for time, (delta, u, _) in zip((t + h, t), stages, strict=True):
        state = start.reached(delta, u)
        moved.append((system.configuration(time, state.q), state.v))
    if system.nz == 0:
        return moved
    weights = jnp.asarray(STATE_WEIGHTS, dtype=z.dtype) / h
    known = jnp.outer(jnp.sum(weights, axis=1), z)
    configurations = with_stage_states(system, moved, weights, known, z)
    return [(c, v) for c, (_, v) in zip(configurations, moved, strict=True)]


def _decaying_equations(x: Float[Array, "n"], start: Start) -> Float[Array, "n"]:
    system, t, h = start.system, start.t, start.h
    stages, terms = _stages(x, start), []
    for (c, v), (delta, u, impulse) in zip(_moved(stages, start), stages, strict=True):
        force = h * h * loads.applied(system, c, v)
        if impulse.size:
            force = force + constraint_force(system, c, impulse)
        potential = start.load(delta, conservative(c))
        terms.append((c, h * start.gained(delta, u), start.load(delta, force), potential))
    (end, P_f, A_f, C_f), (jumped, P_j, A_j, C_j) = terms
    between = conservative_wrenches(system.mechanism, t + 0.5 * h, jumped.ports, end.ports)
    pull = on_bodies(system.mechanism, between)
    mean = start.load_between(stages[1][0], stages[0][0], pull)
    D = h * h * (mean - (C_f + C_j) / 2.0)
    whole, jump = P_f - (A_f + A_j) / 2.0 - D, P_j + (A_f - A_j) / 6.0 + D / 3.0
    rows = [0.5 * whole.ravel(), 0.5 * jump.ravel()]
    v = start.reached(*stages[0][:2]).v
    rows += [residual(system, end), h * constraint_rates(system, end, v)]
    return jnp.concatenate(rows)
