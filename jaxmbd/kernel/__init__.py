"""Programs that XLA's CPU compiler makes one kernel of, for one state or for several at once."""

from .one_kernel import Kernel as Kernel
from .one_kernel import kernel_of as kernel_of

__all__ = ["Kernel", "kernel_of"]
