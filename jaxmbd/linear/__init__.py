"""Structured linear solves."""

from .spd import solve_spd as solve_spd

__all__ = ["solve_spd"]
