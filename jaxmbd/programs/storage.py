"""Compiled analyses on disk, by the structure of their arguments.

JAX keeps compiled programs on disk by their operations, which it finds by tracing: half of the time
to a first result. Analyses of this package are found by the structure of their arguments instead,
so that a second process neither traces nor compiles them. `without_checks` removes checks that keep
programs from being stored.
"""

import inspect
import math
import os
import pickle
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, update_wrapper
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

import scalarjit
from scalarjit import cache as files
from scalarjit.jaxprs import GENERATED, inner_of
from scalarjit.machine_code import is_installed, target
from scalarjit.with_room import with_room

from . import progress
from .identity import Call, Unknown

P = ParamSpec("P")
R = TypeVar("R")

# Largest number of programs that are remembered, those of all functions.
REMEMBERED = 512
ENDING = ".program"

# Options of XLA for programs whose mechanics are generated code: they have operations on a few
# numbers besides, are compiled in half of the time so, and are as fast.
QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,  # Dividing takes longer than it saves.
}
# The most numbers that such a program computes itself: in an iteration of its loops, and once. For
# adaptive steps of joint coordinates they are 2,000 to 4,000, and 60,000 for 201 saved states; for
# steps of 10 bodies in maximal coordinates by XLA 400,000.
MOST_REPEATED, MOST_ONCE = 10_000, 10_000_000
# Operations that compute nothing, or part of an array alone.
MOVES = {"copy", "dynamic_update_slice", "maybe_set", "select_if_vmap", "stop_gradient"}

_known: OrderedDict[Any, "_Ready | None"] = OrderedDict()
_lock = threading.Lock()


def stored(fn: Callable[P, R], optimized: bool = True) -> Callable[P, R]:
    """fn as `equinox.filter_jit` compiles it, with its programs on disk.

    Without `optimized`, XLA does not optimize them, which takes a fraction of the time. Not stored
    are programs with components that are not of this package or its libraries, programs
    that call Python, and those of other devices than the first one of a CPU.
    """
    return cast(Callable[P, R], _Stored(fn, optimized))


class _Place(NamedTuple):
    """The place of an array among the results of a program."""

    number: int


class _Ready(NamedTuple):
    """A compiled program of arrays; `results` have a `_Place` for each array."""

    run: Callable[..., list[Any]]
    results: list[Any]
    structure: Any

    def __call__(self, arrays: list[Any]) -> Any:
        found = self.run(*arrays)
        leaves = (found[x.number] if isinstance(x, _Place) else x for x in self.results)
        return jax.tree.unflatten(self.structure, leaves)


