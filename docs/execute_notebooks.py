"""Execute notebooks and store them with their outputs.

    python docs/execute_notebooks.py [NAME ...]

Without names, all notebooks whose code has changed since their outputs were stored are executed.
The documentation shows the stored outputs, so that building it takes no time. A default test
compares the code with the fingerprint that this script writes, and thorough tests execute every
notebook again. Run `ruff format notebooks` before: the fingerprint is that of the text.
"""

import argparse
import base64
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
TIMEOUT = 1800  # For one cell [s].
# Figures that other pages show as well: the k-th picture of a notebook.
PICTURES = {
    ("robot_arm", 0): "robot_arm.png",
    ("fit_a_rig", 1): "fit_a_rig.png",
    ("monte_carlo", 0): "monte_carlo.png",
    ("batches", 0): "batches.png",
    ("first_steps", 1): "first_steps.png",
}
# Lines of figures and widgets that differ from run to run and say nothing.
NOISE = re.compile(r" at 0x[0-9a-f]+")


def code_cells(notebook):
    """Cells with code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def fingerprint(notebook):
    """Hash of all code."""
    text = "\n\0\n".join(cell.source for cell in code_cells(notebook))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_current(notebook):
    """True if the outputs belong to the code."""
    return notebook.metadata.get("jaxmbd", {}).get("executed") == fingerprint(notebook)


def execute(notebook):
    """Run a notebook in an empty folder, with this checkout's jaxmbd; it gets the outputs."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook,
            timeout=TIMEOUT,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=environment)


def merged(outputs):
    """Outputs with printed lines in one piece."""
    result = []
    for output in outputs:
        if result and output.output_type == result[-1].output_type == "stream":
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def store(notebook, path):
    """Write a notebook as git keeps it: outputs without times and addresses."""
    for count, cell in enumerate(code_cells(notebook), 1):
        cell.metadata.pop("execution", None)
        cell.execution_count = count
        cell.outputs = merged(o for o in cell.outputs if o.get("name") != "stderr")
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = count
            if "text" in output:
                output["text"] = NOISE.sub("", output["text"])
            data = output.get("data", {})
            if "text/plain" in data:
                data["text/plain"] = NOISE.sub("", data["text/plain"])
    notebook.metadata = {
        "jaxmbd": {"executed": fingerprint(notebook)},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.validate(notebook)
    text = nbformat.writes(notebook)
    path.write_text(text + "\n" if not text.endswith("\n") else text, encoding="utf-8")


def export_pictures(notebook, name):
    """Write the figures that other pages show."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    shown = [o.data["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    for (owner, k), picture in PICTURES.items():
        if owner == name:
            (ROOT / "docs" / "images" / picture).write_bytes(base64.b64decode(shown[k]))


def main(names):
    """Execute the named notebooks, or all whose outputs are not current."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if path.stem in names or (not names and not is_current(notebook)):
            sys.stdout.write(f"{path.stem}\n")
            sys.stdout.flush()
            execute(notebook)
            store(notebook, path)
            export_pictures(notebook, path.stem)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="names of notebooks, without folder and ending")
    sys.exit(main(parser.parse_args().names))
