"""The notebooks run from top to bottom, and are kept without outputs."""

import os
from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
FIRST = "first_steps"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells), "strip the outputs"
    for cell in cells:
        compile(cell.source, f"{path.name}: {cell.id}", "exec")


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# Kernels and their sockets are closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    # As tests compile: see tests/conftest.py. The others spend more time in what is compiled.
    environ = os.environ | ({"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} if path.stem == FIRST else {})
    client = nbclient.NotebookClient(notebook, timeout=400, kernel_name="python3")
    client.execute(env=environ)
    shown = [key for c in notebook.cells for o in c.get("outputs", []) for key in o.get("data", {})]
    assert "image/png" in shown
