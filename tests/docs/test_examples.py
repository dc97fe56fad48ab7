"""The examples of the documentation do what they say, and pass their own checks."""

import runpy
from pathlib import Path

import pytest

from tests.marks import thorough_but

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.py"))


FEW = [path for path in EXAMPLES if path.stem == "gyroscope"]


@pytest.mark.parametrize("path", thorough_but(FEW, EXAMPLES), ids=lambda path: path.stem)
def test_example(path):
    runpy.run_path(str(path))["checks"]()
