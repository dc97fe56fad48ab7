"""Machine code for JAX functions of small arrays, for one state or for many, on the CPU.

Users need `jit` and `enabled`. The other names are for packages that make operations of their own
of generated code. `README.md` next to this file has examples and limits.
"""

from .call import NativeFunction as NativeFunction
from .call import collected as collected
from .call import jit as jit
from .call import makes_code as makes_code
from .call import native_by_name as native_by_name
from .call import native_of as native_of
from .call import native_or_reason as native_or_reason
from .call import native_or_traced as native_or_traced
from .call import traced as traced
from .cuda_tuning import tune as tune
from .direct import by_routine as by_routine
from .frontal import Elimination as Elimination
from .frontal import whole as whole
from .mostly_zeros import mostly_zeros as mostly_zeros
from .registered import is_there as is_there
from .switch import as_part as as_part
from .switch import emulated_gpu as emulated_gpu
from .switch import enabled as enabled
from .switch import is_part as is_part
from .switch import platform as platform
from .switch import why_no_gpu as why_no_gpu
from .switch import why_none as why_none
from .tiers import optimize as optimize

__all__ = [
    "enabled",
    "jit",
    "mostly_zeros",
    "native_of",
    "native_or_reason",
    "optimize",
    "tune",
    "why_none",
]
