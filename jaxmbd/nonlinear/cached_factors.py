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


class CachedFactors(eqx.Module):
    """Factors of a Jacobian for reuse in the next step, with a record of their convergence.

    - `usable`: whether factors exist and are worth reuse.
    - `rate`: expected ratio of successive changes with these factors; one if unknown.
    - `first`: size of the first change of the last step.
    - `age`: number of steps since the step of their factorization.
    - `fewest`: smallest number of iterations of a step with these factors.
    """

    factors: Any
    usable: Bool[Array, ""]
    rate: Float[Array, ""]
    first: Float[Array, ""]
    age: Int[Array, ""]
    fewest: Int[Array, ""]

    @classmethod
    def nothing(cls, factors: Any, dtype: Any) -> "CachedFactors":
        """An empty cache; `factors` have the shapes of the arrays."""
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), factors)
        zero = jnp.zeros((), jnp.int32)
        return cls(zeros, jnp.array(False), jnp.ones((), dtype), jnp.zeros((), dtype), zero, zero)

    def of_other_equations(self, other: Bool[Array, ""]) -> "CachedFactors":
        """The cache with an unknown rate if `other`, i.e. if the next equations differ."""
        return eqx.tree_at(lambda cache: cache.rate, self, jnp.where(other, 1.0, self.rate))

    def after(
        self,
        factors: Any,
        converged: Bool[Array, ""],
        rate: Float[Array, ""],
        first: Float[Array, ""],
        n_steps: Int[Array, ""],
        phase: Int[Array, ""],
    ) -> "CachedFactors":
        """The cache after a step with `n_steps` iterations with the last factors, those of `phase`.

        The rate is about proportional to the distance from the point of factorization, which grows
        no faster than the square of the age. The rate of the step of factorization, whose Jacobian
        is almost exact, predicts nothing.
        """
        old = phase == 0
        age = jnp.where(old, self.age + 1, 0)
        seen = jnp.maximum(rate, LEAST_RATE)
        expected = seen * ((age + 1) / jnp.maximum(age, 1)).astype(rate.dtype) ** 2
        expected = jnp.where(old, jnp.minimum(expected, 1.0), 1.0)
        fewest = jnp.where(old, jnp.minimum(self.fewest, n_steps), n_steps)
        pays = old & (age % RENEWAL == 0) & (n_steps > fewest)
        usable = converged & ~pays & (age < OLDEST)
        return CachedFactors(factors, usable, expected, first, age, fewest)


__all__ = ["UNUSUAL", "CachedFactors"]
