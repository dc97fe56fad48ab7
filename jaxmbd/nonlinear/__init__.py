"""Newton's method for the implicit equations of one step, with sparse and dense factorizations."""

from .blocks import Blocks as Blocks
from .factorization import AbstractFactorization as AbstractFactorization
from .factorization import AbstractLinearization as AbstractLinearization
from .factorization import Dense as Dense
from .implicit_function import linear_root as linear_root
from .implicit_function import recomputed as recomputed
from .implicit_function import saves_roots as saves_roots
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
