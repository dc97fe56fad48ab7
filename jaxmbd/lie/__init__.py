"""Lie groups of rigid-body motion: SO(3) and SE(3).

Twists and wrenches are linear first, `V = [v, ω]` and `W = [f, τ]`; quaternions are `w x y z`.
Every function takes one element; use `jax.vmap` for several. All functions are smooth at zero
rotation, in value and in every derivative.
"""

from . import gram_schmidt as gram_schmidt
from . import parameterization as parameterization
from . import se3 as se3
from . import so3 as so3
from .parameterization import Cayley as Cayley
from .parameterization import CayleyGibbsRodrigues as CayleyGibbsRodrigues
from .parameterization import EulerRodrigues as EulerRodrigues
from .parameterization import Exponential as Exponential
from .parameterization import WienerMilenkovic as WienerMilenkovic
from .se3 import Pose as Pose

__all__ = [
    "Cayley",
    "CayleyGibbsRodrigues",
    "EulerRodrigues",
    "Exponential",
    "Pose",
    "WienerMilenkovic",
    "gram_schmidt",
    "parameterization",
    "se3",
    "so3",
]
