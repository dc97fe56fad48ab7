"""Equations at fixed arguments, with values and derivatives by generated code where it exists."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Float

from ..system.kernels import kernel_of

Equations = Callable[[Float[Array, "n"], Any], Float[Array, "n"]]


class Residual:
    """fn(x, args) as a function of x.

    - `fn`: the equations with derivatives by x and by the arguments, possibly as generated code.
    - `is_code`: whether they are generated code.
    """

    def __init__(self, fn: Equations, x: Float[Array, "n"], args: Any):
        code = kernel_of(fn, x, args)
        self.args, self.is_code = args, code is not None
        self.fn: Equations = fn if code is None else code

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.fn(x, self.args)

    def derivatives(
        self, x: Float[Array, "n"], directions: Float[Array, "k n"]
    ) -> Float[Array, "k n"] | None:
        """Derivatives along directions, as one batch of generated code; None without code."""
        if not self.is_code:
            return None
        return jax.vmap(lambda dx: jax.jvp(self, (x,), (dx,))[1])(directions)
