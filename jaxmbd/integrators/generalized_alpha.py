"""The generalized-α method on Lie groups (Arnold and Brüls 2007; Brüls, Cardona and Arnold 2012).

a are the algorithmic accelerations, h is the length of the step:

    (1 - αm) a₁ + αm a₀ = (1 - αf) v̇₁ + αf v̇₀
    q₁ = q₀ ⊞ (h v₀ + h² ((½ - β) a₀ + β a₁))
    v₁ = v₀ + h ((1 - γ) a₀ + γ a₁)
    M(q₁) v̇₁ + b(q₁, v₁) = f(t₁, q₁, v₁) + G(q₁)ᵀ λ₁,   g(q₁) = 0

First-order states z have algorithmic rates w in the same way (Brüls and Golinval 2008):

    (1 - αz) w₁ + αz w₀ = (1 - αf) ż₁ + αf ż₀,   ż₁ = r(t₁, q₁, v₁, z₁)
    z₁ = z₀ + h ((1 - γz) w₀ + γz w₁),           γz = ½ + αf - αz

With αz = αm, one of the two roots for infinitely fast decay would be (1 - 3ρ) / (3 - ρ) instead of
-ρ, and not zero at ρ = 0. With αz = 2 αf - ½ = (3ρ - 1) / (2ρ + 2) both roots are -ρ (Jansen,
Whiting and Hulbert 2000). Methods defined by `coefficients`, such as the trapezoidal rule, have
αz = αm and γz = γ.

Unknowns are the correction δ of the increment of q, and h² λ₁. With `increments`, v are the
components along fixed axes, and ⊞ is their parameterization (Bauchau et al. 2013, eqs 12, 13, 25
and 26).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..errors import ModelError
from ..model.values import as_host_number
from ..nonlinear import Blocks, CachedFactors, Newton, as_newton, recomputed
from ..programs.tracing import stop_gradients
from ..programs.with_slope import with_shared_tangents
from ..system.abstract import AbstractSystem, State, States, Time, Velocities, as_time
from ..system.acceleration import accelerations
from ..system.body_increments import AbstractIncrements, as_increments
from ..system.configuration import AbstractConfiguration
from ..system.constraints import n_constraints
from ..system.equation_residuals import motion_residual, step_constraints
from ..system.loads import rates_at
from ..system.projection import project_velocities
from .abstract import Attempt, Increments
from .energy_momentum import check_bodies
from .implicit import (
    AbstractImplicit,
    Sizes,
    cache_for,
    hidden_rows,
    is_smooth,
    is_solved,
    no_sizes,
    of_step,
    position_shift,
    typical_sizes,
    with_states,
    without_ringing,
)

# Components in which generalized-α integrates accelerations over a step ---------------------------


class AbstractComponents(eqx.Module):
    """Components w of the velocities that stay comparable during one step."""

    @abstractmethod
    def of(
        self, system: AbstractSystem, v: Velocities, vdot: Velocities
    ) -> tuple[Velocities, Velocities]:
        """w and ẇ at the start of the step."""

    @abstractmethod
    def change(
        self, system: AbstractSystem, v: Velocities, vdot: Velocities, jerk: Velocities
    ) -> Velocities:
        """Rate of change of ẇ at the start of the step, as a rate of v̇ at constant v."""

    @abstractmethod
    def reached(
        self,
        system: AbstractSystem,
        start: State,
        increment: Velocities,
        w: Velocities,
        wdot: Velocities,
    ) -> tuple[State, Velocities]:
        """Coordinates and velocities after an increment, with z of the start, and v̇ after it."""


class BodyAxes(AbstractComponents):
    """The system's own velocities, w = v, and its own increments (Arnold and Brüls 2007)."""

    def of(self, system, v, vdot):
        return v, vdot

    def change(self, system, v, vdot, jerk):
        return jerk

    def reached(self, system, start, increment, w, wdot):
        return State(system.retract(start.q, increment), w, start.z), wdot


