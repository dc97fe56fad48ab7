"""Plain functions as signals, and whatever a user passes in the place of one."""

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
    """A plain function of time. It is static: another function, even a like one, recompiles.

    Its values are converted to the float type of the time.
    """

    function: Callable[[Time], Array] = eqx.field(static=True)

    def __call__(self, t: Time) -> Float[Array, "..."]:
        value, dtype = jnp.asarray(self.function(t)), jnp.result_type(t)
        return value.astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else value


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
    with jax.numpy_dtype_promotion("standard"):  # `formulate` makes one float type of several.
        return jax.eval_shape(signal, jax.ShapeDtypeStruct((), jnp.result_type(float))).shape


__all__ = ["Function", "as_signal", "signal_shape"]
