"""Pages: their code runs, files that they name exist, no public name is missing."""

import ast
import builtins
import json
import re
import symtable
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxmbd as mbd
from tests.docs.test_docstring_examples import ROBOT
from tests.marks import thorough_but

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "pages"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Pages whose code takes seconds: long tests run its first block, thorough ones all of it.
QUICK = ("README", "install", "model", "urdf", "mjcf", "methods", "simulation", "how_it_works")
LONGEST = ("howto_short", "identification", "loops")  # Thorough tests run their first blocks, too.
# The error that the code of this page raises is its output.
RAISES = PAGES / "extending.md"
PAGES_WITH_CODE = [
    page
    for page in (ROOT / "README.md", *sorted(PAGES.glob("*.md")))
    if "```python\n" in page.read_text() and page != RAISES
]


def blocks(page, language):
    """Fenced blocks of a page."""
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def code_and_output(page):
    """Blocks of Python, each with its output, the text that follows it at once, or None."""
    output = r"(?:\s*^```text\n(.*?)^```)?"
    found = re.findall(rf"^```python\n(.*?)^```{output}", page.read_text(), re.M | re.S)
    return [(code, shown or None) for code, shown in found]


def loaded_and_stored(code):
    """Names that code uses before it gives them a value, and those that it gives one."""
    table = symtable.symtable(code, "page", "exec")
    stored = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}

    def loaded(scope):
        own = scope.get_symbols()
        found = {s.get_name() for s in own if s.is_referenced() and s.is_global()}
        return found.union(*(loaded(child) for child in scope.get_children()))

    top = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    return loaded(table) | top, stored


@pytest.mark.parametrize("page", [*PAGES_WITH_CODE, RAISES], ids=lambda page: page.stem)
def test_code_of_a_page_stands_alone(page):
    """It imports what it uses, so that it can be pasted into an empty file, and shows an output."""
    known = set(vars(builtins))
    for code, _ in code_and_output(page):
        used, stored = loaded_and_stored(code)
        assert not used - stored - known, "import or define these names on the page"
        known |= stored
    if page != RAISES:
        silent = [code for code, shown in code_and_output(page) if shown is None]
        assert not [code for code in silent if "print(" in code], "show the output"
        assert code_and_output(page)[0][1], "the first block prints"
    code = code_and_output(page)[0][0]
    imported = re.findall(r"^import ([\w.]+)(?: as (\w+))?$", code, re.MULTILINE)
    unused = [name for name in imported if not re.search(rf"\b{name[1] or name[0]}\.", code)]
    assert not unused, "import these where they are used first"


@pytest.fixture
def float32():
    """The state of JAX in a new process: pages switch double precision on themselves."""
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def ran(page, capsys, last=None):
    """Names after the code of a page, or that up to a block, ran; outputs are those shown."""
    known = {}
    for code, shown in code_and_output(page)[:last]:
        capsys.readouterr()
        exec(compile(code, page.name, "exec"), known)
        if shown is not None:
            assert_same_output(capsys.readouterr().out, shown)
    return known


NUMBER = r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?"


def assert_same_output(printed, shown):
    """Equal words, and numbers equal to rounding."""
    words = [re.sub(NUMBER, "#", text).split() for text in (printed, shown)]
    assert words[0] == words[1], f"the page shows other output than\n{printed}"
    found = [[float(x) for x in re.findall(NUMBER, text)] for text in (printed, shown)]
    np.testing.assert_allclose(*found, atol=2e-3, rtol=2e-3, err_msg="the page shows other numbers")


@pytest.mark.long
@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize(
    "page",
    thorough_but(
        [page for page in PAGES_WITH_CODE if page.stem not in (*QUICK, *LONGEST)],
        [page for page in PAGES_WITH_CODE if page.stem not in QUICK],
    ),
    ids=lambda page: page.stem,
)
def test_first_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran(page, capsys, 1)


@pytest.mark.long
@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize(
    "page",
    thorough_but([page for page in PAGES_WITH_CODE if page.stem in QUICK], PAGES_WITH_CODE),
    ids=lambda page: page.stem,
)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if page.stem == "mjcf":
        pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
    Path("robot.urdf").write_text(ROBOT)
    known = ran(page, capsys)
    if page.stem == "README":
        assert known["motion"].frames["tip"].p.shape == (201, 3)
        assert Path("rod.gif").is_file()
        assert known["slope"] != 0
    if page.stem == "simulation":
        tip = known["motion"].frames["tip"].p
        np.testing.assert_allclose(tip[-1, 2], -0.9, atol=1e-6)
    if page.stem == "controllers":
        laws = {"level": known["level"], "slow": known["slow"]}
        model = known["model"].with_(forces=laws)
        assert mbd.formulate(model, mbd.JointCoordinates()).nz == 2
        assert known["slope"] != 0
    if page.stem == "gradients":
        assert known["ends"].shape == (1024, 3)
        assert known["slope"].shape == (1,)


