"""Results by name of a user's function, checked in one trace."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array

from ..errors import ModelError
from .scenarios import name_of


def traced_by_name(
    function: Callable[[Any], Any], argument: Any, who: str
) -> tuple[core.ClosedJaxpr, dict[str, jax.ShapeDtypeStruct]]:
    """The program of a function of arrays, or of their shapes, and shapes of its named results.

    **Raises** `ModelError`, which begins with `who`, if results are not arrays by name.
    """

    if not callable(function):
        raise ModelError(f"{who}: a function is needed, got a {type(function).__name__}")

    def named(argument: Any) -> dict[str, Any]:
        results = function(argument)
        if not isinstance(results, Mapping) or not jax.tree.leaves(results):
            raise ModelError(
                f"{who}: the function must return a dict of named arrays, got "
                f"{type(results).__name__}"
            )
        return dict(results)

    traced, returned = jax.make_jaxpr(named, return_shape=True)(argument)
    leaves = jax.tree_util.tree_flatten_with_path(returned)[0]
    shapes = {name_of(path): shape for path, shape in leaves}
    if len(shapes) < len(leaves):
        raise ModelError(
            f"{who}: two results have the same name; rename one (`a/b` and `a.b` are the same)"
        )
    return traced, shapes


def runnable(traced: core.ClosedJaxpr) -> Callable[..., list[Array]]:
    """A program as a function of its leaves.

    Results that are constants of the program become arrays.
    """
    run = core.jaxpr_as_fun(traced)

    def arrays(*leaves: Any) -> list[Array]:
        return [
            jnp.asarray(y, dtype=shape.dtype)
            for y, shape in zip(run(*leaves), traced.out_avals, strict=True)
        ]

    return arrays
