"""Sphinx configuration."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jaxmbd as mbd  # noqa: E402

project = "jaxmbd"
author = "The jaxmbd developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
nb_execution_mode = "off"  # The tests execute the notebooks.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
autodoc_default_options = {"members": True}
autodoc_typehints = "none"
autodoc_member_order = "bysource"


def compatibility_table() -> str:
    """Formulations by integrators, from the traits of the systems."""
    from jaxmbd.formulations.joint import JointSystem
    from jaxmbd.formulations.maximal import MaximalSystem

    lines = [
        "| formulation | mass matrix | coordinates | constraints | `ExplicitRK` |",
        "|---|---|---|---|---|",
    ]
    for formulation, system, constraints in (
        (mbd.JointCoordinates, JointSystem, "joints that close loops"),
        (mbd.MaximalCoordinates, MaximalSystem, "every joint"),
    ):
        mass = "constant" if system.constant_mass else "depends on q"
        space = "a vector space" if system.euclidean else "a manifold, stored as numbers"
        lines.append(f"| `{formulation.__name__}` | {mass} | {space} | {constraints} | yes |")
    return "\n".join(lines) + "\n"


(Path(__file__).parent / "generated").mkdir(exist_ok=True)
(Path(__file__).parent / "generated" / "compatibility.md").write_text(compatibility_table())
exclude_patterns.append("generated")


def setup(app):
    """Copy the notebooks in, so that they are pages like the others."""
    target = Path(__file__).parent / "generated_notebooks"
    target.mkdir(exist_ok=True)
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        (target / notebook.name).write_text(notebook.read_text())
