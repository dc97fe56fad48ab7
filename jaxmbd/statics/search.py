"""Steps to equilibrium: drainage of energy first, then Newton's method, by one program.

Both solve the equations of `balance` and differ in their inertia. The program is traced and
compiled once for both.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scalarjit import native_or_traced

from ..model.values import as_jax
from ..nonlinear import AbstractFactorization, Blocks
from ..nonlinear.factorization import Residual
from ..programs.tracing import kernel
from ..system.abstract import AbstractSystem, Time, Velocities
from .balance import (
    SLOW,
    Balance,
    Place,
    Scales,
    at_place,
    displacement,
    equations,
    factored,
    inertial,
    parts,
    unknowns,
)
from .methods import Drainage, StaticNewton

# One linearly implicit step towards equilibrium: corrections by one factorization -----------------

# Displacement, and change of z, below which the ratio of changes is not examined.
SMALL = 1e-9

# A state z of less than this size [its SI unit] counts by its absolute change: near zero, the
# change by the state itself would be that of rounding errors.
LEAST_STATE = 1.0

# Further corrections of a step: their largest number, and the largest ratio of successive ones. A
# correction takes a small part of the time of a factorization.
MOST_CORRECTIONS, SHRINKING = 10, 0.25

# Largest further correction, by the first one, of a step of a system with constraints. What a step
# leaves of the constraints' residuals adds up along a chain.
CLOSED = 1e-3


class Trial(eqx.Module):
    """Result of an attempted step.

    - `place`: the end of the step; `delta`: its increment.
    - `force`: the residual force b - f - Gᵀ λ at its start.
    - `size`: size of the first correction, displacement and relative change of z; `moved`: its
      displacement alone; `states`: relative change of z.
    - `ratio`: size of the second correction by that of the first (Deuflhard 2004, natural
      monotonicity test), the larger one of displacements and of z. Below one half the step follows
      the equations; near zero they are linear.
    - `last`: size of the last correction, displacement and relative change of z; infinite without
      further corrections.
    - `finite`: whether all numbers are finite.
    """

    place: Place
    delta: Velocities
    force: Velocities
    size: Float[Array, ""]
    moved: Float[Array, ""]
    states: Float[Array, ""]
    ratio: Float[Array, ""]
    last: Float[Array, ""]
    finite: Bool[Array, ""]


def attempt(
    at: Balance,
    place: Place,
    ahead: Velocities,
    scales: Scales,
    blocks: Blocks,
    factorization: AbstractFactorization,
    further: Bool[Array, ""] | None = None,
) -> Trial:
    """Solve the equations of a step approximately, by two changes with the first Jacobian.

    **Arguments:** `ahead`: displacement at which the Jacobian is taken if there are first-order
    states. Their rates may have a kink at rest, and those of bristles saturate. `further`: whether
    to iterate further with the same factors, without inertia, if the equations are nearly linear.
    Default: no.
    """
    system = at.system
    x0 = unknowns(system, place.lam)
    c = at.start
    # With states the Jacobian has no closed form, and code of the equations is generated once.
    residual = equations if system.nz == 0 else native_or_traced(equations, x0, at)
    if system.nz == 0:
        value, factors = factored(at, place.lam, blocks, factorization)
        first = factorization.solve(factors, -value)
    else:
        begin = x0.at[: system.nv].set(ahead)
        value, factors = factorization.factor(
            Residual(residual, begin, at, as_code=False), begin, blocks
        )
        first = begin - x0 + factorization.solve(factors, -value)
        value = residual(x0, at)
    second = factorization.solve(factors, -residual(x0 + first, at))
    x = x0 + first + second
    moved, first_states = _sizes(system, c, first, first, place, scales)
    after, second_states = _sizes(system, c, second, first, place, scales)
    size = moved + first_states
    ratio = after / (moved + SMALL)
    ratio = jnp.maximum(ratio, second_states / (first_states + SMALL))
    last = jnp.full_like(size, jnp.inf)
    if further is not None or place.lam.size > 0:
        sizes = size, after + second_states
        x, last = _corrected(
            x, sizes, ratio, further, at, place, scales, factorization, factors, residual
        )
    delta, lam, dz = parts(system, x)
    end = Place(system.retract(place.q, delta), lam, place.z + dz, place.travelled + delta)
    finite = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(end.q)) & jnp.isfinite(ratio)
    force = value[: system.nv] + inertial(at, at.push)
    return Trial(end, delta, force, size, moved, first_states, ratio, last, finite)


def _corrected(
    x: Float[Array, "n"],
    sizes: tuple[Float[Array, ""], Float[Array, ""]],
    ratio: Float[Array, ""],
    further: Bool[Array, ""] | None,
    at: Balance,
    place: Place,
    scales: Scales,
    factorization: AbstractFactorization,
    factors: Any,
    residual: Callable[..., Float[Array, "n"]],
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Unknowns after further corrections, and the size of the last one of a step with `further`.

    With `further`, the corrections are those of the equations without inertia, whose root is the
    equilibrium. Otherwise they solve the equations of the step, constraints included.

    **Arguments:** `sizes`: sizes of the first two corrections.
    """
    system, first = at.system, sizes[0]
    further = jnp.array(False) if further is None else further
    inertia = jnp.where(further, 0.0, at.inertia)
    solved = eqx.tree_at(lambda b: b.inertia, at, inertia)
    eps = float(jnp.finfo(x.dtype).eps)
    least = jnp.where(further, eps, CLOSED * first + eps)
    wanted = jnp.array(True) if place.lam.size > 0 else further
    shrinking = jnp.where(further, SHRINKING, 2.0 * SHRINKING)

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Bool[Array, ""]:
        _, size, ratio, n = carry
        return wanted & (ratio <= shrinking) & (size > least) & (n < MOST_CORRECTIONS)

    def correct(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, before, _, n = carry
        change = factorization.solve(factors, -residual(x, solved))
        size = sum(_sizes(system, at.start, change, x, place, scales))
        ratio = size / (before + eps)
        good = ratio <= shrinking
        return jnp.where(good, x + change, x), jnp.where(good, size, before), ratio, n + 1

    start = x, sizes[1], ratio, jnp.zeros((), jnp.int32)
    x, size, _, n = jax.lax.while_loop(unfinished, correct, start)
    return x, jnp.where(further & (n > 0), size, jnp.inf)


def _sizes(
    system: AbstractSystem,
    c: Any,
    change: Float[Array, "n"],
    first: Float[Array, "n"],
    place: Place,
    scales: Scales,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Size of a displacement, and the largest change of z by its size after the first change."""
    delta, _, dz = parts(system, change)
    size = displacement(system, c, delta, scales)
    if system.nz == 0:
        return size, jnp.zeros_like(size)
    after = place.z + parts(system, first)[2]
    typical = jnp.maximum(jnp.maximum(jnp.abs(place.z), jnp.abs(after)), LEAST_STATE)
    return size, jnp.max(jnp.abs(dz) / typical)


# Drainage. Length of steps times ω: the first one, and the largest. Largest ratio of corrections of
# an accepted step, factors of the length of steps, and the largest change of ω₁² in a step. If the
# motion creeps, ω > ω₁, its largest step is ω / ω₁², half of its time constant.
FIRST, LONGEST = 0.2, 1.0
DRAINED_RATIO, SHORTER, LONGER = 0.25, 0.25, 1.5
CHANGE = 2.0

# Newton's method. Inertia of full steps, as a part of the mechanism's `rate`: it makes directions
# without stiffness regular, and slows convergence by this part of the stiffness. Largest ratio of
# corrections of an accepted step, factors of the inertia, and the inertia that counts as none.
LEAST_INERTIA = 1e-8
NEWTON_RATIO, MORE, LESS = 0.35, 8.0, 0.02
NEGLIGIBLE = 1e-3

# Part of the last step of Newton's method at which the next Jacobian is taken, beside kinks.
ASIDE = 1e-6

# Steps of Newton's method that are tried before drainage.
MOST_TRIED = 12

# Largest ratio of successive full steps due to the remaining inertia, unless a direction counts as
# free of stiffness: the inertia by the stiffness that counts as none.
SLOWED = 1e-2

# Largest relative acceleration at rest that counts as equilibrium, times the tolerance or the
# square root of the float type's precision.
RESIDUAL = 10.0


class March(eqx.Module):
    """State of the iteration.

    - `v`: velocities; `increment`: qₙ - qₙ₋₁, in the space of v; of a failed step if none followed.
    - `heading`: velocity in the last step of drainage, accepted or not, or the last increment of
      Newton's method.
    - `h`: length of the next step [s]; `rate`: Rayleigh quotient ω₁² of the motion [1/s²];
      `inertia`: m of Newton's method [1/s²].
    - `size`: correction of the last full step of Newton's method, the last one if several ended the
      search; infinite after other steps.
    - `turned`: rotation of each joint, or its travel, added up along the motion.
    - `draining`: whether the next step drains; `trying`: whether Newton's method is tried before
      drainage; `steps`: numbers of steps of either kind.
    """

    place: Place
    v: Float[Array, "nv"]
    increment: Float[Array, "nv"]
    heading: Float[Array, "nv"]
    h: Float[Array, ""]
    rate: Float[Array, ""]
    inertia: Float[Array, ""]
    size: Float[Array, ""]
    turned: Float[Array, "n_joint_velocities"]
    draining: Bool[Array, ""]
    trying: Bool[Array, ""]
    done: Bool[Array, ""]
    steps: Int[Array, "2"]


class Methods(eqx.Module):
    """Methods of the search for an equilibrium: drainage, then Newton's; None if not used."""

    drain: Drainage | None
    newton: StaticNewton | None

    @property
    def is_direct(self) -> bool:
        """Whether Newton's method alone leads from the first state to rest, without drainage."""
        return self.drain is None

    def as_arrays(self, dtype: Any) -> "Methods":
        """The same methods with arrays as numbers: a program is compiled for all numbers."""

        def array(x: Any) -> Array:
            return as_jax(np.asarray(x, np.int32 if isinstance(x, int) else dtype))

        plain = lambda x: isinstance(x, int | float)  # noqa: E731
        return jax.tree.map(lambda x: array(x) if plain(x) else x, self)

    def limit(self, dtype: Any) -> Float[Array, ""]:
        """Largest acceleration from rest, by that under the loads, that counts as equilibrium."""
        last = self.drain if self.newton is None else self.newton
        least = jnp.asarray(float(jnp.finfo(dtype).eps) ** 0.5, dtype)
        if last is None or last.tolerance is None:
            return RESIDUAL * least
        return RESIDUAL * jnp.maximum(least, last.tolerance)

    def begin(
        self,
        system: AbstractSystem,
        place: Place,
        scales: Scales,
        trying: Bool[Array, ""] | None = None,
    ) -> March:
        """The state before the first step.

        **Arguments:** `trying`: whether to try Newton's method before drainage. Default: no.
        """
        trying = jnp.array(False) if trying is None else trying
        zeros, joints = jnp.zeros_like(place.travelled), system.mechanism.joints
        count = sum(len(group) * group.joint.sizes()[1] for group in joints)
        rate = scales.rate
        if self.drain is not None and self.drain.omega is not None:
            rate = jnp.asarray(self.drain.omega, rate.dtype) ** 2
        return March(
            place,
            zeros,
            zeros,
            zeros,
            FIRST / jnp.sqrt(rate),
            rate,
            LEAST_INERTIA * scales.rate,
            jnp.full_like(rate, jnp.inf),
            jnp.zeros(count, rate.dtype),
            ~trying if self.drain is not None else jnp.array(False),
            trying,
            jnp.array(False),
            jnp.zeros(2, jnp.int32),
        )

    def march(
        self,
        system: AbstractSystem,
        t: Time,
        start: March,
        scales: Scales,
        blocks: Blocks,
        factorization: AbstractFactorization,
    ) -> March:
        """Step until rest, or until steps run out; no derivatives.

        First-order states follow displacements as in a slow motion: of each step, or with Newton's
        method alone in one implicit step from the first state. The end then does not depend on the
        iterations.
        """

        def step(now: March) -> March:
            return kernel(_step)(self, system, t, start.place, now, scales, blocks, factorization)

        # A bound method of traced numbers, such as ω, has no hash.
        return jax.lax.while_loop(lambda now: self._unfinished(now), step, start)

    def after_step(
        self, system: AbstractSystem, now: March, trial: Trial, at: Balance, scales: Scales
    ) -> March:
        """The state after a step of the present method, accepted or not."""
        if self.newton is None:
            return self._drained(system, now, trial, at, scales)
        if self.drain is None:
            return self._newton_step(system, now, trial, at, scales)
        drained = self._drained(system, now, trial, at, scales)
        iterated = self._newton_step(system, now, trial, at, scales)
        return jax.tree.map(lambda a, b: jnp.where(now.draining, a, b), drained, iterated)

    def _unfinished(self, now: March) -> Bool[Array, ""]:
        """True while steps are left. Drainage without steps left is followed by Newton's method."""
        left = now.draining
        if self.drain is not None and self.newton is None:
            left = now.steps[0] < self.drain.max_steps
        if self.newton is not None:
            left = left | (now.steps[1] < self.newton.max_steps)
        return ~now.done & left

    def damping(self, now: March) -> Float[Array, ""]:
        """ω of drainage [1/s]."""
        if self.drain is None or self.drain.omega is None:
            return jnp.sqrt(now.rate)
        return jnp.asarray(self.drain.omega, now.rate.dtype)

    def _drained(
        self, system: AbstractSystem, now: March, trial: Trial, at: Balance, scales: Scales
    ) -> March:
        """The motion after a step of drainage, or the same motion with a shorter step."""
        drain, h, delta = self.drain, now.h, trial.delta
        assert drain is not None
        eps = float(jnp.finfo(h.dtype).eps)
        tolerance = 20 * eps if drain.tolerance is None else drain.tolerance
        small = trial.size <= eps**0.5
        within = (trial.ratio <= DRAINED_RATIO) & (trial.moved <= drain.max_displacement)
        accepted = trial.finite & (small | within)
        c = at.start
        # The equations of the step give the residual force at its end.
        left = at.inertia * delta - at.push
        moved = displacement(system, c, delta, scales)
        size = displacement(system, c, left, scales) / scales.rate
        size = jnp.maximum(size, moved / h / jnp.sqrt(scales.rate))
        rests = jnp.maximum(jnp.maximum(size, moved), trial.states) <= tolerance
        mass, stiffness = (delta @ x for x in (inertial(at, delta), -inertial(at, left)))
        stiffness = stiffness - delta @ trial.force
        positive = (stiffness > 0) & (mass > 0)
        rate = jnp.where(positive, stiffness / jnp.where(positive, mass, 1.0), now.rate)
        rate = jnp.clip(rate, now.rate / CHANGE, CHANGE * now.rate)
        omega = self.damping(eqx.tree_at(lambda m: m.rate, now, rate))
        longest = LONGEST * jnp.maximum(1.0 / omega, omega / rate)
        steps = now.steps + jnp.array([1, 0], jnp.int32)
        over = rests | (steps[0] >= drain.max_steps)
        draining = ~over if self.newton is not None else now.draining
        turned = now.turned + jnp.concatenate([x.ravel() for x in c.joint_rates(delta)])
        longer = jnp.minimum(LONGER * h, longest)
        end = March(
            trial.place,
            delta / h,
            delta,
            delta / h,
            longer,
            rate,
            now.inertia,
            now.size,
            turned,
            draining,
            now.trying,
            rests,
            steps,
        )
        if self.newton is not None:
            end = eqx.tree_at(lambda m: m.done, end, jnp.array(False))
        shorter = eqx.tree_at(
            lambda m: (m.h, m.steps, m.draining, m.heading),
            now,
            (SHORTER * h, steps, draining, _finite(delta / h)),
        )
        return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), end, shorter)

    def _newton_step(
        self, system: AbstractSystem, now: March, trial: Trial, at: Balance, scales: Scales
    ) -> March:
        """The iteration after a step of Newton's method, or the same one with more inertia."""
        newton = self.newton
        assert newton is not None
        eps = float(jnp.finfo(now.h.dtype).eps)
        tolerance = 100 * eps if newton.tolerance is None else newton.tolerance
        small = trial.size <= eps**0.5
        within = (trial.ratio <= NEWTON_RATIO) & (trial.moved <= newton.max_displacement)
        accepted = trial.finite & (small | within)
        c = at.start
        least = LEAST_INERTIA * scales.rate
        full = now.inertia <= least
        # The remaining inertia slows stiff directions by `SLOWED` at most. Small corrections that
        # shrink less are rounding errors.
        shrunk = jnp.where(jnp.isfinite(now.size), trial.size / now.size, SLOWED)
        left = trial.size * jnp.maximum(trial.ratio, shrunk / jnp.maximum(1.0 - shrunk, 0.1))
        rounding = (trial.ratio > 0.3) | (shrunk > 0.3)
        done = trial.finite & small & full & ((left <= tolerance) | rounding)
        done = done | (trial.finite & accepted & full & (trial.last <= tolerance))
        last = jnp.where(done, jnp.fmin(trial.size, trial.last), trial.size)
        size = jnp.where(accepted & full, jnp.maximum(last, eps**2), jnp.inf)
        less = jnp.clip(trial.ratio, LESS, 0.5) * now.inertia
        less = jnp.where(less < NEGLIGIBLE * scales.rate, least, less)
        more = jnp.where(full, scales.rate, MORE * now.inertia)
        inertia = jnp.where(accepted, less, more)
        place = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), trial.place, now.place)
        steps = now.steps + jnp.array([0, 1], jnp.int32)
        # A trial ends if a step goes uphill, as towards an unstable equilibrium.
        uphill = trial.delta @ trial.force > eps * trial.delta @ inertial(at, trial.delta)
        uphill = uphill & accepted & ~small
        trying = now.trying & ~uphill & (done | (steps[1] < MOST_TRIED))
        turned = jnp.concatenate([x.ravel() for x in c.joint_rates(trial.delta)])
        turned = now.turned + jnp.where(accepted, turned, 0.0)
        new = (place, trial.delta, _finite(trial.delta), inertia, size, turned, trying, done, steps)
        return eqx.tree_at(
            lambda m: (
                *(m.place, m.increment, m.heading, m.inertia, m.size),
                *(m.turned, m.trying, m.done, m.steps),
            ),
            now,
            new,
        )


