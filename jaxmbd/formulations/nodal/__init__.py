"""Formulations in points and vectors: natural coordinates and equivalent particles."""

from .natural import NaturalCoordinates as NaturalCoordinates
from .points import PointCoordinates as PointCoordinates

__all__ = ["NaturalCoordinates", "PointCoordinates"]