class FixedAxes(AbstractComponents):
    """Velocities of the bodies along fixed axes (Bauchau et al. 2013)."""

    increments: AbstractIncrements

    def of(self, system, v, vdot):
        fixed = jax.vmap(self.increments.fixed)
        w, wdot = fixed(system.mechanism.rigid, v.reshape(-1, 6), vdot.reshape(-1, 6))
        return w.ravel(), wdot.ravel()

    def change(self, system, v, vdot, jerk):
        def turning(body, V, Vdot):
            w, wdot = self.increments.fixed(body, V, Vdot)

            def rate(delta, w):
                return self.increments.carried(body, delta, w, wdot)[1]

            return jax.jvp(rate, (jnp.zeros_like(w), w), (w, wdot))[1]

        bodies = system.mechanism.rigid
        return jerk - jax.vmap(turning)(bodies, v.reshape(-1, 6), vdot.reshape(-1, 6)).ravel()

    def reached(self, system, start, increment, w, wdot):
        bodies = system.mechanism.rigid
        delta, w, wdot = (x.reshape(-1, 6) for x in (increment, w, wdot))
        q = jax.vmap(self.increments.moved)(bodies, start.q.reshape(-1, 7), delta)
        v, vdot = jax.vmap(self.increments.carried)(bodies, delta, w, wdot)
        return State(q.ravel(), v.ravel(), start.z), vdot.ravel()


# Size of the difference for derivatives of accelerations, as a part of the first step.
NEAR = 1.0 / 1024.0
# Errors of the unknowns up to this part of the local error of velocities are negligible.
NEGLIGIBLE = 1e-4


class StateRates(eqx.Module):
    """Rates of the first-order states at the end of the last step, each of shape `(nz,)`.

    - `zdot`: ż; `offset`: (w - ż) / h, saved instead of w so that the step may change; `jerk`:
      difference quotient of ż.
    """

    zdot: States
    offset: States
    jerk: States


class AlphaMemory(eqx.Module):
    """Accelerations at the end of the last step.

    - `vdot`, `lam`: v̇, shape `(nv,)`, and λ, shape `(ng,)`.
    - `offset`: (a - v̇) / h, saved instead of a so that the step may change.
    - `jerk`, `lam_rate`: difference quotients of v̇ and of λ.
    - `snap`, `lam_curvature`: second divided differences of v̇ and of λ.
    - `h`: length of that step [s].
    - `cache`: cached factors of the chord method, None if it is not used.
    - `states`: rates of the first-order states, None if there are none.
    """

    vdot: Float[Array, "nv"]
    lam: Float[Array, "ng"]
    offset: Float[Array, "nv"]
    jerk: Float[Array, "nv"]
    lam_rate: Float[Array, "ng"]
    snap: Float[Array, "nv"]
    lam_curvature: Float[Array, "ng"]
    h: Float[Array, ""]
    cache: CachedFactors | None = None
    states: StateRates | None = None

    def rings(self, h: Time) -> Bool[Array, ""]:
        """True if v̇ reversed its direction in the last step, of length `h` [s]."""
        return self.vdot @ (self.vdot - h * self.jerk) < 0


