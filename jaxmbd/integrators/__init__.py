"""The stepping protocol, and one time integration method a file."""

from .abstract import AbstractIntegrator as AbstractIntegrator
from .abstract import Attempt as Attempt
from .bdf import BDF as BDF
from .energy_momentum import EnergyDecaying as EnergyDecaying
from .energy_momentum import EnergyMomentum as EnergyMomentum
from .explicit import ExplicitRK as ExplicitRK
from .generalized_alpha import GeneralizedAlpha as GeneralizedAlpha
from .semi_implicit import SemiImplicitEuler as SemiImplicitEuler
from .simo_gonzalez import SimoGonzalez as SimoGonzalez

__all__ = [
    "BDF",
    "AbstractIntegrator",
    "Attempt",
    "EnergyDecaying",
    "EnergyMomentum",
    "ExplicitRK",
    "GeneralizedAlpha",
    "SemiImplicitEuler",
    "SimoGonzalez",
]
