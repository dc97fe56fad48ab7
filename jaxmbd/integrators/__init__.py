"""One step from state to state: integrators as diffrax solvers."""

from .abstract import AbstractIntegrator as AbstractIntegrator
from .explicit import ExplicitRK as ExplicitRK
from .generalized_alpha import GeneralizedAlpha as GeneralizedAlpha

__all__ = ["AbstractIntegrator", "ExplicitRK", "GeneralizedAlpha"]
