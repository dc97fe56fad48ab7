"""Newton's method for one implicit step, and its derivative by the implicit function theorem."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..model.values import as_instance
from ..programs.tracing import kernel, stop_gradients
from .blocks import Blocks
from .factorization import AbstractLinearization, Residual
from .implicit_function import implicit, saved_residuals
from .structured import Automatic

# Factors that the chord method caches from step to step, with their rate of convergence -----------

# Number of steps between checks whether new factors pay: they cost about 15 iterations.
RENEWAL = 20
# Largest age: steps whose first change is small give no sign of factors that are too old.
OLDEST = 100
# Bounds of predicted rates: the smallest rate assumed, and the largest ratio of a first change to
# the previous first change. A body that hits a stop next has had rates near zero before.
LEAST_RATE, UNUSUAL = 1e-3, 10.0
# Ratio of levels of rounding of successive steps in which no change shows the level.
FORGOTTEN = 0.95


class CachedFactors(eqx.Module):
    """Factors of a Jacobian for reuse in the next step, with a record of their convergence.

    - `usable`: whether factors exist and are worth reuse.
    - `rate`: expected ratio of successive changes with these factors; one if unknown.
    - `first`: size of the first change of the last step.
    - `age`: number of steps since the step of their factorization.
    - `fewest`: smallest number of iterations of a step with these factors.
    - `rounding`: size of changes that are rounding errors, in the last step with such changes; zero
      if unknown. `before`: the same in the step with such changes before.
    """

    factors: Any
    usable: Bool[Array, ""]
    rate: Float[Array, ""]
    first: Float[Array, ""]
    age: Int[Array, ""]
    fewest: Int[Array, ""]
    rounding: Float[Array, ""]
    before: Float[Array, ""]

    @property
    def reachable(self) -> Float[Array, ""]:
        """Size below which changes are rounding errors, zero if unknown.

        The smaller of two sizes: changes that stop shrinking in one step only, as at an impact, do
        not count.
        """
        return jnp.minimum(self.rounding, self.before)

    @classmethod
    def nothing(cls, factors: Any, dtype: Any) -> "CachedFactors":
        """An empty cache; `factors` have the shapes of the arrays."""
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), factors)
        zero, none = jnp.zeros((), jnp.int32), jnp.zeros((), dtype)
        return cls(zeros, jnp.array(False), jnp.ones((), dtype), none, zero, zero, none, none)

    def with_factors(self, factors: Any) -> "CachedFactors":
        """The same record with other factors, or with None."""
        return eqx.tree_at(lambda cache: cache.factors, self, factors, is_leaf=lambda x: x is None)

    def of_other_equations(self, other: Bool[Array, ""]) -> "CachedFactors":
        """The cache with unknown rate and rounding if `other`: if the next equations differ."""
        known = self.rate, self.rounding, self.before
        unknown = [jnp.where(other, x, y) for x, y in zip((1.0, 0.0, 0.0), known, strict=True)]
        return eqx.tree_at(lambda cache: (cache.rate, cache.rounding, cache.before), self, unknown)

    def after(
        self,
        factors: Any,
        converged: Bool[Array, ""],
        rate: Float[Array, ""],
        first: Float[Array, ""],
        n_steps: Int[Array, ""],
        phase: Int[Array, ""],
        noise: Float[Array, ""],
    ) -> "CachedFactors":
        """The cache after a step with `n_steps` iterations with the last factors, those of `phase`.

        The rate is about proportional to the distance from the point of factorization, which grows
        no faster than the square of the age. The rate of the step of factorization, whose Jacobian
        is almost exact, predicts nothing.

        **Arguments:** `noise`: size of changes that no longer shrank; zero if there were none.
        """
        old = phase == 0
        age = jnp.where(old, self.age + 1, 0)
        expected = jnp.maximum(rate, LEAST_RATE)
        expected = expected * ((age + 1) / jnp.maximum(age, 1)).astype(rate.dtype) ** 2
        expected = jnp.where(old, jnp.minimum(expected, 1.0), 1.0)
        fewest = jnp.where(old, jnp.minimum(self.fewest, n_steps), n_steps)
        pays = old & (age % RENEWAL == 0) & (n_steps > fewest)
        usable = converged & ~pays & (age < OLDEST)
        seen = noise > 0
        rounding = jnp.where(seen, noise, FORGOTTEN * self.rounding)
        before = jnp.where(seen, self.rounding, FORGOTTEN * self.before)
        rounding, before = (jnp.where(converged, x, 0.0) for x in (rounding, before))
        return CachedFactors(factors, usable, expected, first, age, fewest, rounding, before)


class Root(eqx.Module):
    """Result of Newton's method: unknowns, whether they converged, and the number of iterations.

    - `cache`: cached factors of the chord method for the next step, None if no cache is passed or
      used.
    """

    x: Float[Array, "n"]
    converged: Bool[Array, ""]
    steps: Int[Array, ""]
    cache: CachedFactors | None = None


class Newton(eqx.Module):
    """Modified Newton's method, which reuses factors of the Jacobian, or full Newton's method.

    An unknown has converged if the estimated remaining error, relative to its kind, is below the
    tolerance, or if small changes no longer shrink, which is the limit of rounding. If two earlier
    steps came to this limit, an estimated error below the limit suffices, unless the tolerance is
    zero.

    The modified method, also called chord method, reuses the factors of earlier steps and their
    rate of convergence, so that one change may suffice (Hairer and Wanner 1996, IV.8). It factors
    the Jacobian at the predictor if changes do not shrink fast enough to converge within
    `max_steps`, after 100 steps, and earlier if steps take more iterations than at first. If that
    fails too, it falls back on full Newton's method, which factors the Jacobian in each iteration,
    at last with damped changes.
    Members of a batch under `vmap` renew the factors of earlier steps together. Steps of index 2
    with possibly redundant constraints are solved by full Newton's method.
    Derivatives follow from the Jacobian at the root in both methods.

    **Arguments:**

    - `tolerance`: relative tolerance. Default: 20 times the float type's precision; in steps of
      `GeneralizedAlpha` more, up to 1e-12, if this is negligible compared with the local error.
    - `max_steps`: largest number of iterations, also of each phase of the modified method.
      Default: 12.
    - `chord`: whether to reuse factors as long as they converge; False for full Newton's method.
      Default: True.
    - `linearization`: the solver of the linear systems. Default: `Automatic()`.
    """

    tolerance: float | None = None
    max_steps: int = 12
    chord: bool = True
    linearization: AbstractLinearization = Automatic()

    def __call__(
        self,
        fn: Callable[[Float[Array, "n"], Any], Float[Array, "n"]],
        guess: Float[Array, "n"],
        args: Any,
        blocks: Blocks,
        cache: CachedFactors | None = None,
    ) -> Root:
        """Solve fn(x, args) = 0 for x, from an initial guess.

        `fn` may depend on differentiated values through its arguments only. The derivative of x by
        `args` is that of the implicit function; the derivative by the guess is zero.
        """
        if guess.size == 0:
            return Root(guess, jnp.array(True), jnp.zeros((), jnp.int32), cache)
        guess, at, blocks, cache = stop_gradients((guess, args, blocks, cache))
        root, factors = _find(fn, guess, at, blocks, cache, self)
        # Factors of the chord method may be too far from the Jacobian at the root.
        x, factors = saved_residuals((root.x, None if self.reuses(blocks) else factors))
        factorization = self.linearization.select(blocks)
        x = implicit(fn, x, args, factors, blocks, factorization)
        return Root(x, *saved_residuals((root.converged, root.steps, root.cache)))

    def reuses(self, blocks: Blocks) -> bool:
        """True for the modified method, False for full Newton's method.

        Position shifts have multipliers of their own, on which constraint residuals depend. If
        constraints are possibly redundant, factors of another position would amplify residuals in
        the directions that were redundant there, by up to the inverse of the compliance in each
        iteration, and no increment would show it: poses of a gear were wrong by up to 0.9.
        """
        shifts = sum(blocks.counts[2:]) > blocks.others
        return self.chord and not (shifts and any(blocks.redundant))

    def empty_cache(self, blocks: Blocks, dtype: Any) -> CachedFactors | None:
        """Empty cache of the chord method before the first step; None if it is not used."""
        if not self.reuses(blocks) or sum(blocks.counts) == 0:
            return None
        factorization = self.linearization.select(blocks)
        return CachedFactors.nothing(factorization.no_factors(blocks, dtype), dtype)


class _Iterate(eqx.Module):
    """An iterate and the record of its changes.

    - `size`: size of the last change; `rate`: its ratio to the previous one; `best`: smallest rate.
    - `first`: size of the first change. Before the first change, `rate` is the expected rate of
      changes up to `first`.
    - `noise`: size of changes that are rounding errors; zero if the last change was none.
    - `moved`: the last change as far as it was made, its `part`; `trial` if the part may be halved.
    """

    x: Float[Array, "n"]
    size: Float[Array, ""]
    rate: Float[Array, ""]
    best: Float[Array, ""]
    first: Float[Array, ""]
    done: Bool[Array, ""]
    steps: Int[Array, ""]
    noise: Float[Array, ""]
    moved: Float[Array, "n"]
    part: Float[Array, ""]
    trial: Bool[Array, ""]


# Largest relative error of the unknowns that is negligible: constraints hold to this part of the
# increments of a step.
COARSEST = 1e-12
# Phases of the chord method that are full Newton's method, without and with damping.
NEWTON, DAMPED = 2, 3
# Smallest part of a change, and how many times as many iterations damping may take.
LEAST_PART, MORE = 1e-4, 8


class _Search:
    """Iterations towards the root of one step.

    Errors up to `goal` count as converged: the tolerance, or the rounding errors of earlier steps.
    """

    def __init__(self, fn, guess, args, blocks, cache: CachedFactors | None, newton: Newton):
        self.blocks, self.most = blocks, newton.max_steps
        self.factorization = newton.linearization.select(blocks)
        self.residual = Residual(fn, guess, args)
        eps = self.eps = float(jnp.finfo(guess.dtype).eps)
        self.tolerance = 20 * eps if newton.tolerance is None else newton.tolerance
        self.stalled = tuple(max(self.tolerance, eps**power) for power in (0.6, 0.5, 0.4))
        self.goal = jnp.asarray(self.tolerance, guess.dtype)
        # A tolerance of zero requires changes that are rounding errors in each step.
        if cache is not None and self.tolerance > 0:
            known = jnp.minimum(cache.reachable, self.stalled[1])
            self.goal = jnp.maximum(self.goal, known)
        if newton.tolerance is None and blocks.negligible is not None:
            self.goal = jnp.maximum(self.goal, jnp.minimum(blocks.negligible, COARSEST))
        self.expected = jnp.ones_like(self.goal) if cache is None else cache.rate
        self.open = max(self.tolerance, eps**0.5)
        infinite = jnp.array(jnp.inf, guess.dtype)
        one, zero = jnp.ones((), guess.dtype), jnp.zeros((), jnp.int32)
        self.start = _Iterate(
            *(guess, infinite, one, infinite, infinite, jnp.array(False), zero, 0 * one),
            *(jnp.zeros_like(guess), one, jnp.array(False)),
        )

    def factor(self, x: Array) -> tuple[Array, Any]:
        return self.factorization.factor(self.residual, x, self.blocks)

    def factors_at(self, x: Array) -> Any:
        return self.factorization.factors(
            self.factorization.jacobian(self.residual, x, self.blocks)[1], self.blocks
        )

    def no_factors(self) -> Any:
        return self.factorization.no_factors(self.blocks, self.start.x.dtype)

    def shows_rounding(self, phase: Any, best: Array) -> Array:
        """True if changes that shrink slowly can be rounding errors.

        With factors of other equations, as those of a step of another length, and with those of a
        predictor far from the root, errors may shrink as slowly.
        """
        old = (self.expected < 0.1) | (best < 0.01)
        return jnp.where(phase == 0, old, (phase >= NEWTON) | (best < 0.1))

    def advance(self, now: _Iterate, value: Array, factors: Any, phase: Any) -> _Iterate:
        change = self.factorization.solve(factors, -value)
        x = now.x + change
        size = self.blocks.size(change, x)
        begins = ~jnp.isfinite(now.size)
        expected = jnp.where(size <= now.first, now.rate, 1.0)
        rate = jnp.where(begins, expected, size / now.size)
        # Remaining error after a change with this rate: linear for the chord, else quadratic.
        left = size * rate * jnp.where(phase >= NEWTON, rate, 1.0) / jnp.maximum(1.0 - rate, 0.1)
        small = jnp.where(begins, jnp.minimum(size, left), left) <= self.goal
        best = jnp.where(begins, now.best, jnp.minimum(rate, now.best))
        # Changes that shrank fast and no longer shrink are rounding errors, even if large: 1e-7 of
        # 1000 in chains of hundreds of bodies, whose far ends load every joint. Rates of a
        # singular root are about 0.5 throughout.
        rounding = jnp.where(best < 0.1, self.stalled[1], self.stalled[0])
        ended = (best < 0.3) & (rate > 0.7) & (size <= self.stalled[2])
        slow = jnp.where((phase == 0) & (self.expected >= 0.1), 0.7, 0.3)
        stuck = ~begins & ((rate > slow) & (size <= rounding) | ended)
        stuck = stuck & self.shows_rounding(phase, best)
        first = jnp.where(begins, size, now.first)
        # With compliance of redundant constraints, convergence requires small constraint residuals.
        closed = factors.missed(change) <= self.open * self.blocks.reference(x)
        done = (small | stuck) & closed
        noise = jnp.where(stuck & ~small, jnp.minimum(size, now.size), 0.0)
        whole = change, now.part, jnp.array(False)
        end = _Iterate(x, size, rate, best, first, done, now.steps + 1, noise, *whole)
        return self.damped(now, end, phase)

    def damped(self, now: _Iterate, end: _Iterate, phase: Any) -> _Iterate:
        """The iterate after a part of the change; if `now` is a trial, whether that part is kept.

        Newton's method jumps from one side of a kink, as of dry friction, to the other and back. A
        part of a change is kept if the next change by the same factors is smaller, otherwise
        halved (the restricted natural monotonicity test of Deuflhard 2004, algorithm NLEQ-ERR).
        """
        large = (phase == DAMPED) & (end.size > self.stalled[1]) & ~end.done
        fewer = end.size <= (1.0 - 0.25 * now.part) * now.size
        kept = fewer | (now.part <= LEAST_PART)
        part = jnp.where(large, jnp.minimum(4.0 * now.part, 1.0), 1.0)
        onwards = eqx.tree_at(
            lambda end: (end.x, end.moved, end.part, end.trial),
            end,
            (now.x + part * end.moved, part * end.moved, part, large),
        )
        less = jnp.where(kept, 0.0, 0.5) * now.moved
        half = jnp.where(kept, 1.0, 0.5) * now.part
        tested = eqx.tree_at(
            lambda now: (now.x, now.steps, now.moved, now.part, now.trial),
            now,
            (now.x - less, end.steps, now.moved - less, half, ~kept),
        )
        return jax.tree.map(lambda a, b: jnp.where(now.trial, a, b), tested, onwards)

    def converged(self, now: _Iterate) -> Bool[Array, ""]:
        return now.done & jnp.isfinite(now.size)

    def hopeless(self, now: _Iterate, phase: Any) -> Bool[Array, ""]:
        """True if changes grow, or shrink too slowly to converge within the iterations left."""
        left = (self.most - now.steps).astype(now.size.dtype)
        slow = now.size * now.rate**left > jnp.maximum(self.goal, self.eps)
        large = (now.size > self.stalled[1]) | ~self.shows_rounding(phase, now.best)
        return jnp.isfinite(now.best) & ((now.rate >= 1.0) | slow) & large

    def unfinished(self, now: _Iterate, phase: Any) -> Bool[Array, ""]:
        most = jnp.where(phase == DAMPED, MORE * self.most, self.most)
        return ~now.done & (now.steps < most) & ~jnp.isnan(now.size)


def _newton(search: _Search) -> tuple[_Iterate, Any]:
    """Full Newton's method: the last iterate, with all steps, and the factors of its last change.

    If it fails, it starts again with damped changes.
    """

    def body(carry: tuple[_Iterate, Any, Array, Array]) -> tuple[_Iterate, Any, Array, Array]:
        now, old, phase, steps = carry
        value, new = search.factor(now.x)
        factors = jax.tree.map(lambda a, b: jnp.where(now.trial, a, b), old, new)
        end = search.advance(now, value, factors, phase)
        failed = (phase == NEWTON) & ~end.done & ~search.unfinished(end, phase)
        end = jax.tree.map(lambda a, b: jnp.where(failed, a, b), search.start, end)
        return end, factors, phase + failed.astype(phase.dtype), steps + 1

    zero = search.start.steps
    start = search.start, search.no_factors(), zero + NEWTON, zero
    end, factors, _, steps = jax.lax.while_loop(
        lambda carry: search.unfinished(carry[0], carry[2]), body, start
    )
    return eqx.tree_at(lambda now: now.steps, end, steps), factors


class _Chord(eqx.Module):
    """State of the chord method.

    - `phase`: 0 with factors of an earlier step, 1 of the predictor, `NEWTON` and
      `DAMPED` of each iterate.
    - `record`: the cache after the iterations, without factors.
    """

    now: _Iterate
    phase: Int[Array, ""]
    steps: Int[Array, ""]
    record: CachedFactors


def _with_factors(
    fn: Callable[..., Array],
    guess: Float[Array, "n"],
    args: Any,
    blocks: Blocks,
    newton: Newton,
    cache: CachedFactors,
    factors: Any,
    chord: _Chord,
    ready: Bool[Array, ""],
) -> _Chord:
    """Iterate with the same factors.

    **Arguments:** `cache`: that of earlier steps, without factors; `ready`: whether `factors` are
    those of the phase.
    """
    search = _Search(fn, guess, args, blocks, cache, newton)
    phase, begun = chord.phase, chord.now.steps
    rate, largest = (
        jnp.where((phase == 0) & ready, a, b)
        for a, b in ((cache.rate, chord.now.rate), (UNUSUAL * cache.first, chord.now.first))
    )
    first = eqx.tree_at(lambda now: (now.rate, now.first), chord.now, (rate, largest))

    def going(now: _Iterate) -> Bool[Array, ""]:
        fresh = now.trial | (now.steps == begun)
        same = jnp.where(phase < NEWTON, ~search.hopeless(now, phase), fresh)
        return ready & search.unfinished(now, phase) & same

    def step(now: _Iterate) -> _Iterate:
        return search.advance(now, search.residual(now.x), factors, phase)

    active = ready & search.unfinished(first, phase)
    end = jax.lax.while_loop(going, step, first)
    ends = (phase == NEWTON) & ~search.unfinished(end, phase)
    starts_over = active & ~end.done & ((phase < NEWTON) | ends)
    now = jax.tree.map(lambda a, b: jnp.where(starts_over, a, b), search.start, end)
    steps = chord.steps + end.steps - begun
    progress = search.converged(end), end.rate, end.first, end.steps, phase, end.noise
    after = cache.after(None, *progress)
    record = jax.tree.map(lambda a, b: jnp.where(active, a, b), after, chord.record)
    return _Chord(now, phase + starts_over.astype(phase.dtype), steps, record)


def _chord(
    search: _Search, problem: tuple[Any, ...], cache: CachedFactors | None
) -> tuple[_Iterate, CachedFactors]:
    """The chord method: the last iterate, with the steps of all phases, and the new cache.

    **Arguments:** `problem`: arguments of `_with_factors` that define the equations.
    """
    if cache is None:
        cache = CachedFactors.nothing(search.no_factors(), search.start.x.dtype)
    factors, record = cache.factors, cache.with_factors(None)
    is_code = search.residual.is_code and search.factorization.inlined
    iterate = partial(kernel(_with_factors) if is_code else _with_factors, *problem, record)

    def body(carry: tuple[_Chord, Any]) -> tuple[_Chord, Any]:
        chord, factors = carry
        active = search.unfinished(chord.now, chord.phase)
        factors = _renewed(search, chord.now.x, factors, active & (chord.phase > 0))
        return iterate(factors, chord, jnp.array(True)), factors

    # A batch factors all its Jacobians if one member needs new factors. If all members renew their
    # factors at that time, fewer steps factor. A member without a finite guess has no root.
    usable = eqxi.unvmap_all(cache.usable | ~jnp.all(jnp.isfinite(search.start.x)))
    zero = search.start.steps
    chord = _Chord(search.start, jnp.where(usable, zero, zero + 1), zero, record)
    if is_code:  # One operation in steps that converge with factors of earlier steps.
        chord = iterate(factors, chord, usable)
    chord, factors = jax.lax.while_loop(
        lambda carry: eqxi.unvmap_any(search.unfinished(carry[0].now, carry[0].phase)),
        body,
        (chord, factors),
    )
    end = eqx.tree_at(lambda now: now.steps, chord.now, chord.steps)
    return end, chord.record.with_factors(factors)


def _renewed(search: _Search, x: Array, old: Any, stale: Bool[Array, ""]) -> Any:
    """Factors at x instead of stale factors, computed if any member of a batch has stale factors.

    The condition is a loop of at most one pass, as XLA copies the unchanged results of a branch of
    `cond`. The conditions of the loops are those of the whole batch: with a condition for each
    member, `vmap` would select between old and new factors after each pass, which takes as long as
    solving.
    """

    def renewed(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        new = search.factors_at(x)
        factors = jax.tree.map(lambda a, b: jnp.where(stale, a, b), new, carry[1])
        return jnp.array(False), factors

    start = (eqxi.unvmap_any(stale), old)
    return jax.lax.while_loop(lambda carry: carry[0], renewed, start)[1]


def _find(fn, guess, args, blocks, cache, newton: Newton) -> tuple[Root, Any]:
    """The root, and factors of a Jacobian near the root."""
    search = _Search(fn, guess, args, blocks, cache, newton)
    if not newton.reuses(blocks):
        end, factors = _newton(search)
        return Root(end.x, search.converged(end), end.steps), factors
    end, left = _chord(search, (fn, guess, args, blocks, newton), cache)
    new_cache = left if cache is not None else None
    return Root(end.x, search.converged(end), end.steps, new_cache), left.factors


def as_newton(newton: Any, caller: str, default: Newton | None = None) -> Newton:
    """The `Newton` of an integrator `caller`; for None the default, which is `Newton()` by default.

    **Raises** `ModelError` for anything else.
    """
    if newton is None:
        return Newton() if default is None else default
    return as_instance(newton, Newton, f"{caller}: newton", "a Newton")
