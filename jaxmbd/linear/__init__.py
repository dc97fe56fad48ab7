"""Structured linear solves."""

from .constrained import ConstraintFactors as ConstraintFactors
from .constrained import factor_constraints as factor_constraints
from .semidefinite import solve_scaled as solve_scaled
from .semidefinite import solve_semidefinite as solve_semidefinite
from .semidefinite import unit_scale as unit_scale
from .spd import UNROLLED_SIZE as UNROLLED_SIZE
from .spd import solve_spd as solve_spd

__all__ = [
    "UNROLLED_SIZE",
    "ConstraintFactors",
    "factor_constraints",
    "solve_scaled",
    "solve_semidefinite",
    "solve_spd",
    "unit_scale",
]
