"""Finite elements to flexible bodies with few elastic coordinates.

`beam`, `frame`, `reduce` and `from_mesh` return a `FlexibleBody`. They are pure functions of their
numbers: they can be traced, and derivatives pass from dimensions and materials to the motion.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .beam import beam as beam
from .beam_frame import Member as Member
from .beam_frame import frame as frame
from .matrix_files import Matrices as Matrices
from .matrix_files import read_matrices as read_matrices
from .mbdyn import read_mbdyn as read_mbdyn
from .mode_shapes import Rayleigh as Rayleigh
from .mode_shapes import modes as modes
from .parametric import Parametric as Parametric
from .reduction import GeometricStiffness as GeometricStiffness
from .reduction import reduce as reduce
from .sections import AbstractSection as AbstractSection
from .sections import General as General
from .sections import Rectangle as Rectangle
from .sections import Round as Round
from .sections import Tube as Tube
from .stress import von_mises as von_mises

if TYPE_CHECKING:
    from .mesh import Interface as Interface
    from .mesh import from_mesh as from_mesh

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


def __getattr__(name: str) -> Any:
    """Import `mesh`, and with it SciPy's sparse matrices, when it is first used."""
    if name not in ("Interface", "from_mesh"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".mesh", __name__), name)


def __dir__() -> list[str]:
    return __all__
