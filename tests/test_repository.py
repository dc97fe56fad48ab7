"""Rules of the repository that no other tool holds: layers, lengths, hosts, docstrings."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import jaxmbd

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE, COMPILER = REPOSITORY / "jaxmbd", REPOSITORY / "scalarjit"

# What each part of the package may import, itself apart. io and viz stand on top of everything,
# and nobody imports them but inside a function: plotting and file formats load when first used.
BOTTOM = {"errors", "runtime_guard"}
MATHEMATICS = BOTTOM | {"accelerators", "lie", "linear", "programs"}
DESCRIPTION = {"model", "inertia", "signals", "bodies", "joints", "contact", "tyres", "forces"}
MECHANISM = MATHEMATICS | DESCRIPTION | {"mechanism"}
SYSTEM = MECHANISM | {"system"}
NUMERICS = SYSTEM - {"bodies", "joints"} | {"nonlinear", "integrators"}
ROOMS = {
    "gradients",
    "identification",
    "inspection",
    "linearization",
    "motion",
    "sensitivity",
    "statics",
    "sweeps",
}
ANALYSES = SYSTEM | NUMERICS | {"sensors", "formulations"} | ROOMS
SUPPORTED = {
    **dict.fromkeys(BOTTOM, BOTTOM),
    **dict.fromkeys({"accelerators", "lie", "linear", "programs"}, MATHEMATICS),
    **dict.fromkeys(DESCRIPTION, MATHEMATICS | DESCRIPTION),
    "mechanism": MECHANISM,
    "system": SYSTEM,
    "sensors": SYSTEM | {"sensors"},
    "flexible": MATHEMATICS | DESCRIPTION | {"flexible"},
    "control": SYSTEM | {"sensors", "control"},
    "formulations": SYSTEM | {"formulations", "nonlinear"},
    "nonlinear": NUMERICS - {"integrators"},
    "integrators": NUMERICS,
    **dict.fromkeys(ROOMS, ANALYSES),
}
# Imported for annotations alone: groups of elements gather from a configuration.
TYPES = {"mechanism": {"system"}}
LEAVES = {"io", "viz"}
TOP = {"__init__", "cli", "demo", "environment", "extend", "testing"} | LEAVES


class Import(NamedTuple):
    target: str  # dotted, absolute
    line: int
    lazy: bool  # inside a function, or for the type checker only


def part(path: Path) -> str:
    """The folder or module directly below jaxmbd/ that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[Import]:
    package = path.relative_to(REPOSITORY).parent.parts

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                yield Import(f"{module}.{alias.name}", node.lineno, lazy)
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, lazy or function or typing_only)

    yield from visit(syntax(path), lazy=False)


def violations(path: Path) -> Iterator[str]:
    importer = part(path)
    if importer not in SUPPORTED and importer not in TOP:
        yield f"{path.relative_to(REPOSITORY)}: '{importer}' has no layer yet; add it to {__file__}"
        return
    for target, line, lazy in imports(path):
        names = target.split(".")
        if names[0] != "jaxmbd":
            continue
        imported = names[1] if len(names) > 1 else "__init__"
        if imported not in SUPPORTED and imported not in TOP:
            imported = "__init__"  # a name that the package itself re-exports
        where = f"{path.relative_to(REPOSITORY)}:{line}: {importer} imports {imported}"
        if imported == importer:
            continue
        if imported in LEAVES:
            if not lazy:
                yield f"{where} at module level"
        elif (
            importer in SUPPORTED
            and imported not in SUPPORTED[importer]
            and not (lazy and imported in TYPES.get(importer, ()))
        ):
            yield where


def test_import_layers():
    found = [line for path in sorted(PACKAGE.rglob("*.py")) for line in violations(path)]
    assert not found, "\n".join(found)


def test_the_compiler_imports_nothing_of_the_simulator():
    """Neither do its tests, beside marks for tests of the repository."""
    compiler = {"scalarjit", "jax", "jaxlib", "numpy", "equinox", "llvmlite"}
    tests = compiler | {"pytest", "tests.scalarjit", "tests.marks"}
    found = []
    for folder, allowed in ((COMPILER, compiler), (REPOSITORY / "tests/scalarjit", tests)):
        for path in folder.rglob("*.py"):
            for target, line, _ in imports(path):
                names = target.split(".")
                name = ".".join(names[: 1 + (names[0] == "tests")])
                if name not in allowed and name not in sys.stdlib_module_names:
                    found.append(f"{path.relative_to(REPOSITORY)}:{line}: {target}")
    assert not found, "\n".join(found)


def modules() -> dict[str, Path]:
    sources = [*PACKAGE.rglob("*.py"), *COMPILER.rglob("*.py")]
    paths = {path.relative_to(REPOSITORY).with_suffix(""): path for path in sources}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


@functools.cache
def loaded_with() -> dict[str, set[str]]:
    """The modules that each module imports by itself, and the packages around it and them."""
    every = modules()
    loaded = {}
    for name, path in every.items():
        targets = {target for target, _, lazy in imports(path) if not lazy} | {name}
        parents = {".".join(t.split(".")[:n]) for t in targets for n in range(2, t.count(".") + 2)}
        loaded[name] = parents & every.keys() - {name}
    return loaded


