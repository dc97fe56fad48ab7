"""Generated machine code for small programs on the CPU, for one state or for many."""

from .call import NativeFunction as NativeFunction
from .call import collected as collected
from .call import native_by_name as native_by_name
from .call import native_of as native_of
from .call import native_or_reason as native_or_reason
from .call import native_or_traced as native_or_traced
from .call import traced as traced
from .direct import by_routine as by_routine
from .frontal import Elimination as Elimination
from .frontal import whole as whole
from .mostly_zeros import mostly_zeros as mostly_zeros
from .registered import is_there as is_there
from .switch import as_part as as_part
from .switch import enabled as enabled
from .switch import is_part as is_part
from .switch import why_none as why_none

__all__ = [
    "Elimination",
    "NativeFunction",
    "as_part",
    "by_routine",
    "collected",
    "enabled",
    "is_part",
    "is_there",
    "mostly_zeros",
    "native_by_name",
    "native_of",
    "native_or_reason",
    "native_or_traced",
    "traced",
    "whole",
    "why_none",
]
