"""Joints, couplings and drivers."""

from .abstract import AbstractConstraint as AbstractConstraint
from .abstract import AbstractJoint as AbstractJoint
from .compound import ConstantVelocity as ConstantVelocity
from .compound import Free as Free
from .compound import Generic as Generic
from .compound import Universal as Universal
from .coupling import AbstractCoupling as AbstractCoupling
from .coupling import Belt as Belt
from .coupling import Coupling as Coupling
from .coupling import Driver as Driver
from .coupling import Gear as Gear
from .coupling import RackAndPinion as RackAndPinion
from .lower_pairs import Cylindrical as Cylindrical
from .lower_pairs import Fixed as Fixed
from .lower_pairs import Planar as Planar
from .lower_pairs import Prismatic as Prismatic
from .lower_pairs import Revolute as Revolute
from .lower_pairs import Screw as Screw
from .lower_pairs import Spherical as Spherical
from .point_constraints import Distance as Distance
from .point_constraints import PointOnLine as PointOnLine
from .point_constraints import PointOnPlane as PointOnPlane
from .rolling import KnifeEdge as KnifeEdge
from .rolling import RollingDisc as RollingDisc

__all__ = [
    "AbstractConstraint",
    "AbstractCoupling",
    "AbstractJoint",
    "Belt",
    "ConstantVelocity",
    "Coupling",
    "Cylindrical",
    "Distance",
    "Driver",
    "Fixed",
    "Free",
    "Gear",
    "Generic",
    "KnifeEdge",
    "Planar",
    "PointOnLine",
    "PointOnPlane",
    "Prismatic",
    "RackAndPinion",
    "Revolute",
    "RollingDisc",
    "Screw",
    "Spherical",
    "Universal",
]
