"""Functions that JAX traces once for each shape, however often a program calls them.

Tracing takes most of the time before a first result, and half of the operations of a program belong
to a few small functions of rotations. With `inlined_jit`, JAX traces such a function once, caches
the operations with their batched and differentiated forms, and inlines them into each program that
calls the function. The programs do not change. With `kernel`, a function of the mechanics becomes
one operation of generated code.
"""

import inspect
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp

import scalarjit

from .identity import Call, Unknown

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


# Evaluations of the mechanics as single operations of the programs that use them ------------------

# The most rows that are evaluated in turn. Compiling the accelerations of a four-bar for batches
# takes a second, their evaluation in turn 10 µs a row.
FEW_ROWS = 1_024

# Largest number of kernels that are remembered, each with its program.
REMEMBERED = 512

_known: OrderedDict[Any, scalarjit.NativeFunction | None] = OrderedDict()
_lock = threading.RLock()


def kernel(fn: Callable[P, R]) -> Callable[P, R]:
    """fn as one operation, traced once for all arguments of the same structure.

    Programs that call it contain one operation instead of the mechanics, with rules for batches and
    derivatives. What generated code does not cover is traced as part of the program.
    """

    @wraps(fn)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs
        found = kernel_of(fn, *args)
        return fn(*args, **kwargs) if found is None else found(*args)

    return called


def of_rows(fn: Callable[..., R], *rows: Any) -> R:
    """fn of each row of arrays.

    Few rows are evaluated in turn, by the generated code for one state: it is not compiled for
    batches as well.
    """
    few = len(jax.tree.leaves(rows)[0]) <= FEW_ROWS
    if few and scalarjit.platform() == "cpu" and scalarjit.why_none() is None:
        return jax.lax.map(lambda row: fn(*row), rows)
    return jax.vmap(fn)(*rows)


def of_directions(fn: Callable[..., R], *directions: Any) -> R:
    """fn of each direction, along a leading axis.

    XLA takes them as one batch. Generated code takes one after another, in a loop if fn is long:
    together they would be too long a program.
    """
    if scalarjit.makes_code():
        return jax.lax.map(lambda row: fn(*row), directions)
    return jax.vmap(with_name(fn))(*directions)


def slopes(fn: Callable[[Any], R], x: Any, directions: Any) -> tuple[R, R]:
    """fn(x), and its derivatives along directions with a leading axis."""
    value, slope = jax.linearize(fn, x)
    return value, of_directions(slope, directions)


def kernel_of(fn: Callable[..., Any], *args: Any) -> scalarjit.NativeFunction | None:
    """The operation of `kernel` for arguments of this structure; None if no code is generated."""
    if scalarjit.why_none() is not None:
        return None
    leaves, structure = jax.tree.flatten(args)
    call = Call.of(fn, leaves, structure)
    try:
        hash(call)
    except TypeError:
        return scalarjit.native_of(fn, *args)
    with _lock:
        if call in _known:
            _known.move_to_end(call)
            return _known[call]
    try:
        name = call.name()
    except Unknown:
        found = scalarjit.native_of(fn, *args)
    else:
        found = scalarjit.native_by_name(name, fn, *args)
    with _lock:
        _known[call] = found
        while len(_known) > REMEMBERED:
            _known.popitem(last=False)
    return found


# `stop_gradient` of arguments, for functions with their own derivative rule or none ---------------


def stop_gradients(tree: Any) -> Any:
    """`stop_gradient` of the float arrays of a tree, which may hold functions and names too."""
    floats, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(floats), rest)


# Run-time checks of equinox that can be traced within `jax.checking_leaks` ------------------------


_gives_nan: ContextVar[bool] = ContextVar("_gives_nan", default=False)


@contextmanager
def nan_for_errors() -> Iterator[None]:
    """Within, checks make floats NaN in place of an error at run time.

    A minimizer does not take steps to NaN, and errors call Python: programs that do are not kept on
    disk, so that each process would compile them again.
    """
    token = _gives_nan.set(True)
    try:
        yield
    finally:
        _gives_nan.reset(token)


def gives_nan() -> bool:
    """True within `nan_for_errors`: an argument for functions whose traces JAX keeps."""
    return _gives_nan.get()


def nan_if(x: Any, bad: Any) -> Any:
    """x, with NaN in place of floats if any of `bad` is true."""
    lost = jnp.any(bad)
    floats, rest = eqx.partition(x, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda of: jnp.where(lost, jnp.nan, of), floats), rest)


def error_if(x: Any, bad: Any, message: str) -> Any:
    """x, after an error at run time if any of `bad` is true; as `equinox.error_if`."""
    if gives_nan():
        return nan_if(x, bad)
    with unwatched():
        return eqx.error_if(x, bad, message)


def branched_error_if(x: Any, bad: Any, index: Any, messages: Sequence[str]) -> Any:
    """x, after an error with one of the messages; as `equinox.branched_error_if`."""
    if gives_nan():
        return nan_if(x, bad)
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
