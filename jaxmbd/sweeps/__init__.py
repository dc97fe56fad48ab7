"""Evaluation of a function for many scenarios: Monte Carlo and design studies."""

from . import distributions as distributions
from . import reducers as reducers
from .sweep import sweep as sweep

__all__ = ["distributions", "reducers", "sweep"]