class GeneralizedAlpha(AbstractImplicit):
    """Generalized-α on the configuration manifold, of order 2, for stiff and constrained systems.

    Advances systems of every formulation. Constraints hold at the end of each step (index 3).

    **Arguments:**

    - `rho_inf`: spectral radius at infinite frequency, from 0 (annihilates fast vibration in one
      step) to 1 (preserves it). Default: 0.9.
    - `index`: 3 enforces g = 0; 2 enforces G v = 0 as well, by a further multiplier on the
      positions (Gear, Gupta and Leimkuhler 1985). Default: 3.
    - `project`: whether to project the velocities on G v = 0 after each step (index 3). Default:
      False.
    - `newton`: the solver of the equations of a step. Default: `Newton()`, modified Newton's method
      up to an error that is negligible compared with the local error of the step.
    - `increments`: the intrinsic form of the method, with velocities along fixed axes:
      `RotationIncrements` or `MotionIncrements`, for systems in `MaximalCoordinates`. Default: v
      are the velocities of the system.
    - `coefficients`: `(αm, αf, β, γ)`, for first-order states as well. Default: the coefficients
      that follow from `rho_inf`.

    `Newton` without a tolerance ends a step if the remaining error of its unknowns is estimated as
    1e-4 of the local error of the velocities in the step before, or less: the order does not
    change. Relative to the increments of the step this error is at most 1e-12, and constraints hold
    to about 1e-12 of these increments. In single precision, and where motions are so smooth that
    rounding is larger, steps are solved to rounding. `Newton(tolerance=0.0)` solves each step to
    rounding.

    With constraints and adaptive steps choose index 2: at index 3 the accelerations ring after
    every change of the step, and the error of the positions alone is controlled.

    Index 3 does not enforce the constraints on velocities and accelerations: disturbances normal to
    the constraints change their sign in every step and decay like k² ρ^k, the more slowly the
    nearer ρ is to 1. The disturbances grow if links rotate fast relative to one another: with
    ρ = 0.9 if h times the relative rate is about 0.2 for two links, 0.1 for three, and less in long
    chains. A smaller `rho_inf` or a smaller step reduces the disturbances; `project` and index 2
    eliminate them.

    `newmark`, `hht` and `trapezoidal` are constructors of special cases.

    **Raises** `ModelError` for a `rho_inf` outside [0, 1].

    For example:

        method = mbd.GeneralizedAlpha(0.8)
        states = mbd.rollout(system, state, 0.01, 10, method)
    """

    alpha_m: float
    alpha_f: float
    beta: float
    gamma: float
    alpha_z: float
    gamma_z: float
    index: int
    project: bool
    newton: Newton
    components: AbstractComponents

    def __init__(
        self,
        rho_inf: float = 0.9,
        *,
        index: int = 3,
        project: bool = False,
        newton: Newton | None = None,
        increments: AbstractIncrements | None = None,
        coefficients: tuple[float, float, float, float] | None = None,
    ):
        if not 0.0 <= as_host_number(rho_inf, "GeneralizedAlpha: rho_inf") <= 1.0:
            raise ModelError(f"GeneralizedAlpha: rho_inf must be within [0, 1], got {rho_inf}")
        if index not in (2, 3):
            raise ModelError(f"GeneralizedAlpha: index must be 2 or 3, got {index}")
        if coefficients is None:
            # γ gives order 2, β the strongest damping of fast vibrations (Chung and Hulbert 1993).
            alpha_m, alpha_f = (2.0 * rho_inf - 1.0) / (rho_inf + 1.0), rho_inf / (rho_inf + 1.0)
            gamma = 0.5 + alpha_f - alpha_m
            coefficients = (alpha_m, alpha_f, 0.25 * (gamma + 0.5) ** 2, gamma)
            # Both roots of an infinitely fast decay are -ρ∞ (Jansen, Whiting and Hulbert 2000).
            self.alpha_z, self.gamma_z = 2.0 * alpha_f - 0.5, 1.0 - alpha_f
        else:
            self.alpha_z, self.gamma_z = float(coefficients[0]), float(coefficients[3])
        self.alpha_m, self.alpha_f, self.beta, self.gamma = map(float, coefficients)
        self.index, self.project = index, project
        self.newton = as_newton(newton, "GeneralizedAlpha")
        self.components = (
            BodyAxes()
            if increments is None
            else FixedAxes(as_increments(increments, "GeneralizedAlpha"))
        )

    @classmethod
    def newmark(cls, beta: float = 0.25, gamma: float = 0.5, **options: Any) -> "GeneralizedAlpha":
        """Newmark's method, a = v̇; of order 2 if γ = ½."""
        return cls(coefficients=(0.0, 0.0, beta, gamma), **options)

    @classmethod
    def hht(cls, alpha: float = 0.1, **options: Any) -> "GeneralizedAlpha":
        """The method of Hilber, Hughes and Taylor (1977), α from 0 to 1/3."""
        if not 0.0 <= alpha <= 1.0 / 3.0:
            raise ModelError(f"GeneralizedAlpha.hht: alpha must be within [0, 1/3], got {alpha}")
        return cls(coefficients=(0.0, alpha, 0.25 * (1.0 + alpha) ** 2, 0.5 + alpha), **options)

    @classmethod
    def trapezoidal(cls, **options: Any) -> "GeneralizedAlpha":
        """The trapezoidal rule: Newmark's method with β = ¼ and γ = ½."""
        return cls.newmark(**options)

    def check(self, system: AbstractSystem) -> None:
        if isinstance(self.components, FixedAxes):
            check_bodies("GeneralizedAlpha with increments", system)

    def begin(self, system: AbstractSystem, t: Time, h: Time, state: State) -> AlphaMemory:
        t, h = as_time(t, system), as_time(h, system)
        near = NEAR * h

        zdot, slow, is_slow = _slow_states(system, t, h, state)

        def displaced(system: AbstractSystem, t: Time, state: State, *others: Any) -> Any:
            zdot, slow, vdot, (ahead, later) = others
            z = state.z + ahead * jnp.where(slow, zdot, 0.0) if system.nz else state.z
            at = State(system.retract(state.q, ahead * state.v), state.v + ahead * vdot, z)
            rates = *accelerations(system, t + later, at), rates_at(system, t + later, at)
            return jnp.where(ahead == 0.0, rates[0], vdot), rates

        # Accelerations at the state and slightly ahead and behind along the motion, but never at
        # times before t: one program for all three. Derivatives of accelerations would be another
        # program, several times as large, and derivatives of a run would differentiate it once
        # more. Central differences, as stiff forces change far more with the square of a
        # displacement than with the displacement.
        zero = jnp.zeros_like(near)
        moves = jnp.stack([zero, near, -near]), jnp.stack([zero, 2.0 * near, zero])
        start = with_shared_tangents(jnp.zeros_like(state.v), (system, state))
        args = system, t, state, zdot, slow
        once = lambda vdot, move: recomputed(displaced, *args, vdot, move)  # noqa: E731
        vdots, lams, zdots = jax.lax.scan(once, start, moves)[1]
        vdot, lam = vdots[0], lams[0]
        jerk, lam_rate = (vdots[1] - vdots[2]) / (2.0 * near), (lams[1] - lams[2]) / (2.0 * near)
        states = None
        if system.nz:
            z_jerk = (zdots[1] - zdots[2]) / (2.0 * near)
            slow = slow & is_slow(z_jerk)
            z_jerk = jnp.where(slow, z_jerk, 0.0)
            # w is ż at another time as well. w is zero for a state that decays within the step.
            z_offset = jnp.where(slow, (self.alpha_z - self.alpha_f) * z_jerk, -zdot / h)
            states = StateRates(zdot, z_offset, z_jerk)
        # a is ẇ at another time: a(t) = ẇ(t + (αm - αf) h) + O(h²).
        offset = self.components.change(system, state.v, vdot, jerk)
        offset = (self.alpha_m - self.alpha_f) * offset
        zeros = jnp.zeros_like(jerk), jnp.zeros_like(lam)
        own = AlphaMemory(vdot, lam, offset, jerk, lam_rate, *zeros, h, states=states)
        blocks = self._kinds(system, no_sizes(h))
        cache = self.newton.empty_cache(blocks, state.q.dtype)
        return eqx.tree_at(lambda own: own.cache, own, cache, is_leaf=lambda x: x is None)

    def _kinds(self, system: AbstractSystem, sizes: Sizes) -> Blocks:
        """Kinds of unknowns of a step, with their sizes."""
        ng = n_constraints(system)
        return sizes.blocks((system.nv, ng, ng if self.index == 2 else 0), system)

    def _problem(
        self, system: AbstractSystem, t: Time, h: Time, state: State, own: AlphaMemory
    ) -> tuple[Float[Array, "n"], "_Step", Blocks]:
        """Initial guess, arguments and kinds of unknowns of the equations of a step."""
        _, a = self.components.of(system, state.v, own.vdot + h * own.offset)
        w, wdot = self.components.of(system, state.v, own.vdot)
        shift = position_shift(system, t, state, self.index)
        step = _Step(system, t, h, state, w, wdot, a, shift, self._known(h, state, own.states))
        guess, sizes = of_step(_predicted, system)(*stop_gradients((self, step, own)))
        return guess, step, self._kinds(system, sizes)

    def attempt(
        self, system: AbstractSystem, t: Time, h: Time, state: State, memory: AlphaMemory
    ) -> Attempt:
        own = eqx.tree_at(lambda own: own.cache, memory, None, is_leaf=lambda x: x is None)
        h = as_time(h, system)
        guess, step, blocks = self._problem(system, as_time(t, system), h, state, own)
        cache = cache_for(memory.cache, h, memory.h)
        root = self.newton(self._equations, guess, step, blocks, cache)
        end, after, error, zdots = of_step(_finished, system)(self, step, own, root.x)
        after = eqx.tree_at(lambda own: own.cache, after, root.cache, is_leaf=lambda x: x is None)
        slopes = (own.vdot, zdots[0]), (after.vdot, zdots[1])
        return Attempt(end, after, error, slopes, is_solved(root.converged, end.z))

    def _weight(self, h: Time) -> Float[Array, ""]:
        """Derivative of ż₁ with respect to z₁ [1/s]."""
        return (1.0 - self.alpha_z) / ((1.0 - self.alpha_f) * self.gamma_z * h)

    def _known(self, h: Time, state: State, rates: StateRates | None) -> States | None:
        """W z₁ - ż₁, computed from the start of the step."""
        if rates is None:
            return None
        w = rates.zdot + h * rates.offset
        # w₁ is eliminated from its linear relations to z₁ and to ż₁: ż₁ = W z₁ - known.
        before = (self.alpha_f * rates.zdot - self.alpha_z * w) / (1.0 - self.alpha_f)
        return self._weight(h) * (state.z + h * (1.0 - self.gamma_z) * w) + before

    def _state_rates(
        self, before: StateRates, step: "_Step", z: States
    ) -> tuple[StateRates, States]:
        """Rates at the end of a step with final states z, and the estimated error of z."""
        h = step.h
        assert step.known is not None
        zdot, change = self._weight(h) * z - step.known, z - step.state.z
        w = (change / h - (1.0 - self.gamma_z) * (before.zdot + h * before.offset)) / self.gamma_z
        jerk = (zdot - before.zdot) / h
        smooth = h * h / 12.0 * (jerk - before.jerk)
        astray = change - 0.5 * h * (before.zdot + zdot)
        error = jnp.maximum(jnp.abs(smooth), jnp.abs(astray))
        return StateRates(zdot, (w - zdot) / h, jerk), error

    def _configuration(self, end: State, step: "_Step") -> AbstractConfiguration:
        """Configuration at the end of the step, with first-order states."""
        system, h = step.system, step.h
        c = system.configuration(step.t + h, end.q)
        if step.known is None:
            return c
        return with_states(system, c, end.v, self._weight(h), step.known, step.state.z)

    @property
    def _ratio(self) -> float:
        """Derivative of v̇₁ with respect to a₁."""
        return (1.0 - self.alpha_m) / (1.0 - self.alpha_f)

    def _algorithmic(self, delta: Velocities, step: "_Step") -> Velocities:
        """a₁ for a correction of the increment; ẇ₁ = ẇ₀ for a correction of zero."""
        known = step.wdot - self.alpha_m * step.a
        return known / (1.0 - self.alpha_m) + delta / (self.beta * step.h**2)

    def _end(
        self, x: Float[Array, "n"], step: "_Step", algorithmic: bool = False
    ) -> tuple[State, Array, Array]:
        """State, v̇ (or the algorithmic acceleration) and λ at the end of the step."""
        system, h, a = step.system, step.h, step.a
        nv, ng = system.nv, n_constraints(system)
        delta, lam, mu = x[:nv], x[nv : nv + ng] / (h * h), x[nv + ng :]
        a1 = self._algorithmic(delta, step)
        increment = h * step.w + h * h * ((0.5 - self.beta) * a + self.beta * a1)
        if step.scatter is not None:
            shift = step.scatter @ mu
            increment = increment - self.components.of(system, shift, shift)[0]
        w = step.w + h * ((1.0 - self.gamma) * a + self.gamma * a1)
        wdot = a1 if algorithmic else step.wdot + self._ratio * delta / (self.beta * h * h)
        state, vdot = self.components.reached(system, step.state, increment, w, wdot)
        return state, vdot, lam

    def _equations(self, x: Float[Array, "n"], step: "_Step") -> Float[Array, "n"]:
        end, vdot, lam = self._end(x, step)
        system, h = step.system, step.h
        c = self._configuration(end, step)
        # Times h², as the multipliers: entries by δ and by h² λ keep their sizes as h → 0.
        rows = [h * h * motion_residual(system, c, end.v, vdot, lam)]
        if lam.size:
            rows.append(step_constraints(system, c, h, end.v))
        if step.scatter is not None:
            rows.append(hidden_rows(system, c, h, end.v, x[-lam.size :]))
        return jnp.concatenate(rows)

    def order(self, terms: Any = None) -> int:
        return 2


