"""Lines on stderr that say what runs, while it compiles and runs.

They appear on a terminal and in notebooks, for work of more than `PATIENCE`. A thread writes them:
programs are the same with and without lines.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..errors import ModelError, outermost_call

P = ParamSpec("P")
R = TypeVar("R")

# Times [s]: before the first line, between lines on a terminal, and between lines of a log file.
PATIENCE, REFRESH, PAUSE = 1.0, 0.25, 10.0
COMPILING = "compiling"


class _Work:
    """One call by a user: its function, its step, and the seconds of compilation."""

    def __init__(self, caller: str, progress: bool | None):
        self.caller, self.step, self.compiled = caller, "", 0.0
        self._always = bool(progress)
        self._live = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
        self._start, self._width = time.monotonic(), 0
        self._ended = threading.Event()
        self._thread = None
        if self._always or (self._live and progress is None):
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        pause = PATIENCE if self._live else PAUSE
        while not self._ended.wait(pause):
            self._write(f"{self.caller}: {self.step or 'working'}, {self._seconds():.0f} s", False)
            pause = REFRESH if self._live else PAUSE

    def end(self, failed: bool) -> None:
        """Write the last line: of calls that compiled or have steps, or with `progress=True`."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        spent = f"{self._seconds():.1f} s"
        if self.compiled > 0 and not self.step:
            spent += f", {self.compiled:.1f} s of them to compile"
        known = self._width and (self.compiled > 0 or self.step)
        if not failed and (self._always or known):
            self._write(f"{self.caller}: {self.step or 'done'}, {spent}", True)
        elif self._width:
            self._write("", False)
            sys.stderr.write("\r")

    def _seconds(self) -> float:
        return time.monotonic() - self._start

    def _write(self, line: str, last: bool) -> None:
        end = "\n" if last or not self._live else ""
        start = "\r" if self._live else ""
        sys.stderr.write(start + line.ljust(self._width) + end)  # Covers the line before.
        sys.stderr.flush()
        self._width = len(line) if self._live else 0


_current: _Work | None = None
_lock = threading.Lock()


@contextmanager
def working(caller: str, progress: bool | None = None) -> Iterator[None]:
    """Show work by the function `caller`, unless it is a part of other work.

    **Arguments:** `progress`: False for no lines, True for lines in log files too. Default: lines
    on a terminal and in notebooks.
    """
    global _current
    with _lock:
        work = None
        if _current is None:
            work = _current = _Work(caller, progress)
    if work is None:
        yield
        return
    failed = True
    try:
        yield
        failed = False
    finally:
        _current = None
        work.end(failed)


def with_progress(fn: Callable[P, R]) -> Callable[P, R]:
    """fn, whose work is shown; its argument `progress`, if it has one, as for `working`."""

    @wraps(fn)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        progress: Any = kwargs.get("progress")
        if not (progress is None or isinstance(progress, bool)):
            message = f"progress is True, False or None, got {progress!r}"
            raise ModelError(f"{fn.__name__}: {message}")
        with working(fn.__name__, progress):
            return fn(*args, **kwargs)

    return shown


@contextmanager
def compiling() -> Iterator[None]:
    """Count the time inside as compilation, of the function that the user called."""
    with working(outermost_call().name):
        work = _current
        if work is None or work.step == COMPILING:
            yield
            return
        step, work.step, start = work.step, COMPILING, time.monotonic()
        try:
            yield
        finally:
            work.step = step
            work.compiled += time.monotonic() - start


def while_traced(fn: Callable[P, R]) -> Callable[P, R]:
    """fn for `jit`: the step of the work is its compilation from the trace on, see `own_step`."""

    @wraps(fn)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        say(COMPILING)
        return fn(*args, **kwargs)

    return traced


@contextmanager
def own_step() -> Iterator[None]:
    """Steps that are said inside, while a program is compiled and runs, end with it."""
    work = _current
    step = "" if work is None else work.step
    try:
        yield
    finally:
        if work is not None:
            work.step = step


def say(step: str) -> None:
    """Show the step of the work that runs."""
    work = _current
    if work is not None:
        work.step = step


def tell(step: str) -> None:
    """Say the step of a motion, inside of a program of the user, too."""
    if _current is None:
        sys.stderr.write(f"simulate: {step}\n")
    say(step)
