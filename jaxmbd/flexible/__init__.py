"""Finite elements to flexible bodies with few elastic coordinates.

`beam`, `frame` and `reduce` return a `FlexibleBody`. They are pure functions of their numbers: they
can be traced, and derivatives pass from dimensions and materials to the motion.
"""

from .beam import beam as beam
from .damping import Rayleigh as Rayleigh
from .frame import Member as Member
from .frame import frame as frame
from .geometric import GeometricStiffness as GeometricStiffness
from .matrix_files import Matrices as Matrices
from .matrix_files import read_matrices as read_matrices
from .modes import modes as modes
from .reduction import reduce as reduce
from .sections import AbstractSection as AbstractSection
from .sections import General as General
from .sections import Rectangle as Rectangle
from .sections import Round as Round
from .sections import Tube as Tube

__all__ = [
    "AbstractSection",
    "General",
    "GeometricStiffness",
    "Matrices",
    "Member",
    "Rayleigh",
    "Rectangle",
    "Round",
    "Tube",
    "beam",
    "frame",
    "modes",
    "read_matrices",
    "reduce",
]
