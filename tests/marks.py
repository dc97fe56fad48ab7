"""Which parameters of a test are run each time, and which in thorough runs alone."""

from collections.abc import Iterable
from typing import Any

import pytest


def thorough_but(regular: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """`values`, of which all that are not `regular` wait for a thorough run."""
    regular = list(regular)
    return [x if x in regular else pytest.param(x, marks=pytest.mark.thorough) for x in values]
