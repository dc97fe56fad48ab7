"""Settings of every test: float64, no silent promotion, warnings as errors.

Two environment variables change this:

- `JAXMBD_TEST_SHAPES=1` checks the types and shapes of all arguments of the package's functions.
  The checks slow tracing. Set it before a release.
- `JAX_DISABLE_MOST_OPTIMIZATIONS=0` compiles with XLA's default optimizations.
"""

import os

# One BLAS thread: the solves are small, and XLA and the test workers already use every core.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import gc
import importlib.util
from contextlib import nullcontext
from pathlib import Path

from jaxlib.version import __version__ as jaxlib_version

# XLA's newer compiler of fused operations takes more than half of the time to compile; the one
# before does without. To divide programs for a pool of threads takes a sixth of the rest, and the
# test workers use all cores. The switches are known to be there in jaxlib 0.10, and XLA ends the
# process on a flag that it does not know. What tests run in processes of their own inherits them.
given = os.environ.get("XLA_FLAGS", "")
if jaxlib_version.startswith("0.10.") and (not given or given.startswith("-")):
    quick = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{quick} {given}".rstrip()

# Programs of analyses and generated code, which all workers of a run share, and later runs too.
REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY / ".pytest_cache" / "jaxmbd"
os.environ.setdefault("SCALARJIT_CACHE", str(SHARED))

import jaxtyping
import pytest
from _pytest import runner
from _pytest.faulthandler import fault_handler_stderr_fd_key

# Before jaxmbd is first imported. It stays on, for the modules that jaxmbd imports lazily.
if os.environ.get("JAXMBD_TEST_SHAPES") == "1":
    jaxtyping.install_import_hook(["jaxmbd", "scalarjit"], "beartype.beartype")

# Before anything that might start a JAX backend: jaxmbd's runtime guard acts on import.
import jaxmbd  # noqa: F401

import jax

from scalarjit import cache
from scalarjit.with_room import with_frames
from tests import new_process, shared_contexts, time_limit

if os.environ["SCALARJIT_CACHE"] == str(SHARED) and cache._danger(SHARED):
    os.environ["SCALARJIT_CACHE"] = ""  # Otherwise each process warns, which is an error here.

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests mostly compile, and small models run fast enough: this halves the time to compile.
if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    jax.config.update("jax_disable_most_optimizations", True)
# Where in the code an operation of a program comes from, which no test reads.
jax.config.update("jax_traceback_in_locations_limit", 0)
if jaxlib_version.startswith("0.10."):
    shared_contexts.share_contexts()

# Tracing makes hundreds of thousands of objects that stay. Looking through them for cycles as often
# as Python does by default takes a fifth of the time to trace. Full collections stay about as
# frequent as they were: programs that nothing uses go with them.
gc.set_threshold(100_000, 5, 1)

# A process may hold so many memory maps on Linux (65,530 by default). Each compiled program takes
# some, and jaxlib crashes where no more are to be had.
MAPS_BEFORE_CLEARING = 50_000
# Programs of a whole run take 6 GB in each worker unless they are forgotten. To trace them again
# takes most of the time of a test. What was taken once stays with the process.
MEMORY_FOR_PROGRAMS = 1.5e9  # bytes, beyond what was left when they were last forgotten

# Seconds after a test's timeout, by when `pytest-timeout` has ended it, if it can.
GRACE = 30

PEER_MODULES = ("pinocchio", "example_robot_data", "mujoco")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Workers for a whole run; none for one narrowed down by path or keyword, or with ``-s``."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    # Without pytest's cache provider there is no option 'lf'.
    last_failed = config.getoption("lf", default=False)
    narrowed = config.option.keyword or last_failed or config.option.capture == "no"
    return None if whole and not narrowed else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """pytest's own, with room for the frames of deep traces, and an end where a test hangs."""
    # pytest's option `faulthandler_timeout` is one time for all tests; theirs differ.
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    seconds = _timeout(item)
    limit = time_limit.ended_after(seconds + GRACE, stderr) if seconds else nullcontext()
    with limit:
        return with_frames(runner.pytest_runtest_protocol)(item, nextitem)


def _timeout(item: pytest.Item) -> float:
    """Seconds that the test may take, and 0 without a limit."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0])
    option = item.config.getoption("timeout")
    return float(item.config.getini("timeout") if option is None else option)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turned = time_limit.from_first_file(items, lambda item: item.nodeid.split("::")[0])
    items[:] = time_limit.longest_first(turned, _timeout)


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Tests take less than half of their timeouts, unless they hang.
    if time_limit.is_too_late(_timeout(item) / 2):
        pytest.skip(time_limit.OUT_OF_TIME)
    if item.get_closest_marker("peers") is None:
        return
    missing = [name for name in PEER_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: pip install -e '.[peers]'")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [(report.nodeid.split("::")[0], str(report.longrepr)) for report in skipped]
    for line in time_limit.not_run(reasons):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of reference data that lies beside a checkout and is not part of it."""
    given = os.environ.get("JAXMBD_SHARED_DATA")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}: name their folder in JAXMBD_SHARED_DATA")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty folder of programs, in a process that remembers none."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    new_process.forget()
    yield tmp_path
    new_process.forget()


@pytest.fixture
def optimized():
    """Programs are compiled as for users; elsewhere tests do without most optimizations."""
    name = "jax_disable_most_optimizations"
    given = jax.config.values[name]
    jax.config.update(name, False)
    yield
    jax.config.update(name, given)


@pytest.fixture(autouse=True)
def _no_programs_of_other_code(request: pytest.FixtureRequest):
    """Tests that replace parts of the package do not use, or leave behind, stored programs."""
    if "monkeypatch" in request.fixturenames:
        request.getfixturevalue("monkeypatch").setenv("SCALARJIT_CACHE", "")


@pytest.fixture(scope="module", autouse=True)
def _room_after_modules():
    """Forget compiled programs between modules, before memory or memory maps run out."""
    yield
    _make_room_for_programs()


@pytest.fixture(autouse=True)
def _room_after_thorough_tests(request: pytest.FixtureRequest):
    """The same after each thorough test: a file of them compiles thousands of programs."""
    yield
    if request.node.get_closest_marker("thorough"):
        _make_room_for_programs()


def _make_room_for_programs() -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    many = maps.read_bytes().count(b"\n") > MAPS_BEFORE_CLEARING
    if many or _memory() > _left["memory"] + MEMORY_FOR_PROGRAMS:
        new_process.make_room()
        _left["memory"] = _memory()


def _memory() -> int:
    """Bytes that this process takes, on Linux."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_left = {"memory": _memory()}
