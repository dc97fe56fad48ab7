"""Arguments as constants, in what has a derivative of its own or none."""

from typing import Any

import equinox as eqx
import jax


def stop_gradients(tree: Any) -> Any:
    """`tree`, which may hold functions and names too, without derivatives by its arrays."""
    floats, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(floats), rest)


__all__ = ["stop_gradients"]
