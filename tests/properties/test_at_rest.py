"""Mechanisms at rest whose terms cancel have accelerations: rounding errors are no failures."""

import numpy as np
import pytest

from tests.marks import thorough_but
from tests.properties import resting
from tests.properties.draws import FORMULATIONS

# Errors of accelerations in units of the precision and of 9.81 m/s² or the preload by the lightest
# mass. The second one is for each metre from the origin, which scales rounding errors of positions.
ERROR, ERROR_AWAY = 1e3, 50.0

REGULAR = [("a car", "joint", "float64")]
ALL = [
    (name, formulation, dtype)
    for name in resting.MODELS
    for formulation in ("joint", "maximal")
    for dtype in ("float64", "float32")
    if dtype == "float32" or name in ("a car", "a platform on six legs")
]


@pytest.mark.long
@pytest.mark.parametrize("case", thorough_but(REGULAR, ALL), ids="-".join)
def test_accelerations_at_rest(case):
    """Without and with gravity, near the origin and away from it, of equal and of unlike legs."""
    name, formulation, dtype = case
    resting_model = resting.MODELS[name]
    variations = resting.variations(resting_model.model, 60)
    pulls, shifts = map(np.asarray, variations[1:])
    rates = resting.accelerations(resting_model.model, FORMULATIONS[formulation], dtype, variations)
    failed = ~np.isfinite(rates).all(axis=(1, 2))
    assert not failed.any(), f"NaN at {shifts[failed]} m from the origin"
    linear, angular = np.linalg.norm(rates[..., :3], axis=-1), np.abs(rates[..., 3:])
    fall = 9.81 * pulls[:, None] * resting_model.falls
    roundings = ERROR + ERROR_AWAY * shifts
    tolerance = np.finfo(dtype).eps * resting_model.noise * roundings
    assert np.all(np.abs(linear - fall) <= tolerance[:, None])
    assert np.all(angular <= tolerance[:, None, None])
