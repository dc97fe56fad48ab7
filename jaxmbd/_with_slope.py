"""Arrays that are known, with derivatives by a rule: roots, and ends of iterations."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

Slope = Callable[[Array, list[Any], list[Any]], Array]  # Constants may be NumPy arrays.


def with_slope(x: Float[Array, "n"], leaves: list[Any], slope: Slope) -> Float[Array, "n"]:
    """x, with the derivative slope(x, leaves, along) by the arrays `leaves`.

    **Arguments:** `slope`: linear in `along`, which has None for arrays of integers.
    """
    return _with_slope.bind(x, *leaves, slope=slope)


def converged(
    step: Callable[[Array, Any], Array], x: Float[Array, "n"], args: Any
) -> Float[Array, "n"]:
    """x, where an iteration x ← step(x, args) ended, with the derivative of one more step by args.

    The step is computed only for derivatives.
    """
    arrays, rest = eqx.partition(args, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    def slope(x: Array, leaves: list[Any], along: list[Any]) -> Array:
        args = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        d_args = jax.tree.unflatten(structure, along)
        dx = eqx.filter_jvp(lambda args: step(x, args), (args,), (d_args,))[1]
        return jnp.zeros_like(x) if dx is None else dx

    return with_slope(x, leaves, slope)


# A primitive instead of `custom_jvp`: second derivatives of loops lose the rule of a `custom_jvp`.
# JAX evaluates the known part of a derivative without the rule, and there x depends on nothing.
_with_slope = Primitive("with_slope")


@_with_slope.def_impl
def _value(x: Array, *leaves: Array, slope: Slope) -> Array:
    return x


@_with_slope.def_abstract_eval
def _(x: Any, *leaves: Any, slope: Slope) -> Any:
    return x


def _forward(
    primals: Sequence[Any], tangents: Sequence[Any], *, slope: Slope
) -> tuple[Array, Array]:
    x, *leaves = primals
    x = _with_slope.bind(x, *leaves, slope=slope)
    along = [
        ad.instantiate_zeros(d) if jnp.issubdtype(y.dtype, jnp.inexact) else None
        for y, d in zip(leaves, tangents[1:], strict=True)
    ]
    return x, slope(x, leaves, along)


def _in_batch(
    arrays: Sequence[Any], axes: Sequence[int | None], *, slope: Slope
) -> tuple[Array, int]:
    count = next(x.shape[k] for x, k in zip(arrays, axes, strict=True) if k is not None)
    x, *leaves = (
        y if k is None else jnp.moveaxis(y, k, 0) for y, k in zip(arrays, axes, strict=True)
    )
    if axes[0] is None:
        x = jnp.broadcast_to(x, (count, *x.shape))
    each = [None if k is None else 0 for k in axes[1:]]

    def slopes(x: Array, leaves: list[Any], along: list[Any]) -> Array:
        moving = [None if d is None else k for d, k in zip(along, each, strict=True)]
        return jax.vmap(slope, in_axes=(0, each, moving))(x, leaves, along)

    return _with_slope.bind(x, *leaves, slope=slopes), 0


ad.primitive_jvps[_with_slope] = _forward
batching.primitive_batchers[_with_slope] = _in_batch
mlir.register_lowering(_with_slope, mlir.lower_fun(_value, multiple_results=False))


__all__ = ["converged", "with_slope"]
