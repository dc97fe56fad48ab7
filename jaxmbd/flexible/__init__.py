"""Finite elements to flexible bodies with few elastic coordinates.

`beam` and `reduce` return a `FlexibleBody`. Both are pure functions of their numbers: they can be
traced, and derivatives pass from dimensions and materials to the motion.
"""

from .beam import beam as beam
from .damping import Rayleigh as Rayleigh
from .reduction import modes as modes
from .reduction import reduce as reduce
from .sections import AbstractSection as AbstractSection
from .sections import General as General
from .sections import Rectangle as Rectangle
from .sections import Round as Round
from .sections import Tube as Tube

__all__ = [
    "AbstractSection",
    "General",
    "Rayleigh",
    "Rectangle",
    "Round",
    "Tube",
    "beam",
    "modes",
    "reduce",
]
