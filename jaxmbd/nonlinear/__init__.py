"""Implicit equations of one step: Newton's method on tangent increments and multipliers."""

from .linearization import AbstractLinearization as AbstractLinearization
from .linearization import Dense as Dense
from .newton import Blocks as Blocks
from .newton import Newton as Newton
from .newton import Root as Root

__all__ = ["AbstractLinearization", "Blocks", "Dense", "Newton", "Root"]