def _predicted(
    method: GeneralizedAlpha, step: "_Step", own: AlphaMemory
) -> tuple[Float[Array, "n"], Sizes]:
    """Initial guess of the unknowns of a step, and their sizes."""
    system, h, state = step.system, step.h, step.state
    sizes = typical_sizes(system, step.t, h, state, own.vdot)
    change = method.components.change
    steady = -method.beta * h * h * method._algorithmic(jnp.zeros_like(step.w), step)
    steady = steady - (0.5 - method.beta) * h * h * step.a
    # v̇ and λ are extrapolated by their last changes if these are no more than their size.
    jerk = change(system, state.v, own.vdot, _next(own.jerk, own.snap, h + own.h))
    going = method.beta * h**3 / method._ratio * jerk
    going = jnp.where(is_smooth(h, own.vdot, own.jerk), going, 0.0)
    first = jnp.where(is_smooth(h, state.v, own.vdot), going, steady)
    slope = h * _next(own.lam_rate, own.lam_curvature, h + own.h)
    lam = own.lam + jnp.where(is_smooth(h, own.lam, own.lam_rate), slope, 0.0)
    # The local error of velocities is h Δ²v̇ / 12, and an error δ of the increment changes them by
    # 2 δ / h.
    assert sizes.large is not None
    largest = jnp.max(jnp.abs(h * (h + own.h) * own.snap) / sizes.large, initial=0.0)
    negligible = NEGLIGIBLE * h * h / 24.0 * largest / sizes.small
    sizes = eqx.tree_at(
        lambda sizes: sizes.negligible, sizes, negligible, is_leaf=lambda x: x is None
    )
    n_shift = lam.size if method.index == 2 else 0
    guess = jnp.concatenate([first, h * h * lam, jnp.zeros_like(lam, shape=n_shift)])
    return guess, sizes


