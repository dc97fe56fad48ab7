"""Branches for members of a batch: computed if any member takes them."""

from collections.abc import Callable
from typing import TypeVar

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

Result = TypeVar("Result")


def if_any(which: Bool[Array, ""], compute: Callable[[], Result], otherwise: Result) -> Result:
    """`compute()` if `which`, else `otherwise`; under `vmap` nothing is computed if no member does.

    `vmap` of `lax.cond` computes both branches for all members. No derivatives in reverse mode.
    """

    def once(carry: tuple[Array, Result]) -> tuple[Array, Result]:
        found = jax.tree.map(lambda a, b: jnp.where(which, a, b), compute(), carry[1])
        return jnp.array(False), found

    return jax.lax.while_loop(lambda c: c[0], once, (eqxi.unvmap_any(which), otherwise))[1]


__all__ = ["if_any"]
