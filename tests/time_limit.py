"""A time after which no test starts: the rest is skipped, and the report says what that was.

`JAXMBD_TEST_UNTIL` is this time, in seconds since 1970, as of `date +%s`. Without it there is none.
"""

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping

OUT_OF_TIME = "not run: out of time"


def is_over(environment: Mapping[str, str] = os.environ) -> bool:
    """True if the time is over."""
    until = environment.get("JAXMBD_TEST_UNTIL", "")
    return bool(until) and time.time() >= float(until)


def not_run(skipped: Iterable[tuple[str, str]]) -> list[str]:
    """Lines about the tests that were skipped for time, given (file, reason) of skipped tests."""
    files = Counter(file for file, reason in skipped if OUT_OF_TIME in reason)
    if not files:
        return []
    listed = ", ".join(f"{file} {count}" for file, count in sorted(files.items()))
    return [f"{files.total()} tests were not run, out of time: {listed}"]
