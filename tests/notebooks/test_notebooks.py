"""The notebooks are stored with the outputs of their code, and run from top to bottom."""

import os
from pathlib import Path

import nbformat
import pytest

from docs import execute_notebooks

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
LARGEST = 1_000_000  # [bytes], since every version stays in the repository.
DATA = "JAXMBD_SHARED_DATA"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_code(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = execute_notebooks.code_cells(notebook)
    for cell in cells:
        compile(cell.source, f"{path.name}: {cell.id}", "exec")
    outputs = [output for cell in cells for output in cell.outputs]
    if not outputs:
        pytest.skip("stored without outputs")
    remedy = f"python docs/execute_notebooks.py {path.stem}"
    assert execute_notebooks.is_current(notebook), f"the code has changed: run `{remedy}`"
    assert not [output for output in outputs if output.output_type == "error"]
    shown = [key for output in outputs for key in output.get("data", {})]
    assert "image/png" in shown or "text/html" in shown
    widgets = [output.data for output in outputs if "application/vnd.jupyter" in str(output)]
    shows_nothing = [data for data in widgets if not {"image/png", "text/html"} & set(data)]
    assert not shows_nothing, "a widget is empty without its kernel: show a GIF or a figure"
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_few_imports(path):
    first, *_ = execute_notebooks.code_cells(nbformat.read(path, as_version=4))
    imports = [line for line in first.source.splitlines() if line.startswith(("import", "from"))]
    assert len(imports) <= 8


def test_a_changed_cell_is_noticed():
    path = next(path for path in NOTEBOOKS if path.stem == "first_steps")
    notebook = nbformat.read(path, as_version=4)
    assert execute_notebooks.is_current(notebook)
    execute_notebooks.code_cells(notebook)[-1].source += "\n1"
    assert not execute_notebooks.is_current(notebook)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# Kernels and their sockets are closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    if any("import mujoco" in cell.source for cell in notebook.cells):
        pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
    if any(DATA in cell.source for cell in notebook.cells) and DATA not in os.environ:
        pytest.skip(f"the records of the rig are not here: {DATA} is not set")
    execute_notebooks.execute(notebook)
