"""Joints, one kind a file, with couplings and drivers."""

from .abstract import AbstractConstraint as AbstractConstraint
from .abstract import AbstractJoint as AbstractJoint
from .constant_velocity import ConstantVelocity as ConstantVelocity
from .coupling import AbstractCoupling as AbstractCoupling
from .coupling import Belt as Belt
from .coupling import Coupling as Coupling
from .coupling import Gear as Gear
from .coupling import RackAndPinion as RackAndPinion
from .cylindrical import Cylindrical as Cylindrical
from .distance import Distance as Distance
from .driver import Driver as Driver
from .fixed import Fixed as Fixed
from .free import Free as Free
from .generic import Generic as Generic
from .knife_edge import KnifeEdge as KnifeEdge
from .planar import Planar as Planar
from .point_on_line import PointOnLine as PointOnLine
from .point_on_plane import PointOnPlane as PointOnPlane
from .prismatic import Prismatic as Prismatic
from .revolute import Revolute as Revolute
from .rolling_disc import RollingDisc as RollingDisc
from .screw import Screw as Screw
from .spherical import Spherical as Spherical
from .universal import Universal as Universal

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