def codes(path):
    """Python code of a page, a notebook, or a module with the examples of its docstrings."""
    text = path.read_text()
    if path.suffix == ".md":
        return blocks(path, "python")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    strings = [x.value for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Constant)]
    parts = [x.split("For example:\n") for x in strings if isinstance(x, str)]
    own = [] if path.is_relative_to(ROOT / "jaxmbd") else [text]
    return own + [textwrap.dedent(example) for _, *after in parts for example in after]


KINDS = list(mbd.Model.__dataclass_fields__)


def rebuilt(code):
    """Calls of `Model` with parts of another model, which lose the parts that they leave out."""
    calls = [x for x in ast.walk(ast.parse(code)) if isinstance(x, ast.Call)]
    calls = [x for x in calls if ast.unparse(x.func).split(".")[-1] == "Model"]
    return [
        ast.unparse(call)
        for call in calls
        for argument in (*call.args, *(x.value for x in call.keywords))
        for x in ast.walk(argument)
        if isinstance(x, ast.Attribute) and x.attr in KINDS and ast.unparse(x.value) != "mbd"
    ]


def test_no_example_rebuilds_a_model_by_hand():
    assert rebuilt("driven = mbd.Model(m.bodies, m.joints, {**m.forces, 'push': push}, m.frames)")
    folders = ("docs", "notebooks", "examples", "benchmarks", "jaxmbd")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    found = [ROOT / "README.md", *(x for x in found if x.suffix in (".md", ".ipynb", ".py"))]
    found = [path for path in found if "Model(" in path.read_text()]
    losing = {path.name: rebuilt(code) for path in found for code in codes(path)}
    assert not {name: calls for name, calls in losing.items() if calls}, "use Model.with_"


def test_a_check_fails_as_the_page_says():
    (code,), (said,) = blocks(RAISES, "python"), blocks(RAISES, "text")
    with pytest.raises(AssertionError) as caught:
        exec(compile(code, RAISES.name, "exec"), {})
    assert f"AssertionError: {caught.value}" == said.rstrip()


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"`([\w/]+\.(?:py|ipynb))`", page.read_text())
    homes = (ROOT, ROOT / "jaxmbd", ROOT / "tests")
    missing = [path for path in named if not any((home / path).is_file() for home in homes)]
    assert not missing


@pytest.mark.parametrize(
    "path",
    [*map(ROOT.joinpath, ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *PAGES.glob("*.md")],
    ids=lambda path: path.stem,
)
def test_links_that_a_git_host_shows_lead_to_files(path):
    """Sphinx reads some of these files in part, or not at all, and has copies of notebooks."""
    links = re.findall(
        r"\]\(([^)#]+)", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    )
    local = [link for link in links if not link.startswith("https:")]
    assert local
    assert not [link for link in local if not (path.parent / link).exists()]


def test_what_the_examples_import_is_in_the_reference():
    text = (PAGES / "api.md").read_text()
    for path in sorted((ROOT / "docs" / "examples").glob("*.py")):
        for module, imported in re.findall(
            r"^from (jaxmbd\S*) import (.+)$", path.read_text(), re.M
        ):
            for name in imported.split(", "):
                whole = rf"^\.\. .*:: {re.escape(module)}(\.\w+)*\.{name}(\(.*\))?$"
                members = rf"^\.\. automodule:: {re.escape(module)}$"
                assert re.search(f"{whole}|{members}", text, re.M), f"{path.name}: {name}"


def test_public_names_are_in_the_reference():
    text = (PAGES / "api.md").read_text()
    missing = []
    for name in mbd.__all__:
        public = getattr(mbd, name)
        wanted = public.__name__ if isinstance(public, type(re)) else f"jaxmbd.{name}"
        if not re.search(rf"^\.\. .*:: {re.escape(wanted)}(\.\w+)*$", text, re.MULTILINE):
            missing.append(name)
    errors = {"AssemblyError", "DataError", "EquilibriumError"}
    errors |= {"IncompatibleIntegrator", "ModelError"}
    assert set(missing) == {"Pose", "SimulationError"} | errors  # In the modules lie and errors.
