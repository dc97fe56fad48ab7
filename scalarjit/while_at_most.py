"""Loops that end early."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from .jaxprs import blank

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


@lru_cache(maxsize=64)
def guarded(test: ClosedJaxpr, body: ClosedJaxpr, n_test: int, n_body: int) -> ClosedJaxpr:
    """The body of a loop whose first carried value is whether it goes on.

    A loop over a batch may have one condition for each state: the others keep their values.
    """
    test_of, body_of = jaxpr_as_fun(test), jaxpr_as_fun(body)

    def iteration(*args: Any) -> list[Any]:
        consts, (goes, *carry) = args[: n_test + n_body], args[n_test + n_body :]
        new = [
            jax.lax.select_n(jax.lax.broadcast_in_dim(goes, x.shape, range(goes.ndim)), x, y)
            for x, y in zip(carry, body_of(*consts[n_test:], *carry), strict=True)
        ]
        return [goes & test_of(*consts[:n_test], *new)[0], *new]

    shapes = [*test.in_avals[:n_test], *body.in_avals[:n_body]]
    goes = jax.ShapeDtypeStruct(test.out_avals[0].shape, bool)
    return jax.make_jaxpr(iteration)(*map(blank, shapes), goes, *map(blank, body.in_avals[n_body:]))
