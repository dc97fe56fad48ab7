"""Progress of a sweep."""

import sys
import time

PAUSE = 10.0  # Time between lines in a log file [s].


class Progress:
    """A line on stderr: scenarios done, scenarios per second, and the time left.

    **Arguments:** `total`: number of scenarios; `done`: number of finished ones; `shown`: whether
    to write lines.
    """

    def __init__(self, total: int, done: int, shown: bool):
        self._total, self._before, self._done, self._shown = total, done, done, shown
        self._start = self._last = time.monotonic()
        self._live = sys.stderr.isatty()
        if shown and done:
            self._write("\n")

    def advance(self, count: int) -> None:
        """Count `count` more scenarios as done."""
        self._done += count
        now = time.monotonic()
        last = self._done == self._total
        if self._shown and (self._live or last or now - self._last > PAUSE):
            self._last = now
            self._write("\n" if last or not self._live else "")

    def _write(self, end: str) -> None:
        sys.stderr.write(("\r" if self._live else "") + self.line() + end)
        sys.stderr.flush()

    def line(self) -> str:
        """Text of the progress: scenarios done, their rate and the time left."""
        counts = f"sweep: {self._done}/{self._total} scenarios"
        elapsed = time.monotonic() - self._start
        if self._done == self._before or elapsed <= 0:
            return counts
        rate = (self._done - self._before) / elapsed
        left = round((self._total - self._done) / rate)
        clock = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
        return f"{counts}, {rate:.3g}/s, {clock} left"
