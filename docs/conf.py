"""Sphinx configuration."""

import inspect
import os
import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import animations  # noqa: E402
import tables  # noqa: E402
from docutils import nodes  # noqa: E402
from sphinx import addnodes  # noqa: E402

import jaxmbd  # noqa: E402

project = "jaxmbd"
author = "The jaxmbd developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "generated", "generated_pages"]
html_theme = "furo"
html_title = "jaxmbd"
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["generated_pages"]  # Pages of their own: animations.
nb_execution_mode = "off"  # Outputs are stored: docs/execute_notebooks.py.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
default_role = "code"  # Docstrings are written with `single` backticks.
autodoc_typehints = "none"  # Docstrings give shapes and units.
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
maximum_signature_line_length = 88

# All are ignored by git. Links of notebooks and pages are those that a Git host shows.
tables.write_all(DOCS / "generated")
animations.write_all(DOCS / "generated_pages" / "animations")
copies = DOCS / "generated_notebooks"
shutil.rmtree(copies, ignore_errors=True)
copies.mkdir()
for notebook in (DOCS.parent / "notebooks").glob("*.ipynb"):
    text = notebook.read_text(encoding="utf-8").replace("](../docs/pages/", "](../pages/")
    (copies / notebook.name).write_text(text, encoding="utf-8")


def link_notebooks(app, docname, source):
    """Links to notebooks lead to their copies."""
    source[0] = source[0].replace("](../../notebooks/", "](../generated_notebooks/")


def make_figures(app, doctree):
    """An image by itself and the paragraph in italics below it are a figure with a caption."""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        if len(paragraph) != 1 or not isinstance(paragraph[0], nodes.image):
            continue
        below = paragraph.next_node(descend=False, siblings=True)
        if isinstance(below, nodes.paragraph) and isinstance(below[0], nodes.emphasis):
            caption = nodes.caption("", "", *below[0].children)
            figure = nodes.figure("", paragraph[0], caption)
            doctree.set_id(figure)
            paragraph.replace_self(figure)
            below.parent.remove(below)


def documented_names():
    """Names in backticks, and the entries of the reference that they link to.

    Names of modules in small letters, such as `rod`, are often names of bodies: they need the
    module, `inertia.rod`.
    """
    targets = {}
    modules = ("joints", "forces", "signals", "contact", "tyres", "inertia", "flexible", "io")
    modules += ("sensors",)
    for module in modules:
        for name in getattr(jaxmbd, module).__all__:
            targets[f"{module}.{name}"] = f"jaxmbd.{module}.{name}"
            if name[0].isupper():
                targets[name] = f"jaxmbd.{module}.{name}"
    errors = {name for name, value in vars(jaxmbd.errors).items() if inspect.isclass(value)}
    targets |= {name: f"jaxmbd.errors.{name}" for name in errors}
    public = {name: f"jaxmbd.{name}" for name in jaxmbd.__all__ if name not in modules}
    return {**public, **targets}


NAMES = documented_names()
IN_BACKTICKS = re.compile(r"(?<![`:\w])`((?:mbd\.)?[\w.]+)`(?![`_\w])")


def link_names(app, what, name, obj, options, lines):
    """Link names of the reference in docstrings to their entries."""

    def linked(match):
        shown = match.group(1)
        target = NAMES.get(shown.removeprefix("mbd."))
        return match.group() if target is None else f":py:obj:`{shown} <{target}>`"

    lines[:] = [IN_BACKTICKS.sub(linked, line) for line in lines]


def link_names_of_pages(app, doctree):
    """Link names of the reference on pages to their entries."""
    for literal in list(doctree.findall(nodes.literal)):
        target = NAMES.get(literal.astext().removeprefix("mbd."))
        inside = (nodes.reference, nodes.title, addnodes.pending_xref)
        if target is None or isinstance(literal.parent, inside):
            continue
        link = addnodes.pending_xref(
            "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refwarn=False
        )
        link["refdoc"] = app.env.docname
        literal.replace_self(link)
        link += literal


def keep_equations(app, what, name, obj, options, lines):
    """Indented blocks after a colon are equations or code: keep their lines apart.

    Elsewhere |x| is an absolute value, not a substitution.
    """
    literal = False
    for i, line in enumerate(lines):
        literal = literal and (line == "" or line.startswith("  "))
        if not literal:
            lines[i] = line.replace("|", r"\|")
        follows = lines[i + 1 : i + 2] == [""] and re.match(
            r" {2,}(?![-*] )\S", _line(lines, i + 2)
        )
        if follows and line.endswith(":"):
            literal = True
            lines[i] += "" if line.endswith("::") else ":"


def _line(lines, i):
    return lines[i] if i < len(lines) else ""


def setup(app):
    app.connect("autodoc-process-docstring", link_names)
    app.connect("source-read", link_notebooks)
    app.connect("doctree-read", make_figures)
    app.connect("doctree-read", link_names_of_pages)
    app.connect("autodoc-process-docstring", keep_equations)
