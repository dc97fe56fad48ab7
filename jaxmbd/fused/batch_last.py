"""Batched programs of several states along the last axis.

`jax.vmap` puts the states along the first axis, so that the innermost loops run over three
components. With the states along the last axis the innermost loops run over states and vectorize.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from .inline_and_unroll import blank, literal
from .parameters import ELEMENTWISE_NAMES, unsupported

# Every entry of the result depends on the entries at the same index alone.
ELEMENTWISE = ELEMENTWISE_NAMES

# Operations along given axes of one array.
BY_AXIS = frozenset(
    {
        *("argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or"),
        *("reduce_prod", "reduce_sum", "rev", "split", "squeeze", "unstack"),
    }
)


class CannotBatch(Exception):
    """An operation of a program has no batching rule along the last axis."""


def batch_last(program: ClosedJaxpr, size: int, batched: Sequence[bool]) -> ClosedJaxpr:
    """The program for `size` states: some arguments and all results have an additional last axis.

    **Raises** `CannotBatch` if an operation has no batching rule.
    """

    def evaluate(*args: jax.Array) -> list[Any]:
        jaxpr = program.jaxpr
        consts = [_Value(x, False) for x in program.consts]
        known: dict[Any, _Value] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, map(_Value, args, batched), strict=True))

        def read(x: Any) -> _Value:
            return _Value(literal(x), False) if isinstance(x, Literal) else known[x]

        for equation in jaxpr.eqns:
            values = [read(x) for x in equation.invars]
            if any(value.batched for value in values):
                found = [_Value(x, True) for x in _found(equation, values, size)]
            else:
                found = equation.primitive.bind(*(v.x for v in values), **equation.params)
                found = found if equation.primitive.multiple_results else [found]
                found = [_Value(x, False) for x in found]
            known.update(zip(equation.outvars, found, strict=True))
        return [read(x).broadcast(x.aval.shape, size) for x in jaxpr.outvars]

    shapes = [
        jax.ShapeDtypeStruct((*x.shape, size), x.dtype) if last else blank(x)
        for x, last in zip(program.in_avals, batched, strict=True)
    ]
    return jax.make_jaxpr(evaluate)(*shapes)


class _Value:
    """An array, and whether its last axis is that of the states."""

    def __init__(self, x: Any, batched: bool):
        self.x, self.batched = x, batched

    def broadcast(self, shape: Sequence[int], size: int) -> jax.Array:
        """The array for all states, with this shape for each state."""
        x, rank = jnp.asarray(self.x), len(shape)
        own = x.ndim - self.batched
        axes = range(rank - own, rank)  # A scalar stands for all entries.
        if self.batched:
            axes = (*axes, rank)
        return jax.lax.broadcast_in_dim(x, (*shape, size), tuple(axes))

    def plain(self) -> Any:
        """The array, if it is the same for all states."""
        if self.batched:
            raise CannotBatch
        return self.x


def _found(equation: Any, values: list[_Value], size: int) -> Sequence[jax.Array]:
    primitive, params = equation.primitive, equation.params
    name = primitive.name
    if unsupported(equation) is not None:
        raise CannotBatch
    if name in ELEMENTWISE:
        shape = equation.outvars[0].aval.shape
        return [primitive.bind(*(v.broadcast(shape, size) for v in values), **params)]
    if name in BY_AXIS:
        found = primitive.bind(values[0].x, **params)
        return found if primitive.multiple_results else [found]
    if name not in RULES:
        raise CannotBatch
    found = RULES[name](values, params, size, equation.outvars[0].aval.shape)
    return found if isinstance(found, list | tuple) else [found]


def _broadcast(values, params, size, shape):
    axes = *params["broadcast_dimensions"], len(shape)
    return jax.lax.broadcast_in_dim(values[0].x, (*shape, size), axes)


def _reshape(values, params, size, shape):
    return jax.lax.reshape(values[0].x, (*shape, size))


def _transpose(values, params, size, shape):
    return jax.lax.transpose(values[0].x, (*params["permutation"], len(shape)))


def _slice(values, params, size, shape):
    strides = params["strides"] or (1,) * len(shape)
    first, limit = (*params["start_indices"], 0), (*params["limit_indices"], size)
    return jax.lax.slice(values[0].x, first, limit, (*strides, 1))


def _dynamic_slice(values, params, size, shape):
    first = [v.plain() for v in values[1:]]
    return jax.lax.dynamic_slice(values[0].x, (*first, _zero(first)), (*shape, size))


def _dynamic_update_slice(values, params, size, shape):
    first = [v.plain() for v in values[2:]]
    old, new = _each(values[:2], size)
    return jax.lax.dynamic_update_slice(old, new, (*first, _zero(first)))


def _zero(like: list[Any]) -> Any:
    return jnp.zeros((), jnp.result_type(like[0]) if like else jnp.int32)


def _each(values: list[_Value], size: int) -> list[jax.Array]:
    return [v.broadcast(jnp.shape(v.x)[: jnp.ndim(v.x) - v.batched], size) for v in values]


def _concatenate(values, params, size, shape):
    return jax.lax.concatenate(_each(values, size), params["dimension"])


def _stack(values, params, size, shape):
    return jnp.stack(_each(values, size), axis=params["axis"])


def _tile(values, params, size, shape):
    return jnp.tile(values[0].x, (*params["reps"], 1))


def _pad(values, params, size, shape):
    x = _each(values[:1], size)[0]
    return jax.lax.pad(x, values[1].plain(), (*params["padding_config"], (0, 0, 0)))


def _select(values, params, size, shape):
    which, *cases = values
    chosen = which.broadcast(shape, size) if which.batched or jnp.ndim(which.x) else which.x
    return jax.lax.select_n(chosen, *(case.broadcast(shape, size) for case in cases))


def _gather(values, params, size, shape):
    numbers = params["dimension_numbers"]
    numbers = numbers._replace(offset_dims=(*numbers.offset_dims, len(shape)))
    sizes = (*params["slice_sizes"], size)
    return jax.lax.gather(
        values[0].x,
        values[1].plain(),
        numbers,
        sizes,
        mode=params["mode"],
        fill_value=params["fill_value"],
    )


def _scan(values, params, size, shape):
    n_consts, n_carry = _counts(params)
    consts, carry, xs = (
        values[:n_consts],
        values[n_consts : n_consts + n_carry],
        values[n_consts + n_carry :],
    )
    batched = [v.batched for v in consts] + [True] * n_carry + [v.batched for v in xs]
    inner = batch_last(params["jaxpr"], size, batched)

    def step(carry: list[jax.Array], x: list[jax.Array]) -> tuple[list[Any], list[Any]]:
        found = jaxpr_as_fun(inner)(*(v.x for v in consts), *carry, *x)
        return found[:n_carry], found[n_carry:]

    end, kept = jax.lax.scan(
        step,
        _each(carry, size),
        [v.x for v in xs],
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*end, *kept]


def _counts(params: Any) -> tuple[int, int]:
    """Numbers of constants and of carried values of a loop."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()  # From JAX 0.12 on.
    return len(list(consts)), len(list(carry))


RULES: dict[str, Callable[[list[_Value], Any, int, tuple[int, ...]], Any]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "pad": _pad,
    "reshape": _reshape,
    "scan": _scan,
    "select_n": _select,
    "slice": _slice,
    "stack": _stack,
    "tile": _tile,
    "transpose": _transpose,
}


# All operations with a batching rule along the last axis.
KNOWN = ELEMENTWISE | BY_AXIS | RULES.keys()

__all__ = ["KNOWN", "CannotBatch", "batch_last"]
