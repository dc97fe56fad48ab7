"""What a signal is: a function of time alone."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float

Time = Float[Array, ""]


class AbstractSignal(eqx.Module):
    """A quantity that depends on time only."""

    @abstractmethod
    def __call__(self, t: Time) -> Float[Array, "..."]:
        """Value at time `t` [s]."""


__all__ = ["AbstractSignal", "Time"]
