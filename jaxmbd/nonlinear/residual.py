"""Equations at fixed arguments, with values and derivatives by generated code or fused programs."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from ..fused import DerivativeKernels, kernel_of
from ..native import native_of
from .blocks import Blocks

Equations = Callable[[Float[Array, "n"], Any], Float[Array, "n"]]


class Residual:
    """fn(x, args) as a function of x.

    Without a sparsity pattern each equation may depend on all unknowns. Fused derivatives then take
    up to 20 times as long as those of JAX; generated code computes values and derivatives. With a
    pattern both are fused programs, each of its own: a joint program takes longer to compile.

    - `fn`: the equations with derivatives by x and by the arguments, possibly as generated code.
    """

    def __init__(
        self, fn: Equations, x: Float[Array, "n"], args: Any, blocks: Blocks, *, often: bool = True
    ):
        """`often`: whether values alone are needed often, so that a fused program pays."""
        self.args, self.slopes = args, None
        code = None if blocks.structured else native_of(fn, x, args)
        self.fn: Equations = fn if code is None else code
        self.value = self.fn
        kernel = kernel_of(fn, fn, x, args) if blocks.structured or (often and not code) else None
        if kernel is not None:
            self.value = kernel
            if blocks.structured:
                self.slopes = DerivativeKernels(fn, x, args)

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.value(x, self.args)

    def differentiable(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        """The same values, with derivatives by JAX."""
        return self.fn(x, self.args)

    def derivatives(
        self, x: Float[Array, "n"], directions: Float[Array, "k n"]
    ) -> Float[Array, "k n"] | None:
        """Derivatives along directions, as fused programs; None without these."""
        return None if self.slopes is None else self.slopes(directions, x, self.args)


__all__ = ["Equations", "Residual"]
