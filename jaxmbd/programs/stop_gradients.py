"""`stop_gradient` of arguments, for functions with their own derivative rule or none."""

from typing import Any

import equinox as eqx
import jax


def stop_gradients(tree: Any) -> Any:
    """`stop_gradient` of the float arrays of a tree, which may hold functions and names too."""
    floats, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(floats), rest)
