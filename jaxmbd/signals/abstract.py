"""The interface of signals."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float

Time = Float[Array, ""]


class AbstractSignal(eqx.Module):
    """A function of time only."""

    @abstractmethod
    def __call__(self, t: Time) -> Float[Array, "..."]:
        """Value at time `t` [s]."""


__all__ = ["AbstractSignal", "Time"]
