"""Programs that XLA's CPU compiler makes one kernel of, for one state or for several at once."""

from .linear_kernel import LinearKernel as LinearKernel
from .linear_kernel import jvp_with_zeros as jvp_with_zeros
from .linear_kernel import linear_kernel_of as linear_kernel_of
from .linear_kernel import moved as moved
from .linear_kernel import smooth_kernel as smooth_kernel
from .linear_kernel import smooth_kernel_of as smooth_kernel_of
from .one_kernel import DerivativeKernels as DerivativeKernels
from .one_kernel import Kernel as Kernel
from .one_kernel import kernel_of as kernel_of
from .switch import fused as fused

__all__ = [
    "DerivativeKernels",
    "Kernel",
    "LinearKernel",
    "fused",
    "jvp_with_zeros",
    "kernel_of",
    "linear_kernel_of",
    "moved",
    "smooth_kernel",
    "smooth_kernel_of",
]
