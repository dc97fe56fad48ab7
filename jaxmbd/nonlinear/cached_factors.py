"""Factors that the chord method caches from step to step, with their rate of convergence."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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


__all__ = ["UNUSUAL", "CachedFactors"]
