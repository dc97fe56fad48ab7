"""Linear solvers for mass matrices and constraints."""

from .constrained import ConstraintFactors as ConstraintFactors
from .constrained import factor_constraints as factor_constraints
from .spd import UNROLLED_SIZE as UNROLLED_SIZE
from .spd import solve_spd as solve_spd

__all__ = ["UNROLLED_SIZE", "ConstraintFactors", "factor_constraints", "solve_spd"]
