"""Newton's method for the implicit equations of one step, with sparse and dense factorizations."""

from .blocks import Blocks as Blocks
from .implicit import linear_root as linear_root
from .implicit import recomputed as recomputed
from .implicit import saves_roots as saves_roots
from .linearization import AbstractFactorization as AbstractFactorization
from .linearization import AbstractLinearization as AbstractLinearization
from .linearization import Dense as Dense
from .newton import CachedFactors as CachedFactors
from .newton import Newton as Newton
from .newton import Root as Root
from .newton import as_newton as as_newton
from .structured import ENOUGH as ENOUGH
from .structured import Automatic as Automatic
from .structured import BlockSparse as BlockSparse

__all__ = [
    "ENOUGH",
    "AbstractFactorization",
    "AbstractLinearization",
    "Automatic",
    "BlockSparse",
    "Blocks",
    "CachedFactors",
    "Dense",
    "Newton",
    "Root",
    "as_newton",
    "linear_root",
    "recomputed",
    "saves_roots",
]
