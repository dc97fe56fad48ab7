"""Linear solvers for mass matrices and constraints."""

from .constrained import ConstraintFactors as ConstraintFactors
from .constrained import factor_constraints as factor_constraints
from .semidefinite import equilibration as equilibration
from .semidefinite import solve_scaled as solve_scaled
from .semidefinite import solve_semidefinite as solve_semidefinite
from .spd import UNROLLED_SIZE as UNROLLED_SIZE
from .spd import solve_spd as solve_spd

__all__ = [
    "UNROLLED_SIZE",
    "ConstraintFactors",
    "equilibration",
    "factor_constraints",
    "solve_scaled",
    "solve_semidefinite",
    "solve_spd",
]
