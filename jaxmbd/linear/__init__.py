"""Linear solvers for mass matrices and constraints, and eigenvalues."""

from .constrained import ConstraintFactors as ConstraintFactors
from .constrained import after as after
from .constrained import factor_constraints as factor_constraints
from .eigen import Eigen as Eigen
from .eigen import SymmetricEigen as SymmetricEigen
from .eigen import eig as eig
from .eigen import eigh as eigh
from .eigen import general_eig as general_eig
from .modal_assurance import Followed as Followed
from .modal_assurance import follow as follow
from .modal_assurance import modal_assurance as modal_assurance
from .spd import UNROLLED_SIZE as UNROLLED_SIZE
from .spd import solve_spd as solve_spd
from .spd import spd_solver as spd_solver

__all__ = [
    "UNROLLED_SIZE",
    "ConstraintFactors",
    "Eigen",
    "Followed",
    "SymmetricEigen",
    "after",
    "eig",
    "eigh",
    "factor_constraints",
    "follow",
    "general_eig",
    "modal_assurance",
    "solve_spd",
    "spd_solver",
]
