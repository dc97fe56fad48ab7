"""Exponents of cost against size."""

from collections.abc import Mapping

import numpy as np


def exponent(costs: Mapping[int, float] | Mapping[float, float]) -> float:
    """p of cost = a nᵖ, by least squares in logarithms; NaN for fewer than two sizes."""
    if len(costs) < 2:
        return float("nan")
    sizes, values = np.array(list(costs), dtype=float), np.array(list(costs.values()))
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
