"""Priors of parameters."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf, is_concrete


class Normal(eqx.Module):
    """A normal distribution of the reported numbers of a parameter.

    **Arguments:** `mean`, `deviation`: each one number, or one for each reported number.

    **Raises** `ModelError` for a deviation that is not positive.
    """

    mean: Float[Array, "*k"]
    deviation: Float[Array, "*k"]

    def __init__(self, mean: Any, deviation: Any):
        self.mean = as_leaf(mean, None, "Normal: mean")
        self.deviation = as_leaf(deviation, None, "Normal: deviation")
        if is_concrete(self.deviation) and not np.all(np.asarray(self.deviation) > 0):
            raise ModelError(f"Normal: deviation must be positive, got {self.deviation}")

    def residuals(self, reported: Float[Array, "k"]) -> Float[Array, "k"]:
        """Differences of the reported numbers from the mean, in deviations."""
        mean, deviation = (
            jnp.broadcast_to(jnp.asarray(x, reported.dtype), reported.shape)
            for x in (self.mean, self.deviation)
        )
        return (reported - mean) / deviation


__all__ = ["Normal"]
