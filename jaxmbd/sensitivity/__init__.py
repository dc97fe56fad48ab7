"""Derivatives of results by numbers of a model, and their uncertainty."""

from .derivatives import sensitivities as sensitivities
from .slopes import Sensitivities as Sensitivities
from .uncertainty import Uncertainty as Uncertainty

__all__ = ["Sensitivities", "Uncertainty", "sensitivities"]
