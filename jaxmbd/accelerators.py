"""Programs for accelerators: few operations on many numbers instead of many small ones.

A launch of a kernel on a GPU costs about 2 µs for any batch. Small matrix products are kernels of
their own, while XLA fuses products and sums with the operations around them. The sums are also
exact to rounding, whereas library products of float32 matrices may round their factors to 10 bits.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from scalarjit import enabled, why_none
from scalarjit.jaxprs import blank, literal
from scalarjit.switch import PART

# Longest sums of products that are written as sums.
LONGEST = 32

# Loops and branches, and their parameters with programs.
LOOPS = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}

# JAX traces again if the value changes, so that no program of the other choice is reused.
_chosen = jax.make_user_context(default_value=None)


@contextmanager
def accelerator_programs(on: bool) -> Iterator[None]:
    """Switch programs for accelerators on or off inside a `with` block.

    Results agree to rounding. Programs for accelerators have no generated code. Default: on, if
    JAX's default backend is not the CPU and has no generated code.
    """
    with _chosen(on), enabled(False) if on else nullcontext():
        yield


def for_accelerator() -> bool:
    """True if JAX traces programs for accelerators here."""
    if _chosen.value is not None:
        return _chosen.value
    return jax.default_backend() != "cpu" and why_none() not in (None, PART)


def products_as_sums(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn with its small matrix products written as sums, if programs are for accelerators."""

    def of_args(*args: Any) -> Any:
        if not for_accelerator():
            return fn(*args)
        program, shapes, rest = eqx.filter_make_jaxpr(fn)(*args)
        arrays = jax.tree.leaves(eqx.filter(args, eqx.is_array))
        leaves = _evaluate(program, arrays)
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), leaves), rest)

    return of_args


def _evaluate(program: ClosedJaxpr, args: list[Any]) -> list[Any]:
    jaxpr = program.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, program.consts, strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))

    def read(x: Any) -> Any:
        return literal(x) if isinstance(x, Literal) else known[x]

    for equation in jaxpr.eqns:
        results = _results(equation, [read(x) for x in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(x) for x in jaxpr.outvars]


def _results(equation: Any, values: list[Any]) -> list[Any]:
    """Results of an equation: sums for a small product, else those of the same operation."""
    name, params = equation.primitive.name, equation.params
    if name == "dot_general" and _is_small(equation):
        a, b = map(jnp.asarray, values)
        return [_product(a, b, *params["dimension_numbers"])]
    if name in ("jit", "pjit"):
        return _evaluate(params["jaxpr"], values)
    if name in LOOPS:
        params = params | {key: _rewritten(params[key]) for key in LOOPS[name]}
    found = equation.primitive.bind(*values, **equation.primitive.get_bind_params(params))
    return list(found) if equation.primitive.multiple_results else [found]


def _product(a: jax.Array, b: jax.Array, along: Any, beside: Any) -> jax.Array:
    """Product of arrays, summed over the axes `along`, batched over the axes `beside` of both."""

    def arranged(x: jax.Array, k: int, before: int, after: int) -> jax.Array:
        first = (*along[k], *beside[k])
        x = jnp.transpose(x, (*first, *(axis for axis in range(x.ndim) if axis not in first)))
        m, n = len(along[k]), len(first)
        length, each, own = math.prod(x.shape[:m]), x.shape[m:n], x.shape[n:]
        return x.reshape(length, *each, *[1] * before, *own, *[1] * after)

    free = [x.ndim - len(along[k]) - len(beside[k]) for k, x in enumerate((a, b))]
    return jnp.sum(arranged(a, 0, 0, free[1]) * arranged(b, 1, free[0], 0), axis=0)


def _rewritten(program: Any) -> Any:
    if isinstance(program, tuple):
        return tuple(map(_rewritten, program))
    inner: ClosedJaxpr = program
    shapes = map(blank, inner.in_avals)
    return jax.make_jaxpr(lambda *args: _evaluate(inner, list(args)))(*shapes)


def _is_small(equation: Any) -> bool:
    """True if a product is a short sum, in the float type of both factors."""
    a, b = (x.aval for x in equation.invars)
    (result,) = (x.aval for x in equation.outvars)
    length = math.prod(a.shape[axis] for axis in equation.params["dimension_numbers"][0][0])
    floats = jnp.issubdtype(a.dtype, jnp.floating)
    return floats and a.dtype == b.dtype == result.dtype and length <= LONGEST
