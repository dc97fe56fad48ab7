"""Equations at fixed arguments, with values and derivatives computed by fused programs."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from ..fused import DerivativeKernels, Kernel


class KernelResidual:
    """fn(x, args) as a function of x, computed by the kernel `value`.

    Values and derivatives have kernels of their own: a joint kernel takes longer to compile.
    """

    def __init__(
        self,
        fn: Callable[[Float[Array, "n"], Any], Float[Array, "n"]],
        value: Kernel,
        x: Float[Array, "n"],
        args: Any,
    ):
        self.value, self.args = value, args
        self.slopes = DerivativeKernels(fn, x, args)

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.value(x, self.args)

    def derivatives(
        self, x: Float[Array, "n"], directions: Float[Array, "k n"]
    ) -> tuple[Float[Array, "n"], Float[Array, "k n"]] | None:
        """The value, and derivatives along directions; None if they cannot be fused programs."""
        derivatives = self.slopes(directions, x, self.args)
        return None if derivatives is None else (self(x), derivatives)


__all__ = ["KernelResidual"]
