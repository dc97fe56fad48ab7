"""Programs that XLA's CPU compiler shall make one kernel of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from jax.interpreters import ad, batching, mlir
from jaxlib.mlir import ir
from jaxtyping import Array, Float

from .allowed import LARGE, is_allowed
from .batch_last import CannotBatch, batch_last
from .written_out import written_out

# States that a kernel moves at once in a batch, less than twice as many where that comes out even;
# and how many are enough, so that of a batch of batches the outer one is a loop.
TILE, ENOUGH = 8, 4

# XLA leaves calls with these together.
ATTRIBUTES = {"inlineable": "false", "xla_cpu_small_call": "true"}


# Without a representation: JAX asks functions it traces for theirs, and it would be whole programs.
@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """A function of arrays as a kernel of its own.

    - `program`: what XLA makes one kernel of.
    - `plain`: the same as it was written, of which that of several states is made.
    - `otherwise`: a function of the same arrays that comes to the same, where there is none.
    - `states`: how many it moves.
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
    """fn as a kernel, for arguments like these; `otherwise` is what comes to the same in a batch.

    Arguments may be arrays, or shapes and types of arrays.

    Loops call the kernel as a whole. Dispatching its operations, some hundred small ones, takes
    longer than what they do. Callers that know better derivatives than those of `otherwise` have
    rules of their own. None where `fn` holds an operation that XLA does not put into a kernel, or
    traced values that are not among the arguments, such as those that a user's function closes
    over, and on accelerators, whose loops cost more.
    """
    plain = _program_of(fn, args)
    if plain is None:
        return None
    alone = written_out(plain, LARGE)
    if not is_allowed(alone.jaxpr):
        return None
    return Kernel(alone, plain, _of_leaves(otherwise, args)[0])


class DerivativeKernels:
    """Derivatives of fn(x, args) by x as kernels, each of some directions at once.

    What is called several times is made once: that takes longer than tracing `fn`.
    """

    def __init__(self, fn: Callable[[Any, Any], jax.Array], x: Float[Array, "n"], args: Any):
        def one(along: Float[Array, "n"], x: Float[Array, "n"], args: Any) -> Float[Array, "m"]:
            return jax.jvp(lambda x: fn(x, args), (x,), (along,))[1]

        self.program = _program_of(one, (x, x, args))

    def __call__(
        self, directions: Float[Array, "k n"], x: Float[Array, "n"], args: Any
    ) -> Float[Array, "k m"] | None:
        """None as `kernel_of`."""
        program = self.program
        if program is None:
            return None

        def tile_of(size: int, batched: tuple[bool, ...]) -> Kernel | None:
            tile = tiled(program, size, batched)
            return None if tile is None else Kernel(tile, tile, function_of(tile), size)

        same = jax.tree.leaves(eqx.filter((x, args), eqx.is_array))
        return in_tiles([directions, *same], [0, *[None] * len(same)], tile_of)


def _of_leaves(
    fn: Callable[..., jax.Array], args: Any
) -> tuple[Callable[..., jax.Array], list[Any]]:
    """fn as a function of the arrays among its arguments, and these."""
    arrays, rest = eqx.partition(args, _is_array_like)
    leaves, structure = jax.tree.flatten(arrays)

    def of_leaves(*leaves: Any) -> jax.Array:
        return fn(*eqx.combine(jax.tree.unflatten(structure, leaves), rest))

    return of_leaves, leaves


def _program_of(fn: Callable[..., jax.Array], args: Any) -> ClosedJaxpr | None:
    if jax.default_backend() != "cpu":
        return None
    of_leaves, leaves = _of_leaves(fn, args)
    if len({x.dtype for x in leaves}) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return None
    program = jax.make_jaxpr(of_leaves)(*leaves)
    return None if any(isinstance(x, Tracer) for x in program.consts) else program


def function_of(program: ClosedJaxpr) -> Callable[..., jax.Array]:
    """What a program of one result says."""
    return lambda *arrays: jaxpr_as_fun(program)(*arrays)[0]


def _is_array_like(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)


# Of one result. A primitive, so that no transformation looks inside and takes it apart. Its
# programs are parameters that others can read: fingerprints of sweeps do.
_kernel = Primitive("one_kernel")


