"""Joints, one kind a file: which of the six relative motions of two frames are free."""

from .abstract import AbstractJoint as AbstractJoint
from .coupling import Coupling as Coupling
from .cylindrical import Cylindrical as Cylindrical
from .fixed import Fixed as Fixed
from .free import Free as Free
from .planar import Planar as Planar
from .prismatic import Prismatic as Prismatic
from .revolute import Revolute as Revolute
from .spherical import Spherical as Spherical
from .universal import Universal as Universal

__all__ = [
    "AbstractJoint",
    "Coupling",
    "Cylindrical",
    "Fixed",
    "Free",
    "Planar",
    "Prismatic",
    "Revolute",
    "Spherical",
    "Universal",
]