def _next(rate: Float[Array, "n"], second: Float[Array, "n"], both: Time) -> Float[Array, "n"]:
    """The next difference quotient, from the last one and the second divided difference.

    **Arguments:** `both`: length of the last and of the next step [s].
    """
    change = both * second
    largest = lambda x: jnp.max(jnp.abs(x), initial=0.0)  # noqa: E731
    # Values that ring change as in the last step but one; others go on along a parabola.
    rings = rate @ (rate - change) < 0.0
    is_curve = largest(change) <= 0.5 * largest(rate)
    return rate + jnp.where(rings, -change, jnp.where(is_curve, change, 0.0))


def _finished(
    method: GeneralizedAlpha, step: "_Step", memory: AlphaMemory, x: Float[Array, "n"]
) -> tuple[State, AlphaMemory, Increments, tuple[States, States]]:
    """State and memory after a step, without cached factors; estimated error; ż at both ends."""
    system, t, h, state = step.system, step.t, step.h, step.state
    end, vdot, lam = method._end(x, step)
    states, dz, zdots = memory.states, state.z, (state.z, state.z)
    if memory.states is not None:
        end = State(end.q, end.v, method._configuration(end, step).z)
        states, dz = method._state_rates(memory.states, step, end.z)
        zdots = memory.states.zdot, states.zdot
    if method.project:
        end = State(end.q, project_velocities(system, t + h, end), end.z)
    a1 = method._end(x, step, algorithmic=True)[1]
    jerk, lam_rate = (vdot - memory.vdot) / h, (lam - memory.lam) / h
    # Velocities follow a. Accelerations do not show the error of a after a sudden force.
    astray = end.v - state.v - 0.5 * h * (memory.vdot + vdot)
    smooth = h * h / 12.0 * (jerk - memory.jerk)
    # By Taylor's series the increment of q has h³ v̈ / 6, and the method has β h³ v̈.
    error = (
        h * h * (method.beta - 1.0 / 6.0) * (vdot - memory.vdot),
        jnp.maximum(jnp.abs(smooth), jnp.abs(astray)),
        dz,
    )
    if lam.size and method.index == 3:
        error = without_ringing(error)
    both = h + memory.h
    second = (jerk - memory.jerk) / both, (lam_rate - memory.lam_rate) / both
    offset = (a1 - vdot) / h
    after = AlphaMemory(vdot, lam, offset, jerk, lam_rate, *second, h, states=states)
    return end, after, error, zdots


