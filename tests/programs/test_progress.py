"""Lines that say what runs, while it compiles and runs."""

import io
import re
import sys
import time

import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from jaxmbd.errors import outermost_call, warn
from jaxmbd.programs import progress, stored, with_progress


class Stream(io.StringIO):
    """A terminal, or not."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def lines(self):
        return [line.strip() for line in self.getvalue().replace("\r", "\n").split("\n") if line]


@pytest.fixture
def stderr(monkeypatch):
    def of(terminal=True, patience=0.02):
        stream = Stream(terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress, "PATIENCE", patience)
        monkeypatch.setattr(progress, "REFRESH", 0.02)
        monkeypatch.setattr(progress, "PAUSE", 0.02)
        return stream

    return of


@with_progress
def identify(*, duration=0.2, progress=None):
    """An analysis of this name, which has steps."""
    say("step 1")
    time.sleep(duration)
    simulate(duration=0.0)
    say("step 2")


@with_progress
def simulate(*, duration=0.2, progress=None):
    """An analysis of this name."""
    time.sleep(duration)


def say(step):
    progress.say(step)


@pytest.mark.long
@pytest.mark.parametrize(
    ("terminal", "options", "shown"),
    [
        (True, {}, True),
        (True, {"duration": 0.0}, False),  # Shorter than the patience.
        (True, {"progress": False}, False),
        (False, {}, False),
        (False, {"progress": True}, True),
    ],
)
def test_what_is_shown(stderr, terminal, options, shown):
    stream = stderr(terminal, 0.02 if options != {"duration": 0.0} else 10.0)
    identify(**options)
    lines = stream.lines()
    assert bool(lines) == shown
    if shown:
        assert re.fullmatch(r"identify: step 1, \d+ s", lines[0])
        assert re.fullmatch(r"identify: step 2, \d+\.\d s", lines[-1])
        assert not any("simulate" in line for line in lines)


def test_calls_that_compile_nothing_leave_no_line(stderr):
    stream = stderr()
    simulate()
    assert re.fullmatch(r"simulate: working, \d+ s", stream.lines()[0])
    assert not stream.getvalue().rpartition("\r")[2]
    stream.truncate(0)
    with pytest.raises(ZeroDivisionError), progress.working("sweep", True):
        raise ZeroDivisionError
    assert "done" not in stream.getvalue()


def test_a_program_says_that_it_compiles_and_a_known_one_nothing(stderr):
    @stored
    def slow(x):
        time.sleep(0.4)  # While it is traced.
        return x + 1.0

    stream, x = stderr(patience=0.1), jnp.zeros(3)
    with progress.working("simulate"):
        slow(x)
    lines = stream.lines()
    assert re.fullmatch(r"simulate: compiling, \d+ s", lines[0])
    done = r"simulate: done, \d+\.\d s, \d+\.\d s of them to compile"
    assert re.fullmatch(done, lines[-1])
    n = len(lines)
    with progress.working("simulate"):
        slow(x)
    assert len(stream.lines()) == n


def test_names_and_warnings_are_those_of_the_users_call():
    """However many functions of the package lie between."""
    package = {"__name__": "jaxmbd.made_up", "warn": warn, "outermost_call": outermost_call}
    helper = "def helper():\n    warn('no', UserWarning)\n    return outermost_call().name\n"
    exec(f"{helper}\ndef reactions():\n    return helper()", package)
    with pytest.warns(UserWarning, match="no") as caught:
        assert package["reactions"]() == "reactions"
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", ["simulate", "identify", "sweep", "equilibrium", "buckling"])
def test_analyses_are_shown(name):
    assert getattr(mbd, name).__wrapped__.__name__ == name
