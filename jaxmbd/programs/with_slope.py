"""Arrays that are known, with derivatives by a rule: roots, and ends of iterations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

# Carries of loops with tangents for all arrays as soon as any input has a tangent -----------------


def with_shared_tangents(carry: Any, others: Any) -> Any:
    """`carry` with the same values, and with zero derivatives by all arrays of `others`.

    JAX differentiates a scan again each time that it detects another part of the carry with a
    tangent; each repetition takes as long as tracing the body several times.
    """
    arrays = jax.tree.leaves(eqx.filter(others, eqx.is_inexact_array))
    if not arrays:
        return carry
    nothing = jnp.where(False, sum(jnp.sum(x).astype(arrays[0].dtype) for x in arrays), 0.0)
    moving, rest = eqx.partition(carry, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: x + nothing.astype(x.dtype), moving), rest)


# Arrays that are known, with derivatives by a rule: roots, and ends of iterations -----------------

Slope = Callable[[Array, list[Any], list[Any]], Array]  # Constants may be NumPy arrays.


def with_slope(
    x: Float[Array, "n"], leaves: list[Any], slope: Slope, with_zeros: bool = True
) -> Float[Array, "n"]:
    """x, with the derivative slope(x, leaves, along) by the arrays `leaves`.

    **Arguments:**

    - `slope`: linear in `along`, which has None for arrays of integers.
    - `with_zeros`: whether `along` has zeros for floats without a derivative, otherwise None.
    """
    return _with_slope.bind(x, *leaves, slope=slope, with_zeros=with_zeros)


def with_slope_of(
    fn: Callable[[Any], Float[Array, "n"]], x: Float[Array, "n"], args: Any
) -> Float[Array, "n"]:
    """x, which equals fn(args), with the derivatives of fn.

    fn is computed only for derivatives, of any order.
    """
    return _with_derivative(fn, x, args, False)


def converged(
    step: Callable[[Array, Any], Array], x: Float[Array, "n"], args: Any
) -> Float[Array, "n"]:
    """x, where an iteration x ← step(x, args) ended, with the derivative of one more step by args.

    The step is computed only for derivatives.
    """
    return _with_derivative(step, x, args, True)


def _with_derivative(fn: Callable, x: Float[Array, "n"], args: Any, takes_x: bool) -> Array:
    arrays, rest = eqx.partition(args, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    others, outer = jax.tree.flatten(rest)
    slope = _Derivative(fn, takes_x, structure, tuple(others), outer)
    return with_slope(x, leaves, slope, with_zeros=False)


@dataclass(frozen=True)
class _Derivative:
    """The derivative of a function of a pytree, or of x and a pytree.

    Equal for equal functions and structures, so that equal programs have the same generated code.
    """

    fn: Callable[..., Array]
    takes_x: bool
    structure: Any
    others: tuple[Any, ...]
    outer: Any

    def __call__(self, x: Array, leaves: list[Any], along: list[Any]) -> Array:
        rest = jax.tree.unflatten(self.outer, self.others)
        arrays, moving = (jax.tree.unflatten(self.structure, y) for y in (leaves, along))
        fn = partial(self.fn, x) if self.takes_x else self.fn
        return jvp_with_zeros(fn, (eqx.combine(arrays, rest),), (moving,))[1]


def jvp_with_zeros(fn: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """`eqx.filter_jvp(fn, primals, tangents)`, whose tangents of results are all arrays.

    The tangent of an array that depends on no moving argument is an array of zeros, not None. A
    function may depend on some of its arguments only: coordinates after a step on those before
    and on velocities, but not on masses.
    """
    values, dots = eqx.filter_jvp(fn, primals, tangents)

    def filled(value: Any, dot: Any) -> Any:
        without = dot is None and eqx.is_inexact_array(value)
        return jnp.zeros_like(value) if without else dot

    return values, jax.tree.map(filled, values, dots, is_leaf=lambda x: x is None)


# A primitive instead of `custom_jvp`: second derivatives of loops lose the rule of a `custom_jvp`.
# JAX evaluates the known part of a derivative without the rule, and there x depends on nothing.
_with_slope = Primitive("with_slope")


@_with_slope.def_impl
def _value(x: Array, *leaves: Array, **params: Any) -> Array:
    return x


@_with_slope.def_abstract_eval
def _(x: Any, *leaves: Any, **params: Any) -> Any:
    return x


def _forward(
    primals: Sequence[Any], tangents: Sequence[Any], *, slope: Slope, with_zeros: bool
) -> tuple[Array, Any]:
    x, *leaves = primals
    x = _with_slope.bind(x, *leaves, slope=slope, with_zeros=with_zeros)
    if all(isinstance(d, ad.Zero) for d in tangents[1:]):
        return x, ad.Zero(jax.typeof(x).to_tangent_aval())
    along = [
        ad.instantiate_zeros(d)
        if jnp.issubdtype(y.dtype, jnp.inexact) and (with_zeros or not isinstance(d, ad.Zero))
        else None
        for y, d in zip(leaves, tangents[1:], strict=True)
    ]
    return x, slope(x, leaves, along)


@dataclass(frozen=True)
class _Batched:
    """A slope of a batch; `axes`: 0 for each batched array of the leaves, otherwise None."""

    slope: Slope
    axes: tuple[int | None, ...]

    def __call__(self, x: Array, leaves: list[Any], along: list[Any]) -> Array:
        moving = [None if d is None else k for d, k in zip(along, self.axes, strict=True)]
        return jax.vmap(self.slope, in_axes=(0, list(self.axes), moving))(x, leaves, along)


def _in_batch(
    arrays: Sequence[Any], axes: Sequence[int | None], *, slope: Slope, with_zeros: bool
) -> tuple[Array, int]:
    count = next(x.shape[k] for x, k in zip(arrays, axes, strict=True) if k is not None)
    # An axis that is the first one stays: generated code loads from arguments, not from transposes.
    x, *leaves = (jnp.moveaxis(y, k, 0) if k else y for y, k in zip(arrays, axes, strict=True))
    if axes[0] is None:
        x = jnp.broadcast_to(x, (count, *x.shape))
    own = _Batched(slope, tuple(None if k is None else 0 for k in axes[1:]))
    return _with_slope.bind(x, *leaves, slope=own, with_zeros=with_zeros), 0


ad.primitive_jvps[_with_slope] = _forward
batching.primitive_batchers[_with_slope] = _in_batch
mlir.register_lowering(_with_slope, mlir.lower_fun(_value, multiple_results=False))
