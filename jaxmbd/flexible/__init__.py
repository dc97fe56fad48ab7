"""Finite elements to flexible bodies with few elastic coordinates.

`beam`, `frame`, `reduce` and `from_mesh` return a `FlexibleBody`. They are pure functions of their
numbers: they can be traced, and derivatives pass from dimensions and materials to the motion.
"""

from .beam import beam as beam
from .damping import Rayleigh as Rayleigh
from .frame import Member as Member
from .frame import frame as frame
from .geometric import GeometricStiffness as GeometricStiffness
from .matrix_files import Matrices as Matrices
from .matrix_files import read_matrices as read_matrices
from .mbdyn import read_mbdyn as read_mbdyn
from .mesh import Interface as Interface
from .mesh import from_mesh as from_mesh
from .modes import modes as modes
from .parametric import Parametric as Parametric
from .reduction import reduce as reduce
from .sections import AbstractSection as AbstractSection
from .sections import General as General
from .sections import Rectangle as Rectangle
from .sections import Round as Round
from .sections import Tube as Tube
from .stress import von_mises as von_mises

__all__ = [
    "AbstractSection",
    "General",
    "GeometricStiffness",
    "Interface",
    "Matrices",
    "Member",
    "Parametric",
    "Rayleigh",
    "Rectangle",
    "Round",
    "Tube",
    "beam",
    "frame",
    "from_mesh",
    "modes",
    "read_matrices",
    "read_mbdyn",
    "reduce",
    "von_mises",
]
