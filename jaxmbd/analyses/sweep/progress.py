"""How far a sweep is."""

import sys
import time

PAUSE = 10.0  # Between lines where they are kept, such as in a log file [s].


class Progress:
    """A line on stderr: scenarios done, how many a second, and the time left.

    **Arguments:** the number of scenarios, how many are done already, and whether to say anything.
    """

    def __init__(self, total: int, done: int, shown: bool):
        self._total, self._before, self._done, self._shown = total, done, done, shown
        self._start = self._last = time.monotonic()
        self._live = sys.stderr.isatty()
        if shown and done:
            self._say("\n")

    def advance(self, count: int) -> None:
        """Some more scenarios are done."""
        self._done += count
        now = time.monotonic()
        last = self._done == self._total
        if self._shown and (self._live or last or now - self._last > PAUSE):
            self._last = now
            self._say("\n" if last or not self._live else "")

    def _say(self, end: str) -> None:
        sys.stderr.write(("\r" if self._live else "") + self.line() + end)
        sys.stderr.flush()

    def line(self) -> str:
        """What it says now."""
        said = f"sweep: {self._done}/{self._total} scenarios"
        elapsed = time.monotonic() - self._start
        if self._done == self._before or elapsed <= 0:
            return said
        rate = (self._done - self._before) / elapsed
        left = round((self._total - self._done) / rate)
        clock = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
        return f"{said}, {rate:.3g}/s, {clock} left"
