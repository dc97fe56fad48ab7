"""One step from state to state: integrators as diffrax solvers."""

from .abstract import AbstractIntegrator as AbstractIntegrator
from .explicit import ExplicitRK as ExplicitRK

__all__ = ["AbstractIntegrator", "ExplicitRK"]
