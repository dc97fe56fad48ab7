"""Evaluations of the mechanics as single operations of the programs that use them."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

import scalarjit

from ..programs.identity import Call, Unknown
from ..signals import AbstractSignal
from .abstract import AbstractSystem, Time

# Signals that look values up in tables, evaluated once outside of generated code ------------------
#
# Generated code cannot search a long table. It is given the values instead.

S = TypeVar("S", bound=AbstractSystem)


class _Value(AbstractSignal):
    """The value of a signal at one time."""

    value: Float[Array, "..."]

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return self.value


def with_values_looked_up(system: S, t: Time) -> S:
    """The system at time t, with values instead of signals that look up.

    Only signals of elements that declare them in `signals_at_own_time` are replaced.
    """
    for g, group in enumerate(system.mechanism.elements):
        for name in type(group.element).signals_at_own_time:
            signal = getattr(group.element, name)
            if not (isinstance(signal, AbstractSignal) and signal.looks_up):
                continue
            values = jax.vmap(lambda signal: signal(t))(signal)

            def place(system: S, g: int = g, name: str = name) -> AbstractSignal:
                return getattr(system.mechanism.elements[g].element, name)

            system = eqx.tree_at(place, system, _Value(values))
    return system


# Evaluations of the mechanics as single operations of the programs that use them ------------------

P = ParamSpec("P")
R = TypeVar("R")

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
