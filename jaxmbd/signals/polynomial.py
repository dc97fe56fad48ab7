"""A polynomial of time."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf
from .abstract import AbstractSignal, Time


class Polynomial(AbstractSignal):
    """`c₀ + c₁ t + c₂ t² + …` with `coefficients` along the first axis.

    For example:

        ramp = signals.Polynomial([0.0, 2.0])  # 2 t
    """

    coefficients: Float[Array, "n *shape"]

    def __init__(self, coefficients: Any):
        self.coefficients = as_leaf(coefficients, None, "Polynomial: coefficients")
        if self.coefficients.ndim == 0 or len(self.coefficients) == 0:
            raise ModelError("Polynomial: coefficients need a first axis of length one or more")

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        return jnp.polyval(self.coefficients[::-1], t)


__all__ = ["Polynomial"]
