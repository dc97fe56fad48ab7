"""Programs with small products of matrices as sums of products, and without calls of functions.

Additions to rows that are known beforehand become sums of gathered rows, as XLA makes no kernel of
scatters.
What is written out fuses with its surroundings, and XLA can make one kernel of a whole program.
Elsewhere the library's products take half the time.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

# Longer sums of products stay products.
WIDE = 32

# More contributions to one row stay a scatter.
MANY = 16

# Calls of functions, and where these stand.
CALLS = {
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "jit": "jaxpr",
    "pjit": "jaxpr",
}


def written_out(program: ClosedJaxpr, large: int) -> ClosedJaxpr:
    """The same program, which can no longer be differentiated as its author wanted.

    Sums of up to `large` numbers are reductions, others additions of slices: XLA makes library
    calls of reductions of large arrays.
    """

    def evaluate(*args: jax.Array) -> list[jax.Array]:
        jaxpr = program.jaxpr
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(_table, program.consts), strict=True))
        known.update(zip(jaxpr.invars, args, strict=True))

        def read(x: Any) -> Any:
            return _table(x.val) if isinstance(x, Literal) else known[x]

        for equation in jaxpr.eqns:
            found = _found(equation, [read(x) for x in equation.invars], large)
            known.update(zip(equation.outvars, found, strict=True))
        return [read(x) for x in jaxpr.outvars]

    return jax.make_jaxpr(evaluate)(*map(blank, program.in_avals))


def blank(aval: Any) -> jax.ShapeDtypeStruct:
    """An array of this kind, to trace with."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _found(equation: Any, values: list[Any], large: int) -> Sequence[Any]:
    primitive, params = equation.primitive, equation.params
    name = primitive.name
    if name == "dot_general":
        (a, b), (along, beside) = values, params["dimension_numbers"]
        if math.prod(a.shape[k] for k in along[0]) <= WIDE:
            return [_product(a, b, along, beside, large)]
    elif name in CALLS and isinstance(inner := params[CALLS[name]], ClosedJaxpr):
        return jaxpr_as_fun(written_out(inner, large))(*values)
    elif name == "scatter-add":
        total, rows, x = values
        found = _gathered(total, rows, x, params["dimension_numbers"])
        if found is not None:
            return [found]
    elif name == "scan":
        params = params | {"jaxpr": written_out(params["jaxpr"], large)}
    if all(isinstance(x, np.ndarray | np.generic) for x in values) and _gives_integers(equation):
        with jax.ensure_compile_time_eval():  # Tables of rows.
            found = primitive.bind(*values, **params)
        return jax.tree.map(np.asarray, found if primitive.multiple_results else [found])
    found = primitive.bind(*values, **params)
    return found if primitive.multiple_results else [found]


def _table(x: Any) -> Any:
    """Integers as numbers of NumPy, which are known while tracing."""
    known = isinstance(x, jax.Array | np.ndarray) and not isinstance(x, Tracer)
    return np.asarray(x) if known and jnp.issubdtype(x.dtype, jnp.integer) else x


def _gives_integers(equation: Any) -> bool:
    return all(jnp.issubdtype(x.aval.dtype, jnp.integer) for x in equation.outvars)


def _gathered(total: jax.Array, rows: Any, x: jax.Array, numbers: Any) -> jax.Array | None:
    """`total` with x added at some rows, where these are known, and few for each."""
    plainly = (numbers.inserted_window_dims, numbers.scatter_dims_to_operand_dims) == ((0,), (0,))
    windows = numbers.update_window_dims == tuple(range(1, x.ndim))
    if not (plainly and windows and isinstance(rows, np.ndarray) and rows.ndim == 2):
        return None
    rows, n = rows[:, 0], total.shape[0]
    if rows.size and not 0 <= rows.min() <= rows.max() < n:
        return None
    table = np.full((n, np.bincount(rows, minlength=1).max()), len(rows), np.int32)
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


def _product(a: jax.Array, b: jax.Array, along: Any, beside: Any, large: int) -> jax.Array:
    """A product of arrays along axes of both, beside others of both."""

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


__all__ = ["blank", "written_out"]