def test_parts_do_not_import_one_another_in_circles():
    """Public names are imported on first use, in any order.

    A package whose `__init__` imports its modules is one part: it is imported as a whole.
    """
    loaded = loaded_with()

    def part_of(module: str) -> str:
        names = module.split(".")
        around = [".".join(names[:n]) for n in range(2, len(names))]
        whole = (name for name in around if any(x.startswith(f"{name}.") for x in loaded[name]))
        return next(whole, module)

    parts: dict[str, set[str]] = {}
    for module, others in loaded.items():
        own = part_of(module)
        parts.setdefault(own, set()).update({part_of(x) for x in others} - {own})
    graphlib.TopologicalSorter(parts).prepare()  # Raises an error that names a circle.


def test_a_name_of_a_module_has_one_meaning():
    """`abstract` and `system` have the same role in each package."""
    names = [path.stem for path in PACKAGE.rglob("*.py")]
    repeated = {name for name in names if names.count(name) > 1}
    assert repeated == {"__init__", "abstract", "system"}


def registrations(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Generic function and class, as written, of each `register` of a `singledispatch`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for decorator in map(ast.unparse, node.decorator_list):
                if decorator.endswith(".register"):
                    yield decorator, ast.unparse(node.args.args[0].annotation)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = ast.unparse(node.value.func)
            if function.endswith(".register"):
                yield function, ast.unparse(node.value.args[0])


def test_registrations_are_loaded_with_their_function_or_class():
    """Otherwise a generic function would find them only if somebody imported their module."""
    loaded = loaded_with()
    trees = {name: syntax(path) for name, path in modules().items()}
    homes: dict[str, set[str]] = {}
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                homes.setdefault(node.name, set()).add(module)

    @functools.cache
    def all_loaded(start: str) -> set[str]:
        seen, left = {start}, [start]
        while left:
            new = loaded[left.pop()] - seen
            seen |= new
            left += new
        return seen

    checked, lost = 0, []
    for module, tree in trees.items():
        for function, classes in registrations(tree):
            generic = function.split(".")[-2]
            for name in re.findall(r"[A-Z]\w+", classes):
                checked += 1
                starts = homes.get(generic, set()) | homes.get(name, set())
                if not any(module in all_loaded(start) for start in starts):
                    lost.append(f"{module}: {generic} of {name}")
    assert checked > 10
    assert not lost, "\n".join(lost)


def docstring_lines(tree: ast.AST) -> int:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    owners = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    docstrings = [node.body[0] for node in owners if ast.get_docstring(node) is not None]
    return sum(node.end_lineno - node.lineno + 1 for node in docstrings)


def too_long(path: Path) -> Iterator[str]:
    text = path.read_text()
    tree = ast.parse(text)
    where, lines = path.relative_to(REPOSITORY), len(text.splitlines())
    if lines > 500 and lines - docstring_lines(tree) > 500:
        yield f"{where}: {lines - docstring_lines(tree)} lines, 500 allowed"
    # Tree algorithms read better in one piece.
    limit = 100 if where.parts[:2] == ("jaxmbd", "formulations") else 60
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            if length > limit and (length := length - docstring_lines(node)) > limit:
                yield f"{where}:{node.lineno}: {node.name} has {length} lines, {limit} allowed"


def repository_files() -> list[Path]:
    """Files under version control, and those that would be if they were added now."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [REPOSITORY / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_lengths():
    """At most 500 lines a file and 60 a function (100 in formulations/), docstrings apart."""
    sources = [path for path in repository_files() if path.suffix == ".py"]
    found = [line for path in sources for line in too_long(path)]
    assert not found, "\n".join(found)


# In pieces, so that this file does not find itself.
HOSTS = [
    ".".join(host)
    for host in [("pypi", "org"), ("pythonhosted", "org"), ("registry", "npmjs"), ("deb", "debian")]
]
MACHINE_PATH = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm)/", re.MULTILINE)


def test_readme_announces_the_command_that_ci_runs():
    readme = (REPOSITORY / "README.md").read_text()
    announced = readme.lower().partition("run the tests")[2]
    assert "-m pytest" in announced.partition("```")[2].partition("```")[0]


def test_versions_agree():
    """The package, its citation and the latest release of the changelog, with its date."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    citation = (REPOSITORY / "CITATION.cff").read_text()
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    cited = re.search(r'^version: (\S+)\ndate-released: "(\S+)"$', citation, re.MULTILINE)
    released = re.search(r"^## (\d\S+) - (\S+)$", changelog, re.MULTILINE)
    assert cited
    assert released
    assert cited.groups() == released.groups()
    assert project["version"] == released[1]


def test_no_registry_hosts_and_no_machine_paths():
    """Hosts of packages are the installer's choice, and paths differ between machines."""
    found = []
    for path in repository_files():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [f"{path}: {host}" for host in HOSTS if host in text]
        found += [f"{path}: {match.group().strip()}" for match in MACHINE_PATH.finditer(text)]
    assert not found, "\n".join(found)


def test_public_names_have_docstrings():
    found = []
    for name in jaxmbd.__all__:
        text = getattr(jaxmbd, name).__doc__ or ""
        # A dataclass without a docstring is given its signature as one.
        if not text.strip() or text.startswith(f"{name}("):
            found.append(name)
    assert not found, f"without a docstring: {', '.join(found)}"
