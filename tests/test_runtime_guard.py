"""The guard against the scheduler deadlock: its decisions and its effects on a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmbd.runtime_guard import (
    COMPILER_NAME,
    CURE,
    FLAG_NAME,
    OLDER_COMPILER,
    SUCCESSOR_NAME,
    decide,
    is_affected,
)

pytestmark = pytest.mark.smoke

GUARD_FILE = Path(__file__).resolve().parents[1] / "jaxmbd" / "runtime_guard.py"
LEFT_ALONE = (None, None)
BOTH = f"{CURE} {OLDER_COMPILER}"


@pytest.mark.parametrize("version", ["0.10.0", "0.10.2", "0.10.2.dev20260101", "0.10"])
def test_affected_versions(version):
    assert is_affected(version)


@pytest.mark.parametrize("version", ["0.4.38", "0.9.2", "0.11.0", "0.12.0.1", "1.10.0", "0.100.0"])
def test_unaffected_versions_are_left_alone(version):
    assert not is_affected(version)
    assert decide(version, {}, initialized=False) == LEFT_ALONE
    assert decide(version, {}, initialized=True) == LEFT_ALONE


@pytest.mark.parametrize("environ", [{}, {"XLA_FLAGS": ""}, {"XLA_FLAGS": "  "}])
def test_flags_are_set(environ):
    assert decide("0.10.2", environ, initialized=False) == (BOTH, None)


def test_other_flags_are_kept():
    environ = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_dump_to=a\tb"}
    flags, warning = decide("0.10.2", environ, initialized=False)
    assert flags == f"{environ['XLA_FLAGS']} {BOTH}"
    assert warning is None


def test_a_longer_flag_name_is_another_flag():
    environ = {"XLA_FLAGS": f"--{FLAG_NAME}_limit=3"}
    assert decide("0.10.2", environ, initialized=False)[0] == f"{environ['XLA_FLAGS']} {BOTH}"


@pytest.mark.parametrize("initialized", [False, True])
@pytest.mark.parametrize(
    "flag",
    [
        f"--{FLAG_NAME}=true",
        f"--{FLAG_NAME}",
        CURE,
        f"--{SUCCESSOR_NAME}=CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED",
    ],
)
def test_users_own_choice_is_respected(flag, initialized):
    given = f"--{COMPILER_NAME} {flag}"
    assert decide("0.10.2", {"XLA_FLAGS": given}, initialized) == LEFT_ALONE


def test_each_flag_is_chosen_by_itself():
    kept = {"XLA_FLAGS": f"--{COMPILER_NAME}=true"}
    assert decide("0.10.2", kept, initialized=False) == (f"--{COMPILER_NAME}=true {CURE}", None)
    kept = {"XLA_FLAGS": f"--{FLAG_NAME}=true"}
    assert decide("0.10.2", kept, initialized=False) == (
        f"--{FLAG_NAME}=true {OLDER_COMPILER}",
        None,
    )


def test_running_backend_warns_and_names_the_cure():
    flags, warning = decide("0.10.2", {"XLA_FLAGS": "--xla_a=1"}, initialized=True)
    assert flags is None
    assert "0.10.2" in warning
    assert "already running" in warning
    assert CURE in warning


def test_flag_file_is_read_but_not_written(tmp_path):
    flag_file = tmp_path / "flags"
    environ = {"XLA_FLAGS": str(flag_file)}
    flag_file.write_text("--xla_a=1\n")
    flags, warning = decide("0.10.2", environ, initialized=False)
    assert flags is None
    assert str(flag_file) in warning
    assert CURE in warning
    flag_file.write_text(f"--xla_a=1\n{CURE}\n")
    assert decide("0.10.2", environ, initialized=False) == LEFT_ALONE


def run_in_new_process(code: str, xla_flags: str | None = None) -> str:
    """Run the guard alone, not the package, in a process of its own; return what it printed."""
    prelude = f"import os, runpy, jaxlib.version; guard = runpy.run_path({str(GUARD_FILE)!r})\n"
    environ = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    if xla_flags is not None:
        environ["XLA_FLAGS"] = xla_flags
    done = subprocess.run(
        [sys.executable, "-c", prelude + code],
        env=environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CALL_AS = "jaxlib.version.__version__ = {!r}; guard['prevent_deadlock'](); "
SHOW_FLAGS = "print(os.environ.get('XLA_FLAGS'))"


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        ("0.10.2", None, BOTH),
        ("0.10.2", "--xla_a=1", f"--xla_a=1 {BOTH}"),
        ("0.10.2", f"--{FLAG_NAME}=true", f"--{FLAG_NAME}=true {OLDER_COMPILER}"),
        ("0.11.0", None, "None"),
    ],
)
def test_environment_after_the_guard(version, before, after):
    assert run_in_new_process(CALL_AS.format(version) + SHOW_FLAGS, before) == after


@pytest.mark.long
def test_no_backend_is_started_and_the_installed_xla_accepts_the_flag():
    code = """
import jax
guard["prevent_deadlock"]()
assert not guard["backends_are_initialized"]()
assert ("XLA_FLAGS" in os.environ) == guard["is_affected"](jaxlib.version.__version__)
assert jax.numpy.arange(3).sum() == 3  # XLA aborts here on a flag that it does not know
assert guard["backends_are_initialized"]()
"""
    run_in_new_process(code)


@pytest.mark.long
def test_warns_once_when_a_backend_already_runs():
    code = """
import warnings, jax
jax.devices()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    jaxlib.version.__version__ = "0.10.2"
    guard["prevent_deadlock"]()
    guard["prevent_deadlock"]()
print(*[warning.category.__name__ for warning in caught], os.environ.get("XLA_FLAGS"))
"""
    assert run_in_new_process(code) == "RuntimeWarning None"
