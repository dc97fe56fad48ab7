"""Structured linear solves."""

from .spd import UNROLLED_SIZE as UNROLLED_SIZE
from .spd import solve_spd as solve_spd

__all__ = ["UNROLLED_SIZE", "solve_spd"]
