"""The interface of signals."""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

Time = Float[Array, ""]


class AbstractSignal(eqx.Module):
    """A function of time only."""

    # Whether a call searches a table.
    looks_up: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, t: Time) -> Float[Array, "..."]:
        """Value at time `t` [s]."""


__all__ = ["AbstractSignal", "Time"]