class _Stored:
    def __init__(self, fn: Callable[..., Any], optimized: bool):
        update_wrapper(self, fn)
        self.fn, self.optimized = fn, optimized
        options: dict[str, Any] = {} if optimized else {"compiler_options": QUICKLY}
        self.jitted = eqx.filter_jit(progress.while_traced(fn), **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays = [x for x in leaves if eqx.is_array(x)]
        ready = self._ready(leaves, structure) if _may_be_stored(arrays) else None
        if ready is not None:
            return ready(arrays)
        with progress.own_step():
            return self.jitted(*args, **kwargs)

    def _ready(self, leaves: list[Any], structure: Any) -> _Ready | None:
        """The program for arguments of this structure; None if it cannot be stored."""
        call = Call.of(self.fn, leaves, structure)
        key = call, os.environ.get(files.VARIABLE)
        try:
            hash(key)
        except TypeError:
            return None
        with _lock:
            if key in _known:
                _known.move_to_end(key)
                return _known[key]
        name = None
        if files.folder() is not None and is_installed():
            with suppress(Unknown):
                name = files.name_of(call.name(), target()) + ENDING
        ready = name and _on_disk(name)
        if not ready:
            with progress.compiling():
                ready = self._made(name, leaves, structure)
        with _lock:
            _known[key] = ready
            while len(_known) > REMEMBERED:
                _known.popitem(last=False)
        return ready

    @with_room
    def _made(self, name: str | None, leaves: list[Any], structure: Any) -> _Ready | None:
        """Trace and compile a program, and store it if it has a name."""
        results: list[Any] = []

        def of_arrays(*arrays: Any) -> list[Any]:
            rest = iter(arrays)
            given = [next(rest) if eqx.is_array(x) else x for x in leaves]
            args, kwargs = jax.tree.unflatten(structure, given)
            found, tree = jax.tree.flatten(self.fn(*args, **kwargs))
            made = [x for x in found if eqx.is_array(x)]
            numbers = iter(range(len(made)))
            results[:] = [_Place(next(numbers)) if eqx.is_array(x) else x for x in found], tree
            return made

        of_arrays.__name__ = self.fn.__name__
        arrays = [x for x in leaves if eqx.is_array(x)]
        traced = jax.jit(of_arrays).trace(*arrays)
        if _calls_python(traced.jaxpr.jaxpr):
            return None
        with scalarjit.collected() as names:
            lowered = traced.lower()
        compiled = _compiled(lowered, traced.jaxpr.jaxpr, self.optimized)
        ready = _Ready(compiled, *results)
        if name is not None:
            _store(name, compiled, sorted(names), ready, len(arrays))
        return ready


def _may_be_stored(arrays: list[Any]) -> bool:
    """True for arrays that are not traced, on the first device of a CPU, without checks of JAX."""
    config = cast(Any, jax.config)
    checks = config.jax_disable_jit, config.jax_check_tracer_leaks
    if any((*checks, config.jax_debug_nans, config.jax_debug_infs)):
        return False
    if any(isinstance(x, Tracer) for x in arrays):
        return False
    device = jax.devices()[0]
    return device.platform == scalarjit.platform() == "cpu" and all(
        not isinstance(x, jax.Array) or x.devices() == {device} for x in arrays
    )


def _store(name: str, compiled: Any, names: list[str], ready: _Ready, n_arrays: int) -> None:
    try:
        code, *_ = serialize(compiled)
        # A tree of numbers: structures of trees cannot be stored.
        results = jax.tree.unflatten(ready.structure, range(len(ready.results)))
        contents = pickle.dumps((code, n_arrays, names, ready.results, results))
    except Exception:  # Objects of all kinds may refuse in all ways.
        return
    files.keep(name, contents)


def _on_disk(name: str) -> _Ready | None:
    """A program from its file; None if that, or generated code that it calls, is gone."""
    contents = files.held(name)
    if contents is None:
        return None
    code, n_arrays, names, results, tree = pickle.loads(contents)
    if not all(map(scalarjit.is_there, names)):
        return None
    if b"lapack_" in code:
        _prepare_lapack()
    given = jax.tree.structure((tuple(range(n_arrays)), {}))
    made = jax.tree.structure([0 for x in results if isinstance(x, _Place)])
    run = deserialize_and_load(code, given, made)
    return _Ready(run, results, jax.tree.structure(tree))


@cache
def _prepare_lapack() -> None:
    """Let JAX find the functions of LAPACK, as it does when it lowers a program that calls them."""
    jax.jit(jnp.linalg.cholesky).lower(jnp.ones((1, 1)))


def _compiled(lowered: Any, jaxpr: Jaxpr, optimized: bool = True) -> Any:
    if not optimized or _is_small(jaxpr) or _is_small(_needed(jaxpr)):
        with suppress(jax.errors.JaxRuntimeError):  # Of versions without these options.
            return lowered.compile(QUICKLY)
    return lowered.compile()


def _is_small(jaxpr: Jaxpr) -> bool:
    repeated, once = _computed(jaxpr)
    return repeated <= MOST_REPEATED and once <= MOST_ONCE


def _needed(jaxpr: Jaxpr) -> Jaxpr:
    """The program without operations whose results nothing uses, which JAX leaves out too."""
    return dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]


def _computed(jaxpr: Jaxpr, in_loop: bool = False) -> tuple[int, int]:
    """Numbers that XLA computes: in one iteration of each loop, and outside of loops."""
    repeated = once = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == GENERATED or name in MOVES:
            continue
        inner = inner_of(equation)
        counts = [_computed(x, in_loop or name in ("scan", "while")) for x in inner]
        if not inner:
            size = sum(math.prod(cast(Any, x.aval).shape) for x in equation.outvars)
            counts = [(size, 0) if in_loop else (0, size)]
        repeated, once = repeated + sum(x for x, _ in counts), once + sum(x for _, x in counts)
    return repeated, once


def _calls_python(jaxpr: Jaxpr) -> bool:
    for equation in jaxpr.eqns:
        if "callback" in equation.primitive.name:
            return True
        if any(map(_calls_python, inner_of(equation))):
            return True
    return False


# Programs without the run-time checks of a library, for arguments that have been checked ----------
#
# A run-time check calls Python if it fails. Programs that call Python are not kept on disk, so that
# each process would compile them again.

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}


