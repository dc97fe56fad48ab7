"""Plain functions as signals, and conversion of arguments to signals."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf
from .abstract import AbstractSignal, Time
from .constant import Constant


class Function(AbstractSignal):
    """A plain function of time, as a static field: each new function object causes a compilation.

    Values are converted to the float type of the time.
    """

    function: Callable[[Time], Array] = eqx.field(static=True)

    def __call__(self, t: Time) -> Float[Array, "..."]:
        value, dtype = jnp.asarray(self.function(t)), jnp.result_type(t)
        return value.astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else value


def as_signal(
    value: Any, name: str, shape: tuple[int, ...] | None = None
) -> Callable[[Time], Array]:
    """Convert `value` to a signal: a module remains as it is, others become `Function`, `Constant`.

    **Raises** `ModelError`, naming `name`, if the signal does not return an array of `shape`, or
    if JAX cannot trace it.
    """
    if not callable(value):
        return Constant(as_leaf(value, shape, name))
    function = cast(Callable[[Time], Array], value)
    signal = function if isinstance(value, eqx.Module) else Function(function)
    try:
        returned = signal_shape(signal)
    except (TypeError, ValueError) as error:  # Errors of JAX about tracers are TypeErrors.
        raise ModelError(
            f"{name}: the signal must be a function of the time alone that returns an array and "
            f"that JAX can trace, with jax.numpy for numpy, and jnp.where for if; it raises "
            f"{type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error
    if shape is not None and returned != shape:
        raise ModelError(f"{name}: the signal returns shape {returned}, expected {shape}")
    return signal


def signal_shape(signal: Callable[[Time], Array]) -> tuple[int, ...]:
    """Shape of the values of a signal, by abstract evaluation."""
    with jax.numpy_dtype_promotion("standard"):  # `formulate` unifies float types later.
        return jax.eval_shape(signal, jax.ShapeDtypeStruct((), jnp.result_type(float))).shape


__all__ = ["Function", "as_signal", "signal_shape"]
