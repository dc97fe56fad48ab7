"""The examples of the documentation do what they say, and pass their own checks."""

import ast
import runpy
from pathlib import Path

import pytest

from tests.marks import thorough_but

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.py"))


FEW = [path for path in EXAMPLES if path.stem == "gyroscope"]


@pytest.mark.parametrize("path", thorough_but(FEW, EXAMPLES), ids=lambda path: path.stem)
def test_example(path):
    runpy.run_path(str(path))["checks"]()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_import_the_package_and_what_extends_it_only(path):
    """Documented ways to add a part use only public modules and `jaxmbd.extend`."""
    found = [
        name
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if name.split(".")[0] == "jaxmbd"
    ]
    assert set(found) <= {"jaxmbd", "jaxmbd.extend"}
