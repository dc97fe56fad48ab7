"""Kinds of unknowns of one implicit step."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..system.sparsity import SparsityPattern


class Blocks(eqx.Module):
    """Unknowns by kind: each kind converges relative to its own size.

    - `counts`: number of unknowns of each kind, in their order.
    - `typical`: size [unit of the kind] below which relative changes are negligible; of the first
      kind relative to `large`.
    - `large`: size that makes each unknown of the first kind dimensionless, one for each velocity:
      lengths and angles are then alike in any unit. Default: 1.
    - `residuals`: size of each constraint residual, relative to which derivatives by `large`
      unknowns may be rounding errors alone. Default: none of them is, and the size of a residual is
      its largest derivative.
    - `redundant`: for each constraint whether it is possibly redundant. All kinds but the first are
      then multipliers, constraint by constraint, once or several times, and `others` at their end.
      If any constraint is possibly redundant, multipliers are not unique, and convergence is that
      of the first kind alone.
    - `others`: number of unknowns at the end that are not multipliers. Default: 0.
    - `negligible`: relative error of the unknowns that is negligible compared with other errors of
      the step. Default: none.
    - `pattern`: sparsity pattern of the Jacobian, None if unknown. The first kind then has one or
      more unknowns for each velocity, all velocities in turn, and the second kind as many for each
      constraint; equations have the same order.
    """

    counts: tuple[int, ...] = eqx.field(static=True)
    typical: tuple[Float[Array, ""], ...]
    redundant: tuple[bool, ...] = eqx.field(static=True, default=())
    pattern: SparsityPattern | None = eqx.field(static=True, default=None)
    others: int = eqx.field(static=True, default=0)
    large: Float[Array, "nv"] | None = None
    residuals: Float[Array, "ng"] | None = None
    negligible: Float[Array, ""] | None = None

    @property
    def scale(self) -> Float[Array, "n"]:
        """`large` of each unknown of the first kind."""
        if self.large is None:
            return jnp.ones(self.counts[0], self.typical[0].dtype)
        return jnp.tile(self.large, self.counts[0] // self.large.size)

    @property
    def compliant(self) -> Bool[np.ndarray, "n"] | None:
        """For each equation whether it is a possibly redundant constraint; None if none is."""
        if not any(self.redundant):
            return None
        times = (sum(self.counts[1:]) - self.others) // len(self.redundant)
        multipliers = np.tile(np.asarray(self.redundant, dtype=bool), times)
        zeros = [np.zeros(n, dtype=bool) for n in (self.counts[0], self.others)]
        return np.concatenate([zeros[0], multipliers, zeros[1]])

    @property
    def same_velocity(self) -> Int[np.ndarray, "n s"]:
        """For each unknown of the first kind, the unknowns of the same velocity at all s nodes.

        Steps with several nodes have an increment of each velocity at each node.
        """
        n_nodes = self.counts[1] // len(self.redundant) if self.redundant else 1
        of_nodes = np.arange(self.counts[0], dtype=np.int32).reshape(n_nodes, -1)
        return np.tile(of_nodes.T, (n_nodes, 1))

    @property
    def multipliers(self) -> slice:
        """Multipliers among the unknowns."""
        return slice(self.counts[0], sum(self.counts) - self.others)

    @property
    def structured(self) -> bool:
        """True if the sparsity pattern of the Jacobian is known."""
        return self.pattern is not None and sum(self.counts[2:]) == 0

    def reference(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        """The largest unknown of the first kind by `large`, or the typical size if larger."""
        first = jnp.abs(x[: self.counts[0]]) / self.scale
        return jnp.maximum(jnp.max(first, initial=0.0), self.typical[0])

    def size(self, change: Float[Array, "n"], x: Float[Array, "n"]) -> Float[Array, ""]:
        """Largest change of any unknown, relative to the largest unknown of its kind."""
        ratio, start = jnp.zeros((), dtype=x.dtype), 0
        rest = x.size - self.counts[0]
        if self.large is not None:
            scale = jnp.concatenate([self.scale, jnp.ones(rest, x.dtype)])
            change, x = change / scale, x / scale
        kinds = list(zip(self.counts, self.typical, strict=True))
        for count, typical in kinds[: 1 if any(self.redundant) else None]:
            if count > 0:
                own = slice(start, start + count)
                reference = jnp.maximum(jnp.max(jnp.abs(x[own])), typical)
                largest = jnp.max(jnp.abs(change[own]))
                tiny = jnp.finfo(x.dtype).tiny
                # Unlike `jnp.maximum` of ratios, this form propagates NaN.
                ratio = jnp.where(largest <= ratio * reference, ratio, largest / (reference + tiny))
            start += count
        return ratio


def has_effect(size: Float[Array, "m"], residuals: Float[Array, "m"]) -> Bool[Array, "m"]:
    """True for constraint residuals whose derivatives exceed rounding errors.

    **Arguments:** `size`: the largest change of each residual by a large change of one unknown;
    `residuals`: sizes of the residuals.
    """
    return size > float(jnp.finfo(size.dtype).eps) ** 0.45 * residuals
