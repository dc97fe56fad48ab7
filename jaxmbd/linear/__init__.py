"""Structured linear solves."""

from .semidefinite import solve_semidefinite as solve_semidefinite
from .spd import UNROLLED_SIZE as UNROLLED_SIZE
from .spd import solve_spd as solve_spd

__all__ = ["UNROLLED_SIZE", "solve_semidefinite", "solve_spd"]