def _step(
    methods: Methods,
    system: AbstractSystem,
    t: Time,
    start: Place,
    now: March,
    scales: Scales,
    blocks: Blocks,
    factorization: AbstractFactorization,
) -> March:
    """The state after one step of a march that began at `start`."""
    state_rate, first = jnp.sqrt(LEAST_INERTIA * scales.rate), None
    if methods.is_direct:
        state_rate, first = SLOW * jnp.sqrt(scales.rate), start.z
    omega, zeros = methods.damping(now), jnp.zeros_like(now.v)
    drained = 1.0 / now.h**2 + 2.0 * omega / now.h
    inertia = jnp.where(now.draining, drained, now.inertia)
    # The increment of a step longer than 1/ω counts as that of a step of this length: the term of
    # the step before would otherwise make the motion unstable.
    part = omega**2 / jnp.maximum(1.0, now.h * omega)
    push = jnp.where(now.draining, now.v / now.h - part * now.increment, zeros)
    at = at_place(system, t, now.place, scales, inertia, state_rate, push, first)
    full = None
    # The rate of first-order states in a step is part of their equations.
    if methods.newton is not None and system.nz == 0:
        full = ~now.draining & (now.inertia <= LEAST_INERTIA * scales.rate)
    # Newton's method knows the direction of its next step at most.
    ahead = jnp.where(now.draining, now.h, ASIDE) * now.heading
    trial = attempt(at, now.place, ahead, scales, blocks, factorization, full)
    end = methods.after_step(system, now, trial, at, scales)
    if methods.drain is None or methods.newton is None:
        return end
    # Drainage begins where a trial of Newton's method began.
    again = eqx.tree_at(lambda m: m.steps, methods.begin(system, start, scales), end.steps)
    failed = ~now.draining & now.trying & ~end.trying
    return jax.tree.map(lambda a, b: jnp.where(failed, a, b), again, end)


def _finite(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.where(jnp.all(jnp.isfinite(x)), x, 0.0)
