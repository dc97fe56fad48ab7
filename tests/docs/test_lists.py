"""Tables and lists of the pages are complete: they name all that the package has."""

import ast
import inspect
import re
import tomllib

import diffrax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from docs import tables
from jaxmbd import bodies, errors
from jaxmbd.integrators import AbstractIntegrator
from tests.docs.test_pages import PAGES, ROOT, blocks

# Pages that together name all components of a module.
HOMES = {
    "joints": ("conventions", "model"),
    "bodies": ("model", "flexible"),
    "forces": ("model",),
    "signals": ("model",),
    "sensors": ("identification", "flexible", "contact"),
    "contact": ("contact",),
    "tyres": ("tyres",),
}


def text(*names):
    return "\n".join((PAGES / f"{name}.md").read_text() for name in names)


def inline(page):
    """Code within the text of a page."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`[^`]+`", prose)


def not_named(names, page):
    """Names that no code within the text has."""
    code = "\n".join(inline(page))
    return [name for name in names if not re.search(rf"\b{name}\b", code)]


@pytest.mark.parametrize("module", HOMES)
def test_components_are_listed(module):
    home = bodies if module == "bodies" else getattr(mbd, module)
    found = {name: getattr(home, name) for name in home.__all__}
    components = [
        name
        for name, kind in found.items()
        if inspect.isclass(kind)
        and not name.startswith("Abstract")
        and any(base.__name__.startswith("Abstract") for base in kind.__mro__)
    ]
    assert len(components) >= 3
    assert not not_named(components, text(*HOMES[module]))


def test_exceptions_warnings_and_result_codes_are_listed():
    found = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    kinds = [name for name, kind in found.items() if issubclass(kind, Exception)]
    kinds += [name for name in mbd.__all__ if name.endswith(("Warning", "Error"))]
    codes = set(mbd.RESULTS._name_to_item) - set(diffrax.RESULTS._name_to_item)
    assert {"at_bound", "not_finite"} <= codes
    assert not not_named([*kinds, *codes], text("errors"))


def test_extras_are_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = re.findall(r"^\| `(\w+)` \|.*\|$", text("install"), re.MULTILINE)
    assert sorted(listed) == sorted(project["optional-dependencies"])


def test_every_page_is_in_one_place_of_the_site():
    pages = [ROOT / "docs" / "index.md", *PAGES.glob("*.md")]
    listed = re.findall(
        r"^```{toctree}.*?^```", "\n".join(x.read_text() for x in pages), re.MULTILINE | re.DOTALL
    )
    names = re.findall(r"^(?:pages/)?(\w+)$", "\n".join(listed), re.MULTILINE)
    assert sorted(names) == sorted(page.stem for page in PAGES.glob("*.md"))


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted(PAGES.glob("*.md"))],
    ids=lambda page: page.stem,
)
def test_pictures_have_an_alternative_text_and_a_caption(page):
    text = page.read_text()
    assert "{image}" not in text, "a Git host shows ![text](file), and italics below as a caption"
    alternatives = re.findall(r"!\[(.*?)\]\(", text)
    assert all(len(x) >= 3 for x in alternatives)
    alone = re.findall(r"^!\[[^]]*\]\((\S+)\)\n\n(.*)$", text, re.MULTILINE)
    assert not [name for name, below in alone if not below.startswith("*")]


def test_measured_times_are_in_one_place():
    """Elsewhere they would differ from the next measurement. `Stepper` has its own benchmark."""
    pages = [page.stem for page in PAGES.glob("*.md") if re.search(r"\bµs\b", page.read_text())]
    assert "benchmarks" in pages
    assert {*pages} <= {"benchmarks", "decisions", "stepper", "chains_table"}


def test_lines_that_choosing_recommends_are_calls_that_exist():
    page = PAGES / "choosing.md"
    known = {"jnp": jnp, "result": len}
    exec(
        compile("\n".join(blocks(page, "python")).partition("motion =")[0], page.name, "exec"),
        known,
    )
    lines = re.findall(r"^\| [^|]+ \| `([^`]+)` \| [^|]+ \|$", page.read_text(), re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        call = ast.parse(line, mode="eval").body
        given = [eval(ast.unparse(argument), known) for argument in call.args]
        named = {x.arg: eval(ast.unparse(x.value), known) for x in call.keywords}
        inspect.signature(eval(ast.unparse(call.func), known)).bind(*given, **named)


def cells(table):
    return [[x.strip(" `") for x in line.split("|")[1:-1]] for line in table.splitlines()]


@pytest.mark.long
def test_tables_of_formulations_and_integrators():
    public = {name: getattr(mbd, name) for name in mbd.__all__}
    integrators = {
        name
        for name, kind in public.items()
        if inspect.isclass(kind) and issubclass(kind, AbstractIntegrator)
    }
    formulations = {*tables.formulations()}
    assert formulations == {
        name for name in public if name.endswith(("Coordinates", "Transformation"))
    }
    (_, *columns), _, *rows = cells(tables.compatibility())
    assert set(columns) == integrators
    assert {name for name, *_ in rows} == formulations
    for column, *accepted in zip(columns, *(row[1:] for row in rows), strict=True):
        assert {*accepted} & {"yes", "trees"}, f"{column} accepts nothing"
    trees = {columns[k] for row in rows for k, x in enumerate(row[1:]) if x == "trees"}
    assert trees == {"SemiImplicitEuler"}


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_joints_named_in_the_text_are_those_of_the_code(page):
    """Names of joints that arguments give."""
    code = "\n".join(blocks(page, "python"))
    lists = [
        names
        for span in inline(page.read_text())
        for names in re.findall(r"\b(?:joints|hold|cut)=\[(.*?)\]", span)
    ]
    named = {name for names in lists for name in re.findall(r'"([\w ]+)"', names)}
    assert not {name for name in named if f'"{name}"' not in code}
