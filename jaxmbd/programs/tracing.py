"""Functions that JAX traces once for each shape, however often a program calls them.

Tracing takes most of the time before a first result, and half of the operations of a program belong
to a few small functions of rotations. With `inlined_jit`, JAX traces such a function once, caches
the operations with their batched and differentiated forms, and inlines them into each program that
calls the function. The programs do not change.
"""

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx
import jax

P = ParamSpec("P")
R = TypeVar("R")


def inlined_jit(function: Callable[P, R]) -> Callable[P, R]:
    """Cache the trace of a function of arrays and pytrees of arrays; inline it into its callers."""
    return cast(Callable[P, R], jax.jit(function, inline=True))


def with_name(fn: Callable[P, R]) -> Callable[P, R]:
    """fn as a function that has a name.

    JAX prints those without one for its messages, of `jax.linearize` a whole program.
    """
    return lambda *args, **kwargs: fn(*args, **kwargs)


# `stop_gradient` of arguments, for functions with their own derivative rule or none ---------------


def stop_gradients(tree: Any) -> Any:
    """`stop_gradient` of the float arrays of a tree, which may hold functions and names too."""
    floats, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(floats), rest)


# Run-time checks of equinox that can be traced within `jax.checking_leaks` ------------------------


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
