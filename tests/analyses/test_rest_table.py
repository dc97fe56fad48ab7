"""Rest in every formulation: drainage beside Newton's method, linear equations, derivatives."""

import pytest

from benchmarks.rest_table import CASES, FORMULATIONS, PARAMETERS, Rest, measured
from tests.marks import thorough_but

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
    for name in slopes:
        assert errors[name] < 1e-7, name
