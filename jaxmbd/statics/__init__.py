"""Static equilibrium: energy drainage, Newton's method, stability, load paths."""

from .equilibrium import Equilibrium as Equilibrium
from .equilibrium import equilibrium as equilibrium
from .load_path import ArcLength as ArcLength
from .load_path import Branch as Branch
from .load_path import load_path as load_path
from .methods import Drainage as Drainage
from .methods import StaticNewton as StaticNewton

__all__ = [
    "ArcLength",
    "Branch",
    "Drainage",
    "Equilibrium",
    "StaticNewton",
    "equilibrium",
    "load_path",
]
