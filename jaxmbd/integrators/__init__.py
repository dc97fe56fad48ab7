"""One step from state to state: integrators as diffrax solvers."""

from .abstract import AbstractIntegrator as AbstractIntegrator
from .bdf import BDF as BDF
from .energy_decaying import EnergyDecaying as EnergyDecaying
from .energy_momentum import EnergyMomentum as EnergyMomentum
from .explicit import ExplicitRK as ExplicitRK
from .generalized_alpha import GeneralizedAlpha as GeneralizedAlpha
from .simo_gonzalez import SimoGonzalez as SimoGonzalez

__all__ = [
    "BDF",
    "AbstractIntegrator",
    "EnergyDecaying",
    "EnergyMomentum",
    "ExplicitRK",
    "GeneralizedAlpha",
    "SimoGonzalez",
]
