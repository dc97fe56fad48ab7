"""Linear interpolation between samples."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf, is_concrete
from .abstract import AbstractSignal, Time


class Samples(AbstractSignal):
    """Linear interpolation between samples, constant before the first and after the last one.

    **Arguments:** `ts`, increasing times, shape `(n,)` [s], and `values`, shape `(n, ...)`.

    **Raises** `ModelError` for fewer than two samples, unequal lengths or times that do not
    increase.

    For example:

        measured = signals.Samples([0.0, 0.5, 1.0], [0.0, 2.0, 1.0])
    """

    looks_up: ClassVar[bool] = True

    ts: Float[Array, "n"]
    values: Float[Array, "n *shape"]

    def __init__(self, ts: Any, values: Any):
        self.ts, self.values = as_samples(ts, values, "Samples")

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        # One search for all components; `jnp.interp` searches for each.
        after = jnp.clip(jnp.searchsorted(self.ts, t, side="right"), 1, self.ts.shape[0] - 1)
        (a, b), (x, y) = ((of[after - 1], of[after]) for of in (self.ts, self.values))
        value = x + (t - a) / (b - a) * (y - x)
        value = jnp.where(t < self.ts[0], self.values[0], value)
        return jnp.where(t > self.ts[-1], self.values[-1], value)

    def extended(self, n: int) -> "Samples":
        """The same signal with n samples, by repetitions of the last value at later times."""
        more = jnp.arange(1, n - self.ts.shape[0] + 1, dtype=self.ts.dtype)
        ts = jnp.concatenate([self.ts, self.ts[-1] + more * (self.ts[-1] - self.ts[-2])])
        rows = [(0, more.size), *[(0, 0)] * (self.values.ndim - 1)]
        return Samples(ts, jnp.pad(self.values, rows, mode="edge"))


def as_samples(ts: Any, values: Any, name: str) -> tuple[Array, Array]:
    """Convert times, shape `(n,)` [s], and values, shape `(n, ...)`; `name` denotes the signal.

    **Raises** `ModelError` for fewer than two samples, unequal lengths or times that do not
    increase.
    """
    times, leaf = as_leaf(ts, None, f"{name}: ts"), as_leaf(values, None, f"{name}: values")
    if times.ndim != 1 or times.shape[0] < 2:
        raise ModelError(f"{name}: ts needs two or more times, got shape {times.shape}")
    if leaf.ndim == 0 or leaf.shape[0] != times.shape[0]:
        raise ModelError(f"{name}: {times.shape[0]} times but values of shape {leaf.shape}")
    if is_concrete(times) and not np.all(np.diff(np.asarray(times)) > 0):
        raise ModelError(f"{name}: ts must increase from sample to sample")
    return times, leaf


__all__ = ["Samples", "as_samples"]
