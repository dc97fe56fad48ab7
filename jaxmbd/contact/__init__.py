"""Shapes, points of contact, and laws of normal force, friction and rolling resistance.

`jaxmbd.forces.Contact` is the element that uses them.
"""

from .heights import AbstractHeight as AbstractHeight
from .heights import HeightGrid as HeightGrid
from .heights import Road as Road
from .heights import Slope as Slope
from .heights import Steps as Steps
from .heights import SumOfHeights as SumOfHeights
from .heights import Washboard as Washboard
from .heights import iso_8608 as iso_8608
from .normal import AbstractNormalLaw as AbstractNormalLaw
from .normal import Hertz as Hertz
from .normal import HuntCrossley as HuntCrossley
from .normal import KelvinVoigt as KelvinVoigt
from .normal import Restitution as Restitution
from .shapes import AbstractShape as AbstractShape
from .shapes import AbstractSolid as AbstractSolid
from .shapes import AbstractSurface as AbstractSurface
from .shapes import Box as Box
from .shapes import Capsule as Capsule
from .shapes import Cylinder as Cylinder
from .shapes import Disc as Disc
from .shapes import HalfSpace as HalfSpace
from .shapes import Points as Points
from .shapes import Sphere as Sphere
from .shapes import is_pair as is_pair
from .shapes import points_of as points_of
from .tangential import AbstractFriction as AbstractFriction
from .tangential import Bristle as Bristle
from .tangential import Coulomb as Coulomb
from .tangential import RollingResistance as RollingResistance
from .terrain import Terrain as Terrain

__all__ = [
    "AbstractFriction",
    "AbstractHeight",
    "AbstractNormalLaw",
    "AbstractShape",
    "AbstractSolid",
    "AbstractSurface",
    "Box",
    "Bristle",
    "Capsule",
    "Coulomb",
    "Cylinder",
    "Disc",
    "HalfSpace",
    "HeightGrid",
    "Hertz",
    "HuntCrossley",
    "KelvinVoigt",
    "Points",
    "Restitution",
    "Road",
    "RollingResistance",
    "Slope",
    "Sphere",
    "Steps",
    "SumOfHeights",
    "Terrain",
    "Washboard",
    "is_pair",
    "iso_8608",
    "points_of",
]
