"""Equations at fixed arguments, with values and derivatives by generated code or fused programs."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Float

from ..fused import DerivativeKernels
from ..fused import kernel_of as fused_program
from ..system.kernels import kernel_of

Equations = Callable[[Float[Array, "n"], Any], Float[Array, "n"]]


class Residual:
    """fn(x, args) as a function of x.

    - `fn`: the equations with derivatives by x and by the arguments, possibly as generated code.
    - `is_code`: whether they are generated code.
    """

    def __init__(
        self, fn: Equations, x: Float[Array, "n"], args: Any, *, few: bool, often: bool = True
    ):
        """**Arguments:**

        - `few`: whether derivatives are those along few directions, of a sparse Jacobian.
        - `often`: whether values alone are needed often, so that a fused program pays.
        """
        self.args, self.slopes = args, None
        code = kernel_of(fn, x, args)
        self.is_code = code is not None
        self.fn: Equations = fn if code is None else code
        self.value = self.fn
        if self.is_code or not (few or often):
            return
        program = fused_program(fn, fn, x, args)
        if program is not None:
            self.value = program
            if few:
                self.slopes = DerivativeKernels(fn, x, args)

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.value(x, self.args)

    def differentiable(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        """The same values, with derivatives by JAX."""
        return self.fn(x, self.args)

    def derivatives(
        self, x: Float[Array, "n"], directions: Float[Array, "k n"]
    ) -> Float[Array, "k n"] | None:
        """Derivatives along directions, as one batch of generated code; None without code."""
        if self.slopes is not None:
            return self.slopes(directions, x, self.args)
        if not self.is_code:
            return None
        return jax.vmap(lambda dx: jax.jvp(self.differentiable, (x,), (dx,))[1])(directions)


__all__ = ["Equations", "Residual"]
