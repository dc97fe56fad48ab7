"""Factors that the chord method hands on from step to step, and what is known of them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

# Steps after which it is asked whether new factors pay: they cost about as much as 15 iterations.
RENEWAL = 20
# Rates are not relied on further than that, nor where a change is so much larger than the last one:
# what hits a stop next had rates near zero before.
LEAST_RATE, UNUSUAL = 1e-3, 10.0


class CachedFactors(eqx.Module):
    """Factors of a Jacobian that may do for the next step too, and how well they have done so far.

    - `usable`: whether there are any with which it is worth going on.
    - `rate`: by which changes are expected to shrink with them; one where that is not known.
    - `first`: size of the first change of the last step.
    - `age`: steps since the one for which they were made.
    - `fewest`: iterations of a step with them.
    """

    factors: Any
    usable: Bool[Array, ""]
    rate: Float[Array, ""]
    first: Float[Array, ""]
    age: Int[Array, ""]
    fewest: Int[Array, ""]

    @classmethod
    def nothing(cls, factors: Any, dtype: Any) -> "CachedFactors":
        """Before there are any; `factors` have their shapes."""
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), factors)
        none = jnp.zeros((), jnp.int32)
        return cls(zeros, jnp.array(False), jnp.ones((), dtype), jnp.zeros((), dtype), none, none)

    def of_other_equations(self, other: Bool[Array, ""]) -> "CachedFactors":
        """No rate is known where the next equations are unlike those before."""
        return eqx.tree_at(lambda kept: kept.rate, self, jnp.where(other, 1.0, self.rate))

    def after(
        self,
        factors: Any,
        converged: Bool[Array, ""],
        rate: Float[Array, ""],
        first: Float[Array, ""],
        n_steps: Int[Array, ""],
        phase: Int[Array, ""],
    ) -> "CachedFactors":
        """What a step leaves behind that took `n_steps` with the last factors of its own `phase`.

        The rate is about the way from where factors were made, which grows no faster than the
        square of their age. That of the step in which they were made, whose Jacobian was almost
        the right one, says nothing.
        """
        old = phase == 0
        age = jnp.where(old, self.age + 1, 0)
        seen = jnp.maximum(rate, LEAST_RATE)
        expected = seen * ((age + 1) / jnp.maximum(age, 1)).astype(rate.dtype) ** 2
        expected = jnp.where(old, jnp.minimum(expected, 1.0), 1.0)
        fewest = jnp.where(old, jnp.minimum(self.fewest, n_steps), n_steps)
        pays = old & (age % RENEWAL == 0) & (n_steps > fewest)
        return CachedFactors(factors, converged & ~pays, expected, first, age, fewest)


__all__ = ["UNUSUAL", "CachedFactors"]
