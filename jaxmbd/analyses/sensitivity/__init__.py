"""How results depend on numbers of a model, and how uncertain they are with these."""

from .derivatives import sensitivities as sensitivities
from .slopes import Sensitivities as Sensitivities
from .uncertainty import Uncertainty as Uncertainty

__all__ = ["Sensitivities", "Uncertainty", "sensitivities"]
