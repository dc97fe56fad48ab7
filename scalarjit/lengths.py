"""Numbers of operations of programs: whether loops are unrolled, and calls inlined."""

import math
from collections import Counter
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from . import elementwise
from .dense import DENSE, is_long_product
from .jaxprs import CALLS, inner_of
from .mostly_zeros import MOSTLY_ZEROS

# Loops of more operations on scalars than this stay loops, and those with a longer body: repeated
# bodies share little. First fits of a double pendulum, with four stages of 3,700, take 0.7 of the
# time so, later ones up to a fifth longer.
MAX_UNROLLED = 20_000
LONG_BODY = 1_500

# Operations of a function `mostly_zeros` for each one that remains without those on zeros. Measured
# with derivatives of robots: 4.2 to 5.1.
FOLDED = 4

# Primitives whose result is the first argument: derivatives are traced before code is generated.
FIRST = frozenset({"after", "name", "stop_gradient", "with_slope"})

# Operations that keep truth values in a simple form.
OF_MASKS = frozenset({"transpose", "dot_general"})

# Name of the function that calls a loop over rows (`row_loops`), which is never unrolled.
ROW_LOOP = "row_loop"

Times = Callable[[int, int, int], int]


def _all(n: int, own: int, most: int) -> int:
    return n * own


def work(
    jaxpr: Jaxpr,
    times: Times = _all,
    called: Collection[ClosedJaxpr] = (),
    most: int | None = None,
) -> int:
    """About the number of operations on scalars of a jaxpr with all its loops unrolled.

    **Arguments:**

    - `times`: what a loop counts, a function of its number of iterations, of the work of one, and
      of the most work of a loop that is unrolled.
    - `called`: programs whose calls stay calls.
    - `most`: the most work of a loop in the program that is unrolled. Default: `MAX_UNROLLED`.
    """
    most = MAX_UNROLLED if most is None else most
    total = 0
    masks: set[Any] = set()
    folded: set[Any] = set(jaxpr.constvars)
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        size = sum(math.prod(shape_of(x)) for x in equation.outvars)
        if all(isinstance(x, Literal) or x in folded for x in equation.invars):
            folded.update(equation.outvars)
            size = 0
        of_masks = name in OF_MASKS and any(
            x in masks for x in equation.invars if not isinstance(x, Literal)
        )
        if makes_mask(equation) or (name == "transpose" and of_masks):
            masks.update(equation.outvars)
        elif name == "dot_general" and of_masks:  # Sums that share partial sums.
            total += 2 * size
        elif name == "dot_general":
            products = size * products_of(equation)
            if is_long_product(equation):
                products = sum(math.prod(shape_of(x)) for x in equation.invars) + size
            total += 2 * products
        elif name in DENSE:
            total += size + sum(math.prod(shape_of(x)) for x in equation.invars)
        elif name in elementwise.RULES:
            total += size
        elif name.startswith(("reduce", "cum", "arg", "scatter")):
            total += math.prod(shape_of(equation.invars[0]))
        if name == "custom_linear_solve":
            total += work(params["jaxprs"].solve.jaxpr, times, called)
            continue
        if name == "scalarjit_call" and is_called(equation, called):
            total += size + sum(math.prod(shape_of(x)) for x in equation.invars)
            continue
        if name == "scalarjit_call" and any(params["batched"]):
            own = work(params["program"].jaxpr, times, called)
            total += times(shape_of(equation.outvars[0])[0], own, MAX_UNROLLED)
            continue
        called_as = params.get("name") if name in CALLS else None
        limit = 0 if called_as == ROW_LOOP else MAX_UNROLLED
        for inner in inner_of(equation):
            own = work(inner, times, called, limit)
            own //= FOLDED if called_as == MOSTLY_ZEROS else 1
            total += times(params["length"], own, most) if name == "scan" else own
    return total


# Programs of about this many operations and more are functions if another program calls them more
# than once. In the loop over the steps of a robot, whose accelerations are called once, a function
# would cost a tenth to a half of the time, since its arguments and results are in memory.
MIN_CALLED = 1_000


def is_called(equation: Any, called: Collection[ClosedJaxpr]) -> bool:
    """True if a call of generated code stays a call within a program."""
    return not any(equation.params["batched"]) and equation.params["program"] in called


@lru_cache(maxsize=256)
def called_by(program: ClosedJaxpr) -> frozenset[ClosedJaxpr]:
    """Programs that a program calls more than once, if they are long enough to be functions."""
    counts: Counter[ClosedJaxpr] = Counter()
    _count(program.jaxpr, counts)
    return frozenset(
        x
        for x, n in counts.items()
        if n > 1 and any(math.prod(y.shape) for y in x.in_avals) and work_of(x) >= MIN_CALLED
    )


def _count(jaxpr: Jaxpr, counts: Counter[ClosedJaxpr]) -> None:
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "scalarjit_call" and not any(params["batched"]):
            counts[params["program"]] += 1
        for inner in inner_of(equation):
            _count(inner, counts)


@lru_cache(maxsize=256)
def work_of(program: ClosedJaxpr) -> int:
    """`work` of a program."""
    return work(program.jaxpr)


def stays_loop(params: Any, most: int | None = None) -> bool:
    """True if a scan with these parameters has too many operations to be unrolled.

    **Arguments:** `most`: the largest number. Default: `MAX_UNROLLED`.
    """
    most = MAX_UNROLLED if most is None else most
    return _is_long(params["length"], work(params["jaxpr"].jaxpr), most)


def _is_long(n: int, own: int, most: int) -> bool:
    """True if a loop of n iterations of so many operations is not unrolled."""
    return n != 1 and (n * own > most or own > LONG_BODY)


def length(jaxpr: Jaxpr, called: Collection[ClosedJaxpr] = ()) -> tuple[int, int]:
    """About the number of operations in the program of scalars of a jaxpr, and of long loops."""
    loops: list[int] = []

    def times(n: int, own: int, most: int) -> int:
        if not _is_long(n, own, most):
            return n * own
        if own > MAX_UNROLLED:  # Not a recursion over the bodies of a long chain.
            loops.append(own)
        return own

    return work(jaxpr, times, called), len(loops)


def makes_mask(equation: Any) -> bool:
    """True if an equation converts truth values to numbers."""
    name = equation.primitive.name
    return name == "convert_element_type" and equation.invars[0].aval.dtype == bool


def products_of(equation: Any) -> int:
    """Number of products in a sum of an equation."""
    if equation.primitive.name != "dot_general":
        return 1
    (along, _), _ = equation.params["dimension_numbers"]
    return max(1, math.prod(shape_of(equation.invars[0])[k] for k in along))


def shape_of(x: Any) -> tuple[int, ...]:
    """Shape of a variable of a program."""
    return x.aval.shape
