"""Functions of time whose parameters are leaves: inputs and prescribed quantities of a model.

An `equinox.Module` that is callable with the time and returns an array is a signal, and its own
leaves are differentiable. Numbers become `Constant`, plain functions `Function`.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .errors import ModelError
from .model.values import as_leaf, is_concrete

Time = Float[Array, ""]


class AbstractSignal(eqx.Module):
    """A quantity that depends on time only."""

    @abstractmethod
    def __call__(self, t: Time) -> Float[Array, "..."]:
        """Value at time `t` [s]."""


class Constant(AbstractSignal):
    """`value` at all times."""

    value: Float[Array, "..."]

    def __init__(self, value: Any):
        self.value = as_leaf(value, None, "Constant: value")

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return self.value


class Sine(AbstractSignal):
    """`offset + amplitude * sin(2π frequency t + phase)`.

    **Arguments:** `amplitude` and `offset` of one shape (an offset of zero is added where it is
    left out), `frequency` [Hz] and `phase` [rad], numbers.
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


class Polynomial(AbstractSignal):
    """`c₀ + c₁ t + c₂ t² + …` with `coefficients` along the first axis."""

    coefficients: Float[Array, "n *shape"]

    def __init__(self, coefficients: Any):
        self.coefficients = as_leaf(coefficients, None, "Polynomial: coefficients")
        if self.coefficients.ndim == 0 or len(self.coefficients) == 0:
            raise ModelError("Polynomial: coefficients need a first axis of length one or more")

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        return jnp.polyval(self.coefficients[::-1], t)


class Samples(AbstractSignal):
    """Straight lines between samples; the first and last value outside of them.

    **Arguments:** `ts`, increasing times, shape `(n,)` [s], and `values`, shape `(n, ...)`.

    **Raises** `ModelError` for fewer than two samples, unequal lengths or times that do not
    increase.
    """

    ts: Float[Array, "n"]
    values: Float[Array, "n *shape"]

    def __init__(self, ts: Any, values: Any):
        self.ts = as_leaf(ts, None, "Samples: ts")
        self.values = as_leaf(values, None, "Samples: values")
        if self.ts.ndim != 1 or self.ts.shape[0] < 2:
            raise ModelError(f"Samples: ts needs two or more times, got shape {self.ts.shape}")
        if self.values.ndim == 0 or self.values.shape[0] != self.ts.shape[0]:
            raise ModelError(
                f"Samples: {self.ts.shape[0]} times but values of shape {self.values.shape}"
            )
        if is_concrete(self.ts) and not np.all(np.diff(np.asarray(self.ts)) > 0):
            raise ModelError("Samples: ts must increase from sample to sample")

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        columns = self.values.reshape(self.values.shape[0], -1)
        value = jax.vmap(lambda column: jnp.interp(t, self.ts, column), in_axes=1)(columns)
        return value.reshape(self.values.shape[1:])


class Function(AbstractSignal):
    """A plain function of time. It is static: another function, even a like one, recompiles."""

    function: Callable[[Time], Array] = eqx.field(static=True)

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return jnp.asarray(self.function(t))


def as_signal(
    value: Any, name: str, shape: tuple[int, ...] | None = None
) -> Callable[[Time], Array]:
    """`value` itself if it is a module, otherwise a `Function` or `Constant` of it.

    **Raises** `ModelError`, naming `name`, if the signal does not return that shape.
    """
    if not callable(value):
        return Constant(as_leaf(value, shape, name))
    given = cast(Callable[[Time], Array], value)
    signal = given if isinstance(value, eqx.Module) else Function(given)
    got = signal_shape(signal)
    if shape is not None and got != shape:
        raise ModelError(f"{name}: the signal returns shape {got}, wanted {shape}")
    return signal


def signal_shape(signal: Callable[[Time], Array]) -> tuple[int, ...]:
    """Shape that a signal returns, without evaluating it."""
    return jax.eval_shape(signal, jax.ShapeDtypeStruct((), jnp.result_type(float))).shape


__all__ = [
    "AbstractSignal",
    "Constant",
    "Function",
    "Polynomial",
    "Samples",
    "Sine",
    "as_signal",
    "signal_shape",
]
