"""A smooth step from one value to another."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf, is_concrete
from .abstract import AbstractSignal, Time


class Step(AbstractSignal):
    """`before` until the time `start`, `after` from the time `stop` on, smooth between them.

    `before + (after - before) s(x)` with `s(x) = x³ (10 - 15 x + 6 x²)` and x = 0 … 1 from `start`
    to `stop`: the polynomial of degree 5 whose first and second derivative are zero at both ends,
    so that both are continuous at all times. The largest velocity is 1.875 (after - before) /
    (stop - start), the largest acceleration 5.774 (after - before) / (stop - start)².

    **Arguments:** `start` and `stop`, times [s]; `before` and `after`, arrays of the same shape.

    **Raises** `ModelError` for other shapes and if `stop` is not after `start`.

    For example:

        start = signals.Step(0.0, 0.5, before=0.0, after=10.0)
    """

    start: Float[Array, ""]
    stop: Float[Array, ""]
    before: Float[Array, "..."]
    after: Float[Array, "..."]

    def __init__(self, start: Any, stop: Any, before: Any, after: Any):
        self.start = as_leaf(start, (), "Step: start")
        self.stop = as_leaf(stop, (), "Step: stop")
        self.before = as_leaf(before, None, "Step: before")
        self.after = as_leaf(after, self.before.shape, "Step: after")
        concrete = is_concrete(self.start) and is_concrete(self.stop)
        if concrete and not np.asarray(self.stop) > np.asarray(self.start):
            raise ModelError(f"Step: stop must be after start, got {self.stop} and {self.start}")

    def __call__(self, t: Time) -> Float[Array, "..."]:
        x = jnp.clip((t - self.start) / (self.stop - self.start), 0.0, 1.0)
        return self.before + (self.after - self.before) * (x**3 * (10 - 15 * x + 6 * x**2))


__all__ = ["Step"]
