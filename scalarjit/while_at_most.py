"""Loops that end early, with a static limit."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

X = TypeVar("X")

# Generated code finds these loops by the name of their function, and ends them early.
NAME = "while_at_most"


def while_at_most(going: Callable[[X], Array], step: Callable[[X], X], x: X, n: int) -> X:
    """Apply `step` while `going`, at most `n` times.

    JAX computes all `n` iterations, and those after the end have no effect: the loop can be
    differentiated in reverse mode. Generated code leaves them out.

    **Arguments:**

    - `going`: whether to apply `step` to a pytree of arrays, one truth value.
    - `step`: returns a pytree of the same shapes and types. It is computed after the end too.
    """

    def iteration(carry: tuple[Array, X], _: None) -> tuple[tuple[Array, X], None]:
        goes, x = carry
        x = jax.tree.map(lambda new, old: jnp.where(goes, new, old), step(x), x)
        return (goes & going(x), x), None

    def loop(carry: tuple[Array, X]) -> tuple[Array, X]:
        return jax.lax.scan(iteration, carry, None, length=n)[0]

    loop.__name__ = NAME
    return jax.jit(loop)((going(x), x))[1]
