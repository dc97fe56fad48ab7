"""Formulations in points and vectors: natural coordinates and equivalent particles."""

from .natural import NaturalCoordinates as NaturalCoordinates

__all__ = ["NaturalCoordinates"]
