"""Rest in every formulation: drainage beside Newton's method, linear equations, derivatives."""

import pytest

from benchmarks.rest_table import CASES, FORMULATIONS, PARAMETERS, Rest, measured
from tests.marks import thorough_but

# Measured: 7e-7 and 3e-7 by the tilt; 1e-7 at most in the other cases.
LIMITS = {("redundant four-bar", "maximal"): {"reaction": 1e-6, "eigenvalue": 1e-6}}
ALL = [(name, formulation) for name in CASES for formulation in FORMULATIONS]


@pytest.mark.parametrize("case", thorough_but([], ALL), ids="-".join)
def test_methods_formulations_and_derivatives(case):
    """Open and closed loops, also redundant ones, by lengths, stiffnesses, masses and axes."""
    errors = measured(*case)
    assert errors["drainage"] < 1e-10
    assert errors["position"] < 1e-10
    assert errors["linear"] < 1e-9
    slopes = {f"{quantity} by {name}" for quantity in Rest._fields for name in PARAMETERS}
    assert slopes <= errors.keys()
    limits = LIMITS.get(case, {})
    for name in slopes:
        assert errors[name] < limits.get(name.split()[0], 1e-7), name
