"""Limits of time, for all tests together and for one test that hangs.

Tests end by `JAXMBD_TEST_UNTIL`, if it is set, in seconds since 1970, as of `date +%s`: a test that
would not, if it took half of its timeout, is skipped. No test starts after
`JAXMBD_TEST_START_UNTIL`. The report counts the skipped tests of each file. `JAXMBD_TEST_FIRST`
chooses the file that the tests begin with, by a number: runs with different numbers miss different
files.
"""

import contextlib
import faulthandler
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

OUT_OF_TIME = "not run: out of time"


def is_too_late(seconds: float, environment: Mapping[str, str] = os.environ) -> bool:
    """True if it is too late to start a test with this timeout in seconds."""
    until = environment.get("JAXMBD_TEST_UNTIL") or "inf"
    start_until = environment.get("JAXMBD_TEST_START_UNTIL") or "inf"
    return time.time() >= min(float(until) - seconds, float(start_until))


def from_first_file(
    tests: Sequence[T], file_of: Callable[[T], str], environment: Mapping[str, str] = os.environ
) -> list[T]:
    """The tests, those of the chosen file and of later ones before those of earlier files."""
    number = environment.get("JAXMBD_TEST_FIRST", "")
    if not (number and tests):
        return list(tests)
    files = list(dict.fromkeys(map(file_of, tests)))
    turned = {file: (k - int(number)) % len(files) for k, file in enumerate(files)}
    return sorted(tests, key=lambda test: turned[file_of(test)])


def longest_first(
    tests: Sequence[T],
    timeout_of: Callable[[T], float],
    environment: Mapping[str, str] = os.environ,
) -> list[T]:
    """The tests, with longer timeouts first if all must end by a time.

    These cannot start any more when that time comes near.
    """
    if not environment.get("JAXMBD_TEST_UNTIL"):
        return list(tests)
    return sorted(tests, key=lambda test: -timeout_of(test))


@contextlib.contextmanager
def ended_after(seconds: float, file: int | None = None) -> Iterator[None]:
    """End the process if the block takes longer, and write where all threads are to a file.

    `pytest-timeout` needs the interpreter to do this, and waits as long as compiled code holds it.
    ``file``: a file descriptor; that of the standard error by default.
    """
    stream = sys.stderr if file is None else file
    faulthandler.dump_traceback_later(seconds, exit=True, file=stream)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def not_run(skipped: Iterable[tuple[str, str]]) -> list[str]:
    """Lines about the tests that were skipped for time, given (file, reason) of skipped tests."""
    files = Counter(file for file, reason in skipped if OUT_OF_TIME in reason)
    if not files:
        return []
    listed = ", ".join(f"{file} {count}" for file, count in sorted(files.items()))
    return [f"{files.total()} tests were not run, out of time: {listed}"]
