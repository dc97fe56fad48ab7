"""Inline-and-unroll pass: inline calls of functions, and unroll small matrix products to sums.

XLA puts no scatters into kernels: additions to a few static rows become sums of gathered rows,
others a loop. Unrolled operations fuse with their surroundings, so that XLA can compile a whole
program as one kernel. Outside of kernels the library's products take half the time.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from .parameters import unsupported

# Longest sums of products that are unrolled.
WIDE = 32

# Largest number of contributions to one row without a loop.
MANY = 16

# Further operations that are evaluated to a table of rows if all arguments are such tables.
OF_TABLES = frozenset({"cumsum", "scatter", "scatter-add", "sort"})

# Calls of functions, and the parameter with the function. Kernels within a kernel are calls too.
CALLS = {
    "fused_program": "program",
    "linear_kernel": "program",
    "native_call": "program",  # Of one state: parameters.py.
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "pjit": "jaxpr",
}

# Batches of kernels within a kernel.
BATCHES = frozenset({"batch_of_kernels", "batch_of_linear_kernels"})


def inline_and_unroll(program: ClosedJaxpr, large: int) -> ClosedJaxpr:
    """The inlined and unrolled program, without custom rules of differentiation.

    Sums of up to `large` numbers are reductions, others additions of slices: XLA compiles
    reductions of large arrays to library calls.
    """

    def evaluate(*args: jax.Array) -> list[Any]:  # Also NumPy arrays.
        jaxpr = program.jaxpr
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(_table, program.consts), strict=True))
        known.update(zip(jaxpr.invars, args, strict=True))

        def read(x: Any) -> Any:
            return _table(literal(x)) if isinstance(x, Literal) else known[x]

        for equation in jaxpr.eqns:
            found = _found(equation, [read(x) for x in equation.invars], large)
            known.update(zip(equation.outvars, found, strict=True))
        return [read(x) for x in jaxpr.outvars]

    return jax.make_jaxpr(evaluate)(*map(blank, program.in_avals))


def blank(aval: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of an array, for tracing."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def literal(x: Any) -> np.ndarray:
    """Value of a literal, with its type in the program."""
    return np.asarray(x.val, x.aval.dtype)


def _found(equation: Any, values: list[Any], large: int) -> Sequence[Any]:
    """Results of an equation, rewritten if a rule handles it, otherwise unchanged."""
    primitive, params = equation.primitive, equation.params
    handled = unsupported(equation) is None
    found = _rewritten(equation, values, large) if handled else None
    if found is not None:
        return found
    if primitive.name == "scan" and handled:
        params = params | {"jaxpr": inline_and_unroll(params["jaxpr"], large)}
    tables = all(isinstance(x, np.ndarray | np.generic) for x in values)
    if tables and _gives_integers(equation) and (handled or primitive.name in OF_TABLES):
        with jax.ensure_compile_time_eval():  # Tables of rows.
            found = primitive.bind(*values, **params)
        return jax.tree.map(np.asarray, found if primitive.multiple_results else [found])
    found = primitive.bind(*values, **params)
    return found if primitive.multiple_results else [found]


def _rewritten(equation: Any, values: list[Any], large: int) -> Sequence[Any] | None:
    """Results of the replacement of an equation; None if no rule replaces it."""
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (a, b), (along, beside) = values, params["dimension_numbers"]
        if math.prod(a.shape[k] for k in along[0]) <= WIDE:
            return [_product(a, b, along, beside, large)]
    elif name in CALLS and isinstance(inner := params[CALLS[name]], ClosedJaxpr):
        return jaxpr_as_fun(inline_and_unroll(inner, large))(*values)
    elif name in BATCHES:
        inner = jax.make_jaxpr(params["plain"])(*(blank(x.aval) for x in equation.invars))
        return jaxpr_as_fun(inline_and_unroll(inner, large))(*values)
    elif name == "stop_gradient":
        return values
    elif name in ("after", "with_slope"):
        return values[:1]
    elif name == "scatter-add":
        total, rows, x = values
        return [_scattered(total, rows, x, large)]
    return None


def _table(x: Any) -> Any:
    """Integers as NumPy arrays, which are static under tracing."""
    known = isinstance(x, jax.Array | np.ndarray) and not isinstance(x, Tracer)
    return np.asarray(x) if known and jnp.issubdtype(x.dtype, jnp.integer) else x


def _gives_integers(equation: Any) -> bool:
    return all(jnp.issubdtype(x.aval.dtype, jnp.integer) for x in equation.outvars)


def _scattered(total: Any, rows: Any, x: Any, large: int) -> jax.Array:
    """`total` with x added to some rows."""
    if isinstance(rows, np.ndarray) and rows.size:
        found = _gathered(total, rows[:, 0].astype(np.int64), x)
        if found is not None:
            return found

    given = total, jnp.asarray(rows)[:, 0], x
    return jaxpr_as_fun(inline_and_unroll(jax.make_jaxpr(_one_by_one)(*given), large))(*given)[0]


def _one_by_one(total: jax.Array, rows: jax.Array, x: jax.Array) -> jax.Array:
    def add(total: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        row, part = given
        part = jnp.where((row >= 0) & (row < total.shape[0]), part, 0)
        new = jax.lax.dynamic_index_in_dim(total, row, 0, keepdims=False) + part
        return jax.lax.dynamic_update_index_in_dim(total, new, row, 0), None

    return jax.lax.scan(add, total, (rows, x))[0]


def _gathered(total: Any, rows: np.ndarray, x: Any) -> jax.Array | None:
    """`total` with x added to static rows within bounds; None with many contributions to a row."""
    n = total.shape[0]
    if not 0 <= rows.min() <= rows.max() < n:
        return None
    table = np.full((n, np.bincount(rows).max()), len(rows), np.int32)
    filled = np.zeros(n, int)
    for k, row in enumerate(rows):
        table[row, filled[row]] = k
        filled[row] += 1
    if table.shape[1] > MANY:
        return None
    padded = jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])
    for column in table.T:
        total = total + padded.at[column].get(mode="promise_in_bounds")
    return total


def _product(a: Any, b: Any, along: Any, beside: Any, large: int) -> jax.Array:
    """Product of arrays, summed over the axes `along`, batched over the axes `beside` of both."""

    def arranged(x: jax.Array, k: int, before: int, after: int) -> jax.Array:
        first = (*along[k], *beside[k])
        x = jnp.transpose(x, (*first, *(axis for axis in range(x.ndim) if axis not in first)))
        m, n = len(along[k]), len(first)
        length, each, own = math.prod(x.shape[:m]), x.shape[m:n], x.shape[n:]
        return x.reshape(length, *each, *[1] * before, *own, *[1] * after)

    free = [x.ndim - len(along[k]) - len(beside[k]) for k, x in enumerate((a, b))]
    terms = arranged(a, 0, 0, free[1]) * arranged(b, 1, free[0], 0)
    return jnp.sum(terms, axis=0) if terms.size <= large else _added(terms)


def _added(x: jax.Array) -> jax.Array:
    total = x[0] if x.shape[0] else jnp.zeros(x.shape[1:], x.dtype)
    for k in range(1, x.shape[0]):
        total = total + x[k]
    return total


__all__ = ["blank", "inline_and_unroll", "literal"]
