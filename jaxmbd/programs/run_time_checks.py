"""Run-time checks of equinox that can be traced within `jax.checking_leaks`."""

import inspect
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax


def error_if(x: Any, bad: Any, message: str) -> Any:
    """x, after an error at run time if any of `bad` is true; as `equinox.error_if`."""
    with unwatched():
        return eqx.error_if(x, bad, message)


def branched_error_if(x: Any, bad: Any, index: Any, messages: Sequence[str]) -> Any:
    """x, after an error with one of the messages; as `equinox.branched_error_if`."""
    with unwatched():
        return eqx.branched_error_if(x, bad, index, messages)


@contextmanager
def unwatched() -> Iterator[None]:
    """Let functions with run-time checks be traced within `jax.checking_leaks`.

    For its messages, equinox reads the variables of all callers. Before Python 3.13 (PEP 667), a
    frame keeps what was read: those of JAX then refer to tracers after their end, and JAX reports
    them. Here no leaks are looked for, and the callers' frames forget what was read.
    """
    if sys.version_info >= (3, 13) or not jax.config.jax_check_tracer_leaks:  # pyright: ignore
        yield
        return
    with jax.check_tracer_leaks(False):
        yield
    for frame, _ in traceback.walk_stack(None):
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # Other frames keep their variables there.
            frame.f_locals.clear()
