"""A constant signal."""

from typing import Any

from jaxtyping import Array, Float

from ..model.values import as_leaf
from .abstract import AbstractSignal, Time


class Constant(AbstractSignal):
    """`value` at all times.

    For example:

        level = signals.Constant(2.0)
    """

    value: Float[Array, "..."]

    def __init__(self, value: Any):
        self.value = as_leaf(value, None, "Constant: value")

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return self.value


__all__ = ["Constant"]
