"""Tests after a time are skipped and reported; see `tests/time_limit.py`."""

import time

from tests.time_limit import OUT_OF_TIME, is_over, not_run


def test_no_test_starts_after_the_time():
    assert not is_over({})
    assert not is_over({"JAXMBD_TEST_UNTIL": ""})
    assert not is_over({"JAXMBD_TEST_UNTIL": str(time.time() + 1000)})
    assert is_over({"JAXMBD_TEST_UNTIL": str(time.time() - 1)})


def test_the_report_counts_what_was_not_run():
    late = f"('tests/conftest.py', 80, 'Skipped: {OUT_OF_TIME}')"
    skipped = [("tests/b.py", late), ("tests/a.py", late), ("tests/b.py", late)]
    (line,) = not_run([*skipped, ("tests/c.py", "no such device")])
    assert line == "3 tests were not run, out of time: tests/a.py 1, tests/b.py 2"
    assert not_run([("tests/c.py", "no such device")]) == []
