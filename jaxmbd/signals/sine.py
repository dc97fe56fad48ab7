"""A sine wave."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model.values import as_leaf
from .abstract import AbstractSignal, Time


class Sine(AbstractSignal):
    """`offset + amplitude * sin(2π frequency t + phase)`.

    **Arguments:** `amplitude` and `offset`, arrays of the same shape; `frequency` [Hz] and `phase`
    [rad], numbers. Defaults: a phase and an offset of zero.

    For example:

        shake = signals.Sine(amplitude=0.01, frequency=5.0)
    """

    amplitude: Float[Array, "..."]
    frequency: Float[Array, ""]
    phase: Float[Array, ""]
    offset: Float[Array, "..."]

    def __init__(self, amplitude: Any, frequency: Any, phase: Any = 0.0, offset: Any = None):
        self.amplitude = as_leaf(amplitude, None, "Sine: amplitude")
        shape = self.amplitude.shape
        self.frequency = as_leaf(frequency, (), "Sine: frequency")
        self.phase = as_leaf(phase, (), "Sine: phase")
        self.offset = as_leaf(np.zeros(shape) if offset is None else offset, shape, "Sine: offset")

    def __call__(self, t: Time) -> Float[Array, "..."]:
        angle = 2 * jnp.pi * self.frequency * t + self.phase
        return self.offset + self.amplitude * jnp.sin(angle)


__all__ = ["Sine"]
