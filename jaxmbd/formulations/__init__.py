"""Formulations: choices of coordinates, with the systems of equations in them."""

from .formulate import formulate as formulate
from .joint import JointCoordinates as JointCoordinates
from .maximal import MaximalCoordinates as MaximalCoordinates
from .nodal import NaturalCoordinates as NaturalCoordinates
from .nodal import PointCoordinates as PointCoordinates
from .velocity_transformation import VelocityTransformation as VelocityTransformation

__all__ = [
    "JointCoordinates",
    "MaximalCoordinates",
    "NaturalCoordinates",
    "PointCoordinates",
    "VelocityTransformation",
    "formulate",
]
