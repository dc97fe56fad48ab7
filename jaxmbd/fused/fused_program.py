"""Programs that XLA's CPU compiler compiles as one kernel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from jax.interpreters import ad, batching, mlir
from jaxlib.mlir import ir
from jaxtyping import Array, Float

from .barriers import with_barriers
from .batch_last import CannotBatch, batch_last
from .inline_and_unroll import inline_and_unroll
from .supported import LARGE, is_supported
from .switch import fuses
from .wide import is_wide

# Number of states in one call of a kernel in a batch (fewer than twice as many, to divide the batch
# evenly), and the number of states of a kernel from which a batch of it is a loop.
TILE, ENOUGH = 8, 4

# XLA compiles calls with these attributes as a unit.
ATTRIBUTES = {"inlineable": "false", "xla_cpu_small_call": "true"}


# Without `repr`: JAX takes that of functions it traces, which would print whole programs.
@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """A function of arrays as a separate kernel.

    - `program`: the program that XLA compiles as one kernel.
    - `plain`: the same program before rewriting, from which batched programs are built.
    - `otherwise`: an equivalent function of the same arrays, the fallback without a kernel.
    - `states`: number of states that one call computes.
    """

    program: ClosedJaxpr
    plain: ClosedJaxpr
    otherwise: Callable[..., jax.Array]
    states: int = 1

    def __call__(self, *args: Any) -> jax.Array:
        return _kernel.bind(*jax.tree.leaves(eqx.filter(args, eqx.is_array)), **vars(self))


def kernel_of(
    fn: Callable[..., jax.Array], otherwise: Callable[..., jax.Array], *args: Any
) -> Kernel | None:
    """Convert fn to a kernel for arguments of these shapes; `otherwise` is an equivalent function.

    Arguments may be arrays, or shapes and types of arrays. `otherwise` defines derivatives, and is
    the fallback in batches. Callers with better derivatives define their own rules.

    Loops call the kernel as a whole: dispatching its operations, some hundred small ones, takes
    longer than their computation. None if `fn` has an operation that XLA does not put into a kernel
    or traced values that are not among the arguments, such as those that a user's function closes
    over, on accelerators, whose loops cost more, and inside `fused.enabled(False)`.
    """
    plain = _program_of(fn, args)
    if plain is None:
        return None
    alone = inline_and_unroll(plain, LARGE)
    if not is_supported(alone.jaxpr):
        return None
    return Kernel(alone, plain, _of_leaves(otherwise, args)[0])


class DerivativeKernels:
    """Derivatives of fn(x, args) by x as kernels, each for several directions at once.

    Create one object for several calls: its creation takes longer than tracing `fn`.
    """

    def __init__(self, fn: Callable[[Any, Any], jax.Array], x: Float[Array, "n"], args: Any):
        def one(along: Float[Array, "n"], x: Float[Array, "n"], args: Any) -> Float[Array, "m"]:
            return jax.jvp(lambda x: fn(x, args), (x,), (along,))[1]

        self.program = _program_of(one, (x, x, args))

    def __call__(
        self, directions: Float[Array, "k n"], x: Float[Array, "n"], args: Any
    ) -> Float[Array, "k m"] | None:
        """Derivatives along directions; None as for `kernel_of`."""
        program = self.program
        if program is None:
            return None

        def tile_of(size: int, batched: tuple[bool, ...]) -> Kernel | None:
            tile = tiled(program, size, batched)
            return None if tile is None else Kernel(tile, tile, function_of(tile), size)

        same = jax.tree.leaves(eqx.filter((x, args), eqx.is_array))
        arrays, axes = [directions, *same], (0, *[None] * len(same))
        fused = tiles_of(arrays, axes, tile_of)
        if fused is None:
            return None
        plain = jax.vmap(function_of(program), in_axes=axes)
        return batch_of(Batch(fused, plain, program, directions.shape[:1]), arrays)


def _of_leaves(
    fn: Callable[..., jax.Array], args: Any
) -> tuple[Callable[..., jax.Array], list[Any]]:
    """fn as a function of the arrays among its arguments, and these arrays."""
    arrays, rest = eqx.partition(args, _is_array_like)
    leaves, structure = jax.tree.flatten(arrays)

    def of_leaves(*leaves: Any) -> jax.Array:
        return fn(*eqx.combine(jax.tree.unflatten(structure, leaves), rest))

    return of_leaves, leaves


def _program_of(fn: Callable[..., jax.Array], args: Any) -> ClosedJaxpr | None:
    if is_wide() or not fuses():
        return None
    of_leaves, leaves = _of_leaves(fn, args)
    if len({x.dtype for x in leaves}) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return None
    program = jax.make_jaxpr(of_leaves)(*leaves)
    return None if any(isinstance(x, Tracer) for x in program.consts) else program


def function_of(program: ClosedJaxpr) -> Callable[..., jax.Array]:
    """The function of a program with one result."""
    return lambda *arrays: jaxpr_as_fun(program)(*arrays)[0]


def of_arguments(program: ClosedJaxpr) -> Callable[..., jax.Array]:
    """Convert a program with one result to a function of the pytrees that it was traced with."""
    return lambda *args: function_of(program)(*jax.tree.leaves(eqx.filter(args, eqx.is_array)))


def traced(fn: Callable[..., jax.Array], *args: Any) -> Callable[..., jax.Array] | None:
    """fn traced once for arguments of these shapes, so that derivatives do not trace it again.

    None if it cannot be a kernel: not on the CPU, or with traced values beside its arguments.
    """
    program = _program_of(fn, args)
    return None if program is None else of_arguments(program)


def _is_array_like(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)


# With one result. A primitive, so that no transformation splits it into its operations. Its
# programs are parameters, which fingerprints of sweeps read.
_kernel = Primitive("fused_program")


@_kernel.def_abstract_eval
def _(*avals: Any, program: ClosedJaxpr, **others: Any) -> Any:
    return program.out_avals[0]


@_kernel.def_impl
def _plainly(*arrays: Any, program: ClosedJaxpr, **others: Any) -> jax.Array:
    """The kernel as one call with one argument and two results.

    XLA 0.10 aborts the process if only some arguments of a kernel in a loop are constants, and if
    an argument is unused. XLA divides a single large result among threads, and cannot call the
    kernel then; the second result, which is dropped, prevents this and uses the argument.
    """
    together, back = ravel_pytree(arrays)

    @jax.jit
    def run(together: jax.Array) -> tuple[jax.Array, jax.Array]:
        (result,) = with_barriers(program)(*back(together))
        return result, result.ravel()[0] + together[0]

    return run(together)[0]


def _together(ctx: mlir.LoweringRuleContext, *arrays: ir.Value, **params: Any) -> Any:
    (result,) = mlir.lower_fun(_plainly, multiple_results=False)(ctx, *arrays, **params)
    call = result.owner
    assert call.name == "func.call", f"a call was expected, got {call.name}"
    marks: dict[str, ir.Attribute] = {
        name: ir.StringAttr.get(value) for name, value in ATTRIBUTES.items()
    }
    call.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(marks)
    return [result]


def tiles_of(
    arrays: Sequence[Any],
    axes: Sequence[int | None],
    tile_of: Callable[[int, tuple[bool, ...]], Callable[..., jax.Array] | None],
) -> Callable[..., jax.Array] | None:
    """A function of arrays of these shapes that computes a batch, one tile of states after another.

    `tile_of` takes the number of states of a tile and a mask of the batched arguments. It returns
    a function of arguments with states along the last axis, or None. If it returns None, or if the
    number of states is unknown, the result is None.
    """
    count = count_of(arrays, axes)
    # A symbolic number of states, in a program for export, or zero.
    if not isinstance(count, int) or count == 0:
        return None
    n_tiles = max(1, count // TILE)
    size = -(-count // n_tiles)
    tile = tile_of(size, tuple(k is not None for k in axes))
    if tile is None:
        return None
    n_tiles = -(-count // size)

    def cut(x: jax.Array, axis: int | None) -> jax.Array:
        if axis is None:
            return x
        x = jnp.moveaxis(x, axis, 0)
        spare = jnp.broadcast_to(x[-1:], (n_tiles * size - count, *x.shape[1:]))
        x = jnp.concatenate([x, spare]).reshape(n_tiles, size, *x.shape[1:])
        return jnp.moveaxis(x, 1, -1)

    def fused(*arrays: Any) -> jax.Array:
        tiles = list(map(cut, map(jnp.asarray, arrays), axes))
        found = in_turn(tile, tiles, [None if k is None else 0 for k in axes])
        found = jnp.moveaxis(found, -1, 1)
        return found.reshape(n_tiles * size, *found.shape[2:])[:count]

    return fused


def count_of(arrays: Sequence[Any], axes: Sequence[int | None]) -> Any:
    """Number of states of a batch."""
    return next(jnp.shape(x)[k] for x, k in zip(arrays, axes, strict=True) if k is not None)


def in_turn(
    fn: Callable[..., jax.Array], arrays: Sequence[Any], axes: Sequence[int | None]
) -> jax.Array:
    """Results of a batch by sequential calls."""

    def one(parts: list[jax.Array]) -> jax.Array:
        rest = iter(parts)
        return fn(*(x if k is None else next(rest) for x, k in zip(arrays, axes, strict=True)))

    each = zip(arrays, axes, strict=True)
    return jax.lax.map(one, [jnp.moveaxis(x, k, 0) for x, k in each if k is not None])


@lru_cache(maxsize=64)
def tiled(plain: ClosedJaxpr, size: int, batched: tuple[bool, ...]) -> ClosedJaxpr | None:
    """The batched program of several states; None if it has no batching rule or is no kernel."""
    try:
        tile = batch_last(inline_and_unroll(plain, LARGE // size), size, batched)
    except CannotBatch:
        return None
    tile = inline_and_unroll(tile, LARGE)
    return tile if is_supported(tile.jaxpr) else None


def _in_batch(
    arrays: Sequence[Any], axes: Sequence[int | None], **params: Any
) -> tuple[jax.Array, int]:
    kernel = Kernel(**params)
    plain = jax.vmap(kernel.otherwise, in_axes=tuple(axes))

    def tile_of(size: int, batched: tuple[bool, ...]) -> Kernel | None:
        tile = tiled(kernel.plain, size, batched)
        if tile is None:
            return None
        last = tuple(-1 if has else None for has in batched)
        alike = jax.vmap(kernel.otherwise, in_axes=last, out_axes=-1)
        return Kernel(tile, tile, alike, kernel.states * size)

    count = count_of(arrays, axes)
    if kernel.states >= ENOUGH:
        fused = lambda *arrays: in_turn(kernel, arrays, axes)  # noqa: E731
    else:
        fused = tiles_of(arrays, axes, tile_of)
    if fused is None:
        return plain(*arrays), 0
    return batch_of(Batch(fused, plain, kernel.plain, (count,)), arrays), 0


def _forward(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    otherwise: Callable[..., jax.Array],
    **others: Any,
) -> tuple[jax.Array, jax.Array]:
    """Derivative of `otherwise`: second derivatives of loops bypass the rules of callers."""
    along = tuple(map(ad.instantiate_zeros, tangents))
    return jax.jvp(otherwise, tuple(primals), along)


def _lowered_elsewhere(ctx: mlir.LoweringRuleContext, *arrays: ir.Value, **params: Any) -> Any:
    """Lower `otherwise` on accelerators, whose loops cost more."""
    return mlir.lower_fun(params["otherwise"], multiple_results=False)(ctx, *arrays)


ad.primitive_jvps[_kernel] = _forward
mlir.register_lowering(_kernel, _lowered_elsewhere)
mlir.register_lowering(_kernel, _together, platform="cpu")
batching.primitive_batchers[_kernel] = _in_batch


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """A batch of kernels, with a loop over tiles on the CPU only.

    - `fused`: the loop, a function of arrays.
    - `plain`: an equivalent function of the same arrays, for all other platforms.
    - `program`: the program for one state.
    - `counts`: numbers of states, by axes of the result.
    """

    fused: Callable[..., jax.Array]
    plain: Callable[..., jax.Array]
    program: ClosedJaxpr
    counts: tuple[Any, ...]

    def result(self) -> ShapedArray:
        (one,) = self.program.out_avals
        return ShapedArray((*self.counts, *one.shape), one.dtype)

    def batched(self, arrays: Sequence[Any], axes: Sequence[int | None]) -> "Batch":
        """A batch of such batches."""
        fused, plain = (jax.vmap(way, in_axes=tuple(axes)) for way in (self.fused, self.plain))
        return Batch(fused, plain, self.program, (count_of(arrays, axes), *self.counts))


def batch_of(batch: Batch, arrays: Sequence[Any]) -> jax.Array:
    """Results of all states; JAX selects `fused` or `plain` on lowering, by platform."""
    return _batch.bind(*map(jnp.asarray, arrays), **vars(batch))


_batch = Primitive("batch_of_kernels")


@_batch.def_abstract_eval
def _(*avals: Any, **params: Any) -> Any:
    return Batch(**params).result()


@_batch.def_impl
def _tile_after_tile(*arrays: Any, fused: Callable[..., jax.Array], **others: Any) -> jax.Array:
    return fused(*arrays)


def all_at_once(*arrays: Any, plain: Callable[..., jax.Array], **others: Any) -> jax.Array:
    """Compute a batch on platforms other than the CPU."""
    return plain(*arrays)


def _batch_forward(
    primals: Sequence[Any], tangents: Sequence[Any], **params: Any
) -> tuple[jax.Array, jax.Array]:
    along = tuple(map(ad.instantiate_zeros, tangents))
    return jax.jvp(params["plain"], tuple(primals), along)


def _batch_in_batch(
    arrays: Sequence[Any], axes: Sequence[int | None], **params: Any
) -> tuple[jax.Array, int]:
    return batch_of(Batch(**params).batched(arrays, axes), arrays), 0


ad.primitive_jvps[_batch] = _batch_forward
mlir.register_lowering(_batch, mlir.lower_fun(all_at_once, multiple_results=False))
mlir.register_lowering(
    _batch, mlir.lower_fun(_tile_after_tile, multiple_results=False), platform="cpu"
)
batching.primitive_batchers[_batch] = _batch_in_batch


__all__ = [
    "ENOUGH",
    "Batch",
    "DerivativeKernels",
    "Kernel",
    "all_at_once",
    "batch_of",
    "count_of",
    "function_of",
    "in_turn",
    "kernel_of",
    "of_arguments",
    "tiled",
    "tiles_of",
    "traced",
]