def _slow_states(
    system: AbstractSystem, t: Time, h: Time, state: State
) -> tuple[States, Any, Callable[[States], Bool[Array, "nz"]]]:
    """ż, a mask of the states whose ż is slow, and a function that computes the mask of a change.

    A change of z is slow if its effect on z in a step is no more than the change itself. Other
    changes decay within the step: rates at the start do not hold for the rest of the step, and
    their extrapolation would lead far away.
    """

    def rates(z: States) -> States:
        return rates_at(system, t, State(state.q, state.v, z))

    def is_slow(change: States) -> Bool[Array, "nz"]:
        return jnp.abs(h * jax.jvp(rates, (state.z,), (change,))[1]) <= jnp.abs(change)

    if system.nz == 0:
        return state.z, None, is_slow
    zdot = rates(state.z)
    return zdot, is_slow(zdot), is_slow


class _Step(eqx.Module):
    """Arguments of the equations of a step."""

    system: AbstractSystem
    t: Float[Array, ""]
    h: Float[Array, ""]
    state: State
    w: Float[Array, "nv"]
    wdot: Float[Array, "nv"]
    a: Float[Array, "nv"]
    scatter: Float[Array, "nv ng"] | None
    known: Float[Array, "nz"] | None  # W z₁ - ż₁
