"""Programs without the run-time checks of a library, for arguments that have been checked.

A run-time check calls Python if it fails. JAX does not store programs that call Python in its cache
on disk, so that each process would compile them again.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

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


def _calls_python(jaxpr: Jaxpr) -> bool:
    return any(x.primitive.name == "pure_callback" for x in jaxpr.eqns)
