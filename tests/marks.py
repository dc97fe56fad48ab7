"""Selection of the parameters of a test that run by default."""

from collections.abc import Iterable
from typing import Any

import pytest


def thorough_but(regular: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """`values`, with the mark `thorough` on all that are not `regular`."""
    regular = list(regular)
    return [x if x in regular else pytest.param(x, marks=pytest.mark.thorough) for x in values]
