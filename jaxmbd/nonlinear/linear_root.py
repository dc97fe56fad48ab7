"""Linear equations whose matrix only products with it are known of."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._frozen import frozen
from .blocks import Blocks
from .implicit import implicit, kept_on_the_way_back
from .linearization import AbstractLinearization

# Solutions: the first one, and two that mend what rounding has left.
PASSES = 3


def linear_root(
    fn: Callable[[Float[Array, "n"], Any], Float[Array, "n"]],
    args: Any,
    blocks: Blocks,
    linearization: AbstractLinearization,
) -> Float[Array, "n"]:
    """x of fn(x, args) = 0, fn linear in x; NaN where the equations are singular.

    `fn` may use nothing that is differentiated but its arguments.
    """
    way = linearization.chosen(blocks)
    at, blocks = frozen((args, blocks))
    none = jnp.zeros(sum(blocks.counts), blocks.typical[0].dtype)
    factors = way.factor(lambda x: fn(x, at), none, blocks)[1]

    def mended(_: Any, found: tuple[Array, Array]) -> tuple[Array, Array]:
        change = way.solve(factors, -fn(found[0], at))
        x = found[0] + change
        return x, blocks.size(change, x)

    start = none, jnp.array(jnp.inf, none.dtype)
    x, size = jax.lax.fori_loop(0, PASSES, mended, start)
    # As far as rounding lets changes shrink, also where that is much.
    x = jnp.where(size <= jnp.finfo(x.dtype).eps ** (1 / 3), x, jnp.nan)
    x, factors = kept_on_the_way_back((x, factors))
    return implicit(fn, x, args, factors, blocks, way)


__all__ = ["linear_root"]
