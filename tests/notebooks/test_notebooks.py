"""The notebooks run from top to bottom, and are kept without outputs."""

import os
from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# Kernels and their sockets are closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "strip the outputs"
    # As tests compile: see tests/conftest.py.
    environ = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    client = nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3")
    client.execute(env=environ)
    shown = [key for c in notebook.cells for o in c.get("outputs", []) for key in o.get("data", {})]
    assert "image/png" in shown