def without_checks(fn: Callable[..., Any], messages: tuple[str, ...]) -> Callable[..., Any]:
    """The function without checks of equinox whose messages begin with one of these.

    The caller has made these checks. Other checks stay, and so do checks inside of loops. The
    result has no custom rules of differentiation around the checks: it is not to be differentiated.
    """

    def unchecked(*args: Any) -> Any:
        arrays, rest = eqx.partition(args, eqx.is_array)

        def of_arrays(arrays: Any) -> Any:
            return fn(*eqx.combine(arrays, rest))

        program, shapes, static = eqx.filter_make_jaxpr(of_arrays)(arrays)
        found = _evaluated(program, jax.tree.leaves(arrays), messages)
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), found), static)

    return unchecked


def _evaluated(program: ClosedJaxpr, given: list[Any], messages: tuple[str, ...]) -> list[Any]:
    jaxpr = program.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, program.consts, strict=True))
    known.update(zip(jaxpr.invars, given, strict=True))
    for first, last, times in _repeated(jaxpr):
        values = [x.val if isinstance(x, Literal) else known[x] for x in first.invars]
        if times == 1:
            found = _results(first, values, messages)
        else:
            again = lambda _, x, first=first: _results(first, [x], messages)[0]  # noqa: E731
            found = [lax.fori_loop(0, times, again, values[0])]
        known.update(zip(last.outvars, found, strict=True))
    return [x.val if isinstance(x, Literal) else known[x] for x in jaxpr.outvars]


def _repeated(jaxpr: Jaxpr) -> Iterator[tuple[Any, Any, int]]:
    """The equations in order; one function of its own result, again and again, is one of them.

    diffrax takes 100 times the number before another one, which XLA compiles for half a second.
    """
    uses = Counter(x for e in jaxpr.eqns for x in e.invars if not isinstance(x, Literal))
    uses.update(x for x in jaxpr.outvars if not isinstance(x, Literal))
    first = last = None
    times = 0
    for equation in jaxpr.eqns:
        if last is not None and _repeats(last, equation) and uses[last.outvars[0]] == 1:
            times, last = times + 1, equation
            continue
        if times:
            yield first, last, times
        first, last, times = equation, equation, 1
    if times:
        yield first, last, times


def _repeats(before: Any, equation: Any) -> bool:
    """True if an equation is the same function as the one before, of its result."""
    if not before.primitive.name == equation.primitive.name == "custom_jvp_call":
        return False
    avals = {x.aval for x in (*before.invars, *before.outvars, *equation.outvars)}
    same = equation.invars == before.outvars and len(avals) == 1
    inner = (str(x.params["call_jaxpr"]) for x in (before, equation))
    return same and len(set(inner)) == 1


def _results(equation: Any, values: list[Any], messages: tuple[str, ...]) -> list[Any]:
    primitive, params = equation.primitive, equation.params
    inner = params.get(CALLS.get(primitive.name, ""))
    if isinstance(inner, ClosedJaxpr) and _has_check(inner.jaxpr, messages):
        return _evaluated(inner, values, messages)
    if primitive.name == "cond" and _is_check(equation, messages):
        (passes,) = [x for x in params["branches"] if not _calls_python(x.jaxpr)]
        return jaxpr_as_fun(passes)(*values[1:])
    found = primitive.bind(*values, **primitive.get_bind_params(params))
    return list(found) if primitive.multiple_results else [found]


def _has_check(jaxpr: Jaxpr, messages: tuple[str, ...]) -> bool:
    """True if a program, or one that it calls, has a check with these messages."""
    for equation in jaxpr.eqns:
        inner = equation.params.get(CALLS.get(equation.primitive.name, ""))
        if isinstance(inner, ClosedJaxpr) and _has_check(inner.jaxpr, messages):
            return True
        if equation.primitive.name == "cond" and _is_check(equation, messages):
            return True
    return False


def _is_check(equation: Any, messages: tuple[str, ...]) -> bool:
    """True if one branch of two raises errors, and all their messages begin with these."""
    branches = equation.params["branches"]
    raising = [x.jaxpr for x in branches if _calls_python(x.jaxpr)]
    if len(branches) != 2 or len(raising) != 1:
        return False
    found = [_messages(x) for x in raising[0].eqns if x.primitive.name == "pure_callback"]
    return any(found) and all(text.startswith(messages) for texts in found for text in texts)


def _messages(equation: Any) -> list[str]:
    """Messages of the check that a function reports; one without text for other functions."""
    function = getattr(equation.params.get("callback"), "callback_func", None)
    if not inspect.isfunction(function) or function.__module__ != eqx.error_if.__module__:
        return [""]
    nonlocals = inspect.getclosurevars(function).nonlocals
    # The second function of a check is for TPUs, whose errors are lost, and repeats its messages.
    return list(nonlocals.get("msgs", [""]))
