"""Kinds of unknowns of one implicit step."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..system.pattern import Pattern


class Blocks(eqx.Module):
    """Unknowns by kind: each kind converges relative to its own size.

    - `counts`: how many unknowns of each kind, one kind after the other.
    - `typical`: a size [unit of the kind] below which changes do not matter relatively.
    - `dependent`: whether all kinds but the first are multipliers of constraints that may depend
      on one another. They are then not unique, and only the first kind is looked at.
    - `pattern`: which equations depend on which unknowns, where that is known. The first kind then
      has one or more unknowns for each velocity, all velocities after one another, and the second
      kind as many for each constraint; equations come in the same order.
    """

    counts: tuple[int, ...] = eqx.field(static=True)
    typical: tuple[Float[Array, ""], ...]
    dependent: bool = eqx.field(static=True, default=False)
    pattern: Pattern | None = eqx.field(static=True, default=None)

    @property
    def first(self) -> int | None:
        """Where unknowns begin that may depend on one another, if there are any."""
        return self.counts[0] if self.dependent and sum(self.counts[1:]) > 0 else None

    @property
    def structured(self) -> bool:
        """Whether it is known which equations depend on which unknowns."""
        return self.pattern is not None and sum(self.counts[2:]) == 0

    def size(self, change: Float[Array, "n"], x: Float[Array, "n"]) -> Float[Array, ""]:
        """Largest change of any unknown, relative to the largest of its kind."""
        found, start = jnp.zeros((), dtype=x.dtype), 0
        kinds = list(zip(self.counts, self.typical, strict=True))
        for count, typical in kinds[: 1 if self.dependent else None]:
            if count > 0:
                own = slice(start, start + count)
                reference = jnp.maximum(jnp.max(jnp.abs(x[own])), typical)
                largest = jnp.max(jnp.abs(change[own]))
                tiny = jnp.finfo(x.dtype).tiny
                # A max of its own, so that NaN gets through.
                found = jnp.where(largest <= found * reference, found, largest / (reference + tiny))
            start += count
        return found


__all__ = ["Blocks"]