@_kernel.def_abstract_eval
def _(*avals: Any, program: ClosedJaxpr, **others: Any) -> Any:
    return program.out_avals[0]


@_kernel.def_impl
def _plainly(*arrays: Any, program: ClosedJaxpr, **others: Any) -> jax.Array:
    """As one call, of one argument and two results.

    XLA 0.10 stops the process where some arguments of a kernel in a loop are constants and others
    are not, and where it has an argument that nothing reads. It divides a single large result
    among threads, and can then not call the kernel; hence another one, which is dropped and which
    reads the argument.
    """
    together, back = ravel_pytree(arrays)

    @jax.jit
    def run(together: jax.Array) -> tuple[jax.Array, jax.Array]:
        result = function_of(program)(*back(together))
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


def in_tiles(
    arrays: Sequence[Any],
    axes: Sequence[int | None],
    tile_of: Callable[[int, tuple[bool, ...]], Callable[..., jax.Array] | None],
) -> jax.Array | None:
    """Results of a batch, a tile of states after the other.

    `tile_of` is given how many states a tile has, and of which arguments there is one for each; it
    returns a function of arguments with states along the last axis, or None where there is none.
    Then, and where it is not known how many states there are, None is what is returned.
    """
    arrays = list(map(jnp.asarray, arrays))
    count = next(x.shape[k] for x, k in zip(arrays, axes, strict=True) if k is not None)
    # Of any number of states, in a program to be exported, or of none.
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

    tiles = list(map(cut, arrays, axes))
    found = in_turn(tile, tiles, [None if k is None else 0 for k in axes])
    found = jnp.moveaxis(found, -1, 1)
    return found.reshape(n_tiles * size, *found.shape[2:])[:count]


def in_turn(
    fn: Callable[..., jax.Array], arrays: Sequence[Any], axes: Sequence[int | None]
) -> jax.Array:
    """Results of a batch, one call after the other."""

    def one(parts: list[jax.Array]) -> jax.Array:
        rest = iter(parts)
        return fn(*(x if k is None else next(rest) for x, k in zip(arrays, axes, strict=True)))

    each = zip(arrays, axes, strict=True)
    return jax.lax.map(one, [jnp.moveaxis(x, k, 0) for x, k in each if k is not None])


@lru_cache(maxsize=64)
def tiled(plain: ClosedJaxpr, size: int, batched: tuple[bool, ...]) -> ClosedJaxpr | None:
    """The program of several states at once, if there is one."""
    try:
        tile = batch_last(written_out(plain, LARGE // size), size, batched)
    except CannotBatch:
        return None
    tile = written_out(tile, LARGE)
    return tile if is_allowed(tile.jaxpr) else None


def _in_batch(
    arrays: Sequence[Any], axes: Sequence[int | None], **params: Any
) -> tuple[jax.Array, int]:
    kernel = Kernel(**params)
    if kernel.states >= ENOUGH:
        return in_turn(kernel, arrays, axes), 0

    def tile_of(size: int, batched: tuple[bool, ...]) -> Kernel | None:
        tile = tiled(kernel.plain, size, batched)
        if tile is None:
            return None
        last = tuple(-1 if has else None for has in batched)
        alike = jax.vmap(kernel.otherwise, in_axes=last, out_axes=-1)
        return Kernel(tile, tile, alike, kernel.states * size)

    found = in_tiles(arrays, axes, tile_of)
    if found is None:
        found = jax.vmap(kernel.otherwise, in_axes=tuple(axes))(*arrays)
    return found, 0


def _forward(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    otherwise: Callable[..., jax.Array],
    **others: Any,
) -> tuple[jax.Array, jax.Array]:
    """Of what comes to the same: second derivatives of loops get here, past rules of callers."""
    along = tuple(map(ad.instantiate_zeros, tangents))
    return jax.jvp(otherwise, tuple(primals), along)


ad.primitive_jvps[_kernel] = _forward
mlir.register_lowering(_kernel, _together)
batching.primitive_batchers[_kernel] = _in_batch


__all__ = [
    "ENOUGH",
    "DerivativeKernels",
    "Kernel",
    "function_of",
    "in_tiles",
    "in_turn",
    "kernel_of",
    "tiled",
]
