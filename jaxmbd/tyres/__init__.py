"""Tyres: laws of slip, and the contact plane of a wheel on a road.

`jaxmbd.forces.Tyre` is the element that uses them.
"""

from .patch import Patch as Patch
from .patch import patch_on as patch_on
from .slip import AbstractSlip as AbstractSlip
from .slip import Brush as Brush
from .slip import Linear as Linear
from .slip import MagicFormula as MagicFormula

__all__ = ["AbstractSlip", "Brush", "Linear", "MagicFormula", "Patch", "patch_on"]
