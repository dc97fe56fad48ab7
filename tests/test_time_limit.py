"""Tests that might end after a time are skipped and reported; see `tests/time_limit.py`."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.time_limit import OUT_OF_TIME, from_first_file, is_too_late, longest_first, not_run

HUNG = """
import ctypes
from tests.time_limit import ended_after

def hangs():
    ctypes.PyDLL(None).sleep(100)  # A PyDLL holds the interpreter.

with ended_after(0.2):
    pass
with ended_after(0.5):
    hangs()
"""


def test_no_test_starts_that_might_end_after_the_time():
    assert not is_too_late(0.0, {})
    assert not is_too_late(0.0, {"JAXMBD_TEST_UNTIL": ""})
    soon = {"JAXMBD_TEST_UNTIL": str(time.time() + 1000)}
    assert not is_too_late(900.0, soon)
    assert is_too_late(1100.0, soon)
    assert is_too_late(0.0, {"JAXMBD_TEST_UNTIL": str(time.time() - 1)})
    start = {"JAXMBD_TEST_START_UNTIL": str(time.time() + 1000)}
    assert not is_too_late(1100.0, start)
    assert is_too_late(1100.0, start | soon)
    assert is_too_late(0.0, {"JAXMBD_TEST_START_UNTIL": str(time.time() - 1)})


def test_the_report_counts_what_was_not_run():
    late = f"('tests/conftest.py', 80, 'Skipped: {OUT_OF_TIME}')"
    skipped = [("tests/b.py", late), ("tests/a.py", late), ("tests/b.py", late)]
    (line,) = not_run([*skipped, ("tests/c.py", "no such device")])
    assert line == "3 tests were not run, out of time: tests/a.py 1, tests/b.py 2"
    assert not_run([("tests/c.py", "no such device")]) == []


def test_a_process_is_ended_where_compiled_code_holds_the_interpreter():
    folder = Path(__file__).resolve().parents[1]
    run = [sys.executable, "-c", HUNG]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in hangs" in done.stderr


@pytest.mark.parametrize(
    ("number", "expected"),
    [("0", "a1 a2 b1 c1 c2"), ("2", "c1 c2 a1 a2 b1"), ("7", "b1 c1 c2 a1 a2")],
)
def test_a_number_chooses_the_first_file(number, expected):
    tests = ["a1", "a2", "b1", "c1", "c2"]
    chosen = {"JAXMBD_TEST_FIRST": number}
    assert from_first_file(tests, lambda test: test[0], chosen) == expected.split()
    assert from_first_file([], str, chosen) == []


def test_without_a_number_tests_keep_their_order():
    tests = ["a1", "b1", "a2"]
    assert from_first_file(tests, lambda test: test[0], {}) == tests


def test_tests_that_may_take_long_come_first_where_all_must_end():
    timeouts = {"a1": 300.0, "a2": 900.0, "b1": 300.0, "b2": 900.0}
    soon = {"JAXMBD_TEST_UNTIL": str(time.time() + 1000)}
    assert longest_first(list(timeouts), timeouts.__getitem__, soon) == ["a2", "b2", "a1", "b1"]
    assert longest_first(list(timeouts), timeouts.__getitem__, {}) == list(timeouts)
