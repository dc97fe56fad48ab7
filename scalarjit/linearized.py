"""Derivatives of programs with long loops that save what their linear part needs.

The derivative of a motion needs the states of all steps. The program of the motion itself computes
them, and saves them together with its results, so that the linear part does not move once more.
"""

from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Var, jaxpr_as_fun

from .canonical import canonical
from .jaxprs import blank, is_float
from .kept import keeps
from .lengths import stays_loop


@dataclass(frozen=True, eq=False, repr=False)
class Linearized:
    """A program in two parts.

    - `known`: results of the program, and arrays that the linear part needs besides.
    - `linear`: a function of the arrays `places` and of tangents, which returns the tangents of
      results that are floats.
    - `places`: number of each array for the linear part, in the arguments and results of `known`.
    """

    known: ClosedJaxpr
    linear: ClosedJaxpr
    places: tuple[int, ...]


@keeps
def linearized(program: ClosedJaxpr, moving: tuple[bool, ...]) -> Linearized | None:
    """The two parts of the derivative by the arguments that are `moving`.

    None for a program without a long loop: to compute its values again takes less time than to save
    and load them.
    """
    if not _has_loop(program.jaxpr):
        return None
    fn, avals = jaxpr_as_fun(program), list(map(blank, program.in_avals))
    dots = [x for x, m in zip(avals, moving, strict=True) if m]
    found: list[Jaxpr] = []

    def known(*primals: Any) -> list[Any]:
        def of_moving(*moved: Any) -> tuple[list[Any], list[Any]]:
            rest = iter(moved)
            results = fn(*(next(rest) if m else x for x, m in zip(primals, moving, strict=True)))
            return [x for x in results if is_float(x)], [x for x in results if not is_float(x)]

        moved = tuple(x for x, m in zip(primals, moving, strict=True) if m)
        floats, along, others = jax.linearize(of_moving, *moved, has_aux=True)
        linear = jax.make_jaxpr(along)(*dots)
        found[:] = [linear.jaxpr]
        rest, numbers = iter(floats), iter(others)
        results = [next(rest if is_float(x) else numbers) for x in program.out_avals]
        return [*results, *linear.consts]

    whole = jax.make_jaxpr(known)(*avals)
    chosen, places = _needed(whole.jaxpr, len(program.out_avals))
    (linear,) = found

    def along(*given: Any) -> list[Any]:
        at = len(places)
        return jaxpr_as_fun(ClosedJaxpr(linear, list(given[:at])))(*given[at:])

    saved = [whole.out_avals[k] for k in range(len(program.out_avals), len(whole.out_avals))]

    def returned(*primals: Any) -> list[Any]:
        results = jaxpr_as_fun(whole)(*primals)
        return [results[k] for k in chosen]

    first = jax.make_jaxpr(returned)(*avals)
    second = jax.make_jaxpr(along)(*map(blank, saved), *dots)
    return Linearized(canonical(first), canonical(second), places)


def _needed(jaxpr: Jaxpr, n_results: int) -> tuple[list[int], tuple[int, ...]]:
    """Numbers of the results that a program must return, and places of those after `n_results`.

    Arguments, and what is returned already, are not returned again.
    """
    known: dict[Any, int] = {x: k for k, x in enumerate(jaxpr.invars)}
    at, chosen, places = len(jaxpr.invars), list(range(n_results)), []
    for k, x in enumerate(jaxpr.outvars):
        if k < n_results:
            if isinstance(x, Var):
                known.setdefault(x, at + k)
            continue
        if not isinstance(x, Var) or x not in known:
            place = at + len(chosen)
            chosen.append(k)
            if isinstance(x, Var):
                known[x] = place
            places.append(place)
        else:
            places.append(known[x])
    return chosen, tuple(places)


def _has_loop(jaxpr: Jaxpr) -> bool:
    """True if a program has a loop that is not unrolled."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan" and stays_loop(equation.params):
            return True
        if equation.primitive.name in ("jit", "pjit") and _has_loop(equation.params["jaxpr"].jaxpr):
            return True
    return False
