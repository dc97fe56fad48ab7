"""Choices of coordinates, and the system that each makes of a model."""

from .elements import NaturalCoordinates as NaturalCoordinates
from .elements import PointCoordinates as PointCoordinates
from .formulate import formulate as formulate
from .joint import JointCoordinates as JointCoordinates
from .maximal import MaximalCoordinates as MaximalCoordinates
from .velocity_transformation import VelocityTransformation as VelocityTransformation

__all__ = [
    "JointCoordinates",
    "MaximalCoordinates",
    "NaturalCoordinates",
    "PointCoordinates",
    "VelocityTransformation",
    "formulate",
]
