"""Implicit equations of one step: Newton's method on tangent increments and multipliers."""

from .blocks import Blocks as Blocks
from .implicit import keeps_roots as keeps_roots
from .kept import Kept as Kept
from .linear_root import linear_root as linear_root
from .linearization import AbstractFactorization as AbstractFactorization
from .linearization import AbstractLinearization as AbstractLinearization
from .linearization import Dense as Dense
from .newton import Newton as Newton
from .newton import Root as Root
from .structured import Automatic as Automatic
from .structured import BlockSparse as BlockSparse

__all__ = [
    "AbstractFactorization",
    "AbstractLinearization",
    "Automatic",
    "BlockSparse",
    "Blocks",
    "Dense",
    "Kept",
    "Newton",
    "Root",
    "keeps_roots",
    "linear_root",
]
