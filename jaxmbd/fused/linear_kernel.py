"""Linear functions as kernels, with transposes that are kernels too.

Derivatives are linear. JAX's derivative of a kernel would consist of single operations, each of
which saves residuals for the backward pass. Linear kernels save their arguments only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive
from jax.flatten_util import ravel_pytree
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from .fused_program import (
    ENOUGH,
    Batch,
    Kernel,
    all_at_once,
    count_of,
    function_of,
    in_turn,
    kernel_of,
    of_arguments,
    tiled,
    tiles_of,
)
from .inline_and_unroll import blank

# Constructor of the transpose, called at its first use: it takes as long as that of the function.
Transposed = Callable[[], Kernel | None]


@dataclass(frozen=True, eq=False, repr=False)
class LinearKernel:
    """A function of arguments and a vector, linear in the vector, and its transpose."""

    linear: Kernel
    transpose: Transposed

    def __call__(self, at: Any, x: Float[Array, "n"]) -> Float[Array, "m"]:
        return _bound(jax.tree.leaves(eqx.filter(at, eqx.is_array)), x, self.linear, self.transpose)


def linear_kernel_of(
    linear: Callable[[Any, Float[Array, "n"]], Float[Array, "m"]],
    transpose: Callable[[Any, Float[Array, "m"]], Float[Array, "n"]],
    at: Any,
    x: Float[Array, "n"],
) -> LinearKernel | None:
    """Convert `linear` and its transpose to a linear kernel; None as for `kernel_of`.

    Each takes the arguments in which it is not linear, and a vector. If `transpose` cannot be a
    kernel, JAX transposes `linear`.
    """
    ahead = kernel_of(linear, linear, at, x)
    if ahead is None:
        return None
    shapes = jax.tree.map(lambda x: blank(x) if eqx.is_array(x) else x, at)
    (y,) = ahead.plain.out_avals
    x64: bool = getattr(jax.config, "jax_enable_x64")  # noqa: B009

    def transposed() -> Kernel | None:
        with jax.enable_x64(x64):  # The setting at the call of `linear_kernel_of`.
            return kernel_of(transpose, transpose, shapes, blank(y))

    return LinearKernel(ahead, cache(transposed))


@dataclass(frozen=True, eq=False, repr=False)
class SmoothKernel:
    """A function as a kernel with derivatives that are kernels too, created at their first use.

    Create one object for several calls: the creation of a kernel takes longer than tracing `fn`.
    """

    fn: Callable[..., jax.Array]
    kernel: Kernel
    derivatives: dict[Any, LinearKernel | None] = field(default_factory=dict)

    def __call__(self, *args: Any) -> jax.Array:
        return _smooth(*args, of=self)

    def derivative(self, args: Any, tangents: Any) -> LinearKernel | None:
        """Derivative by the arguments that have a tangent."""
        moving = moved(tangents)
        leaves, structure = jax.tree.flatten(moving)
        which = tuple(leaves), structure
        if which not in self.derivatives:
            fn = of_arguments(self.kernel.plain)
            self.derivatives[which] = derivative_kernel(fn, args, tangents)
        return self.derivatives[which]


def smooth_kernel_of(fn: Callable[..., jax.Array], *args: Any) -> SmoothKernel | None:
    """Convert fn to a kernel with its derivatives; None as for `kernel_of`."""
    kernel = kernel_of(fn, fn, *args)
    return None if kernel is None else SmoothKernel(fn, kernel)


def smooth_kernel(fn: Callable[..., jax.Array], *args: Any) -> jax.Array:
    """fn(*args) by a kernel whose derivatives are kernels too; by fn itself without a kernel."""
    kernel = smooth_kernel_of(fn, *args)
    return fn(*args) if kernel is None else kernel(*args)


@eqx.filter_custom_jvp
def _smooth(*args: Any, of: SmoothKernel) -> jax.Array:
    return of.kernel(*args)


@_smooth.def_jvp
def _(args, tangents, *, of):
    linear = of.derivative(args, tangents)
    if linear is None:
        return jvp_with_zeros(of.fn, args, tangents)
    return _smooth(*args, of=of), linear(args, ravel_pytree(tangents)[0])


def derivative_kernel(
    fn: Callable[..., jax.Array], args: Any, tangents: Any
) -> LinearKernel | None:
    """Derivative of fn(*args) by the arguments that have a tangent; None as for `kernel_of`.

    It is a function of the arguments and of all tangents in one vector. `fn` is traced twice or
    more; the result of `traced` in its place is faster.
    """
    moving = moved(tangents)
    dots, unravel = ravel_pytree(tangents)

    def linear(args: Any, dots: Float[Array, "n"]) -> Float[Array, "m"]:
        return jvp_with_zeros(fn, args, unravel(dots))[1]

    def transpose(args: Any, y: Float[Array, "m"]) -> Float[Array, "n"]:
        varied, rest = eqx.partition(args, moving)
        pull = jax.vjp(lambda varied: fn(*eqx.combine(varied, rest)), varied)[1]
        return ravel_pytree(pull(y))[0]

    return linear_kernel_of(linear, transpose, args, dots)


def moved(tangents: Any) -> Any:
    """Tree of truth values: whether each argument has a tangent."""
    return jax.tree.map(lambda dot: dot is not None, tangents, is_leaf=lambda x: x is None)


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


_linear = Primitive("linear_kernel")


def _bound(at: Sequence[Any], x: Any, linear: Kernel, transpose: Transposed) -> jax.Array:
    params = {"program": linear.program, "plain": linear.plain, "states": linear.states}
    return _linear.bind(*at, x, **params, transposed=transpose)


@_linear.def_abstract_eval
def _(*avals: Any, program: ClosedJaxpr, **others: Any) -> Any:
    return program.out_avals[0]


@_linear.def_impl
def _plainly(
    *arrays: Any, program: ClosedJaxpr, plain: ClosedJaxpr, states: int, **others: Any
) -> jax.Array:
    return Kernel(program, plain, function_of(plain), states)(*arrays)


def _forward(
    primals: Sequence[Any], tangents: Sequence[Any], *, plain: ClosedJaxpr, **others: Any
) -> tuple[jax.Array, jax.Array]:
    """Derivative: a linear kernel along the vector alone, otherwise that of `plain`."""
    *at, x = primals
    *at_dot, x_dot = tangents
    if all(isinstance(dot, ad.Zero) for dot in at_dot):
        value = _linear.bind(*at, x, plain=plain, **others)
        return value, _linear.bind(*at, x_dot, plain=plain, **others)
    along = tuple(map(ad.instantiate_zeros, tangents))
    return jax.jvp(function_of(plain), tuple(primals), along)


def _transpose(
    cotangent: Any,
    *arrays: Any,
    program: ClosedJaxpr,
    plain: ClosedJaxpr,
    states: int,
    transposed: Transposed,
) -> list[Any]:
    *at, x = arrays
    if isinstance(cotangent, ad.Zero):
        return [None] * len(arrays)
    transpose = transposed()
    if transpose is None:
        turned = jax.linear_transpose(lambda x: function_of(plain)(*at, x), blank(x.aval))
        return [*[None] * len(at), *turned(cotangent)]
    linear = Kernel(program, plain, function_of(plain), states)
    return [*[None] * len(at), _bound(at, cotangent, transpose, lambda: linear)]


def _elsewhere(*arrays: Any, plain: ClosedJaxpr, **others: Any) -> jax.Array:
    """Compute `plain` on accelerators, whose loops cost more."""
    return function_of(plain)(*arrays)


def _in_batch(
    arrays: Sequence[Any], axes: Sequence[int | None], **params: Any
) -> tuple[jax.Array, int]:
    plain, states, transposed = (params[key] for key in ("plain", "states", "transposed"))
    arrays, axes = _with_vectors(arrays, axes)
    count = count_of(arrays, axes)

    def tile_of(program: ClosedJaxpr, size: int, batched: tuple[bool, ...]) -> Kernel | None:
        tile = tiled(program, size, batched)
        return None if tile is None else Kernel(tile, tile, function_of(tile), states * size)

    def loop(program: ClosedJaxpr, arrays: Sequence[Any], axes: Sequence[Any]) -> Any:
        return tiles_of(arrays, axes, lambda *given: tile_of(program, *given))

    def transpose() -> Batch | None:
        turned = transposed()
        if turned is None:
            return None
        (y,) = plain.out_avals
        given = [*arrays[:-1], jax.ShapeDtypeStruct((count, *y.shape), y.dtype)]
        along = (*axes[:-1], 0)
        if states >= ENOUGH:
            fused = partial(in_turn_of, turned, along)
        else:
            fused = loop(turned.plain, given, along)
        if fused is None:
            return None
        return Batch(fused, jax.vmap(function_of(turned.plain), along), turned.plain, (count,))

    if states >= ENOUGH:
        linear = Kernel(params["program"], plain, function_of(plain), states)
        fused = partial(in_turn_of, linear, axes)
    else:
        fused = loop(plain, arrays, axes)
    at_once = jax.vmap(function_of(plain), in_axes=tuple(axes))
    if fused is None:
        return at_once(*arrays), 0
    return _bound_batch(Batch(fused, at_once, plain, (count,)), cache(transpose), arrays), 0


def in_turn_of(kernel: Kernel, axes: Sequence[int | None], *arrays: Any) -> jax.Array:
    """Results of a batch of kernels for several states each, by sequential calls."""
    return in_turn(kernel, arrays, axes)


def _with_vectors(
    arrays: Sequence[Any], axes: Sequence[int | None]
) -> tuple[list[Any], tuple[int | None, ...]]:
    """Arrays and axes with one vector for each state, along the first axis."""
    *at, x = arrays
    *at_axes, axis = axes
    if axis is None:
        x, axis = jnp.broadcast_to(x, (count_of(at, at_axes), *x.shape)), 0
    elif axis != 0:
        x, axis = jnp.moveaxis(x, axis, 0), 0
    return [*at, x], (*at_axes, axis)


ad.primitive_jvps[_linear] = _forward
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _in_batch
mlir.register_lowering(_linear, mlir.lower_fun(_elsewhere, multiple_results=False))
mlir.register_lowering(_linear, mlir.lower_fun(_plainly, multiple_results=False), platform="cpu")


# A batch of linear functions, linear in the last of its arrays, and its transpose.
_linear_batch = Primitive("batch_of_linear_kernels")


def _bound_batch(
    batch: Batch, transpose: Callable[[], Batch | None], arrays: Sequence[Any]
) -> jax.Array:
    return _linear_batch.bind(*map(jnp.asarray, arrays), **vars(batch), transposed=transpose)


@_linear_batch.def_abstract_eval
def _(*avals: Any, transposed: Any, **batch: Any) -> Any:
    return Batch(**batch).result()


@_linear_batch.def_impl
def _batch_fused(*arrays: Any, fused: Callable[..., jax.Array], **others: Any) -> jax.Array:
    return fused(*arrays)


def _batch_forward(
    primals: Sequence[Any], tangents: Sequence[Any], **params: Any
) -> tuple[jax.Array, jax.Array]:
    *at, x = primals
    *at_dot, x_dot = tangents
    if all(isinstance(dot, ad.Zero) for dot in at_dot):
        return _linear_batch.bind(*at, x, **params), _linear_batch.bind(*at, x_dot, **params)
    along = tuple(map(ad.instantiate_zeros, tangents))
    return jax.jvp(params["plain"], tuple(primals), along)


def _batch_transpose(
    cotangent: Any, *arrays: Any, transposed: Callable[[], Batch | None], **batch: Any
) -> list[Any]:
    *at, x = arrays
    if isinstance(cotangent, ad.Zero):
        return [None] * len(arrays)
    transpose, linear = transposed(), Batch(**batch)
    if transpose is None:
        turned = jax.linear_transpose(lambda x: linear.plain(*at, x), blank(x.aval))
        return [*[None] * len(at), *turned(cotangent)]
    return [*[None] * len(at), _bound_batch(transpose, lambda: linear, [*at, cotangent])]


def _batch_in_batch(
    arrays: Sequence[Any],
    axes: Sequence[int | None],
    transposed: Callable[[], Batch | None],
    **batch: Any,
) -> tuple[jax.Array, int]:
    arrays, axes = _with_vectors(arrays, axes)

    def behind() -> Batch | None:
        transpose = transposed()  # The cotangents have the same states as the vectors.
        return None if transpose is None else transpose.batched(arrays, axes)

    return _bound_batch(Batch(**batch).batched(arrays, axes), cache(behind), arrays), 0


ad.primitive_jvps[_linear_batch] = _batch_forward
ad.primitive_transposes[_linear_batch] = _batch_transpose
batching.primitive_batchers[_linear_batch] = _batch_in_batch
mlir.register_lowering(_linear_batch, mlir.lower_fun(all_at_once, multiple_results=False))
mlir.register_lowering(
    _linear_batch, mlir.lower_fun(_batch_fused, multiple_results=False), platform="cpu"
)

__all__ = [
    "LinearKernel",
    "SmoothKernel",
    "derivative_kernel",
    "jvp_with_zeros",
    "linear_kernel_of",
    "moved",
    "smooth_kernel",
    "smooth_kernel_of",
]
