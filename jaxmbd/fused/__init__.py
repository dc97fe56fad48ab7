"""Programs that XLA's CPU compiler compiles as one kernel, for one state or for several."""

from .fused_program import DerivativeKernels as DerivativeKernels
from .fused_program import Kernel as Kernel
from .fused_program import kernel_of as kernel_of
from .fused_program import traced as traced
from .linear_kernel import LinearKernel as LinearKernel
from .linear_kernel import derivative_kernel as derivative_kernel
from .linear_kernel import jvp_with_zeros as jvp_with_zeros
from .linear_kernel import linear_kernel_of as linear_kernel_of
from .linear_kernel import moved as moved
from .linear_kernel import smooth_kernel as smooth_kernel
from .linear_kernel import smooth_kernel_of as smooth_kernel_of
from .switch import enabled as enabled
from .wide import is_wide as is_wide
from .wide import wide_programs as wide_programs
from .wide import widened as widened

__all__ = [
    "DerivativeKernels",
    "Kernel",
    "LinearKernel",
    "derivative_kernel",
    "enabled",
    "jvp_with_zeros",
    "kernel_of",
    "linear_kernel_of",
    "moved",
    "smooth_kernel",
    "smooth_kernel_of",
    "traced",
    "wide_programs",
    "widened",
]
