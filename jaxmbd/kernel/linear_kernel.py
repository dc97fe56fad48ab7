"""Linear functions as kernels, whose transposes are kernels too.

Derivatives are linear. Differentiated by itself, a kernel would fall apart into the operations of
its derivative, each of which keeps something for the way back; these keep the arguments alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from .one_kernel import Kernel, in_tiles, kernel_of, tiled


@dataclass(frozen=True, eq=False)
class LinearKernel:
    """A function of some arguments and of a vector, linear in this, and what transposes it."""

    there: Kernel
    back: Kernel

    def __call__(self, at: Any, x: Float[Array, "n"]) -> Float[Array, "m"]:
        return _bound(jax.tree.leaves(eqx.filter(at, eqx.is_array)), x, self.there, self.back)


def linear_kernel_of(
    there: Callable[[Any, Float[Array, "n"]], Float[Array, "m"]],
    back: Callable[[Any, Float[Array, "m"]], Float[Array, "n"]],
    at: Any,
    x: Float[Array, "n"],
) -> LinearKernel | None:
    """`there`, and its transpose `back`, as kernels for arguments like these; None as `kernel_of`.

    Each is given the arguments that it is not linear in, and a vector.
    """
    ahead = kernel_of(there, there, at, x)
    if ahead is None:
        return None
    (y,) = ahead.plain.out_avals
    behind = kernel_of(back, back, at, jnp.zeros(y.shape, y.dtype))
    return None if behind is None else LinearKernel(ahead, behind)


def smooth_kernel(fn: Callable[..., jax.Array], *args: Any) -> jax.Array:
    """fn(*args) as a kernel whose derivatives are kernels too; plainly where there is none."""
    kernel = kernel_of(fn, fn, *args)
    return fn(*args) if kernel is None else _smooth(*args, fn=fn, kernel=kernel)


@eqx.filter_custom_jvp
def _smooth(*args: Any, fn: Callable[..., jax.Array], kernel: Kernel) -> jax.Array:
    return kernel(*args)


@_smooth.def_jvp
def _(args, tangents, *, fn, kernel):
    dots, unravel = ravel_pytree(tangents)
    moving = moved(tangents)

    def there(args: Any, dots: Float[Array, "n"]) -> Float[Array, "m"]:
        return eqx.filter_jvp(fn, args, unravel(dots))[1]

    def back(args: Any, y: Float[Array, "m"]) -> Float[Array, "n"]:
        varied, rest = eqx.partition(args, moving)
        pull = jax.vjp(lambda varied: fn(*eqx.combine(varied, rest)), varied)[1]
        return ravel_pytree(pull(y))[0]

    linear = linear_kernel_of(there, back, args, dots)
    if linear is None:
        return eqx.filter_jvp(fn, args, tangents)
    return _smooth(*args, fn=fn, kernel=kernel), linear(args, dots)


def moved(tangents: Any) -> Any:
    """Which arguments have a tangent: a tree of truth values."""
    return jax.tree.map(lambda dot: dot is not None, tangents, is_leaf=lambda x: x is None)


_linear = Primitive("linear_kernel")


def _bound(at: Sequence[jax.Array], x: jax.Array, there: Kernel, back: Kernel) -> jax.Array:
    return _linear.bind(
        *at,
        x,
        program=there.program,
        plain=there.plain,
        transposed=back.program,
        transposed_plain=back.plain,
    )


def _kernels(
    program: ClosedJaxpr,
    plain: ClosedJaxpr,
    transposed: ClosedJaxpr,
    transposed_plain: ClosedJaxpr,
) -> tuple[Kernel, Kernel]:
    there = Kernel(program, plain, plain)
    return there, Kernel(transposed, transposed_plain, transposed_plain)


@_linear.def_abstract_eval
def _(*avals: Any, program: ClosedJaxpr, **others: ClosedJaxpr) -> Any:
    return program.out_avals[0]


@_linear.def_impl
def _plainly(*arrays: jax.Array, **programs: ClosedJaxpr) -> jax.Array:
    return _kernels(**programs)[0](*arrays)


def _forward(
    primals: Sequence[jax.Array], tangents: Sequence[Any], **programs: ClosedJaxpr
) -> tuple[jax.Array, jax.Array]:
    """Of a second derivative what is linear is a kernel again; the rest is differentiated."""
    *at, _ = primals
    *at_dot, x_dot = tangents
    if all(isinstance(dot, ad.Zero) for dot in at_dot):
        return _linear.bind(*primals, **programs), _linear.bind(*at, x_dot, **programs)
    along = tuple(map(ad.instantiate_zeros, tangents))
    plain = programs["plain"]
    return jax.jvp(lambda *arrays: jaxpr_as_fun(plain)(*arrays)[0], tuple(primals), along)


def _transpose(cotangent: Any, *arrays: Any, **programs: ClosedJaxpr) -> list[Any]:
    *at, _ = arrays
    if isinstance(cotangent, ad.Zero):
        return [None] * len(arrays)
    there, back = _kernels(**programs)
    return [*[None] * len(at), _bound(at, cotangent, back, there)]


def _in_batch(
    arrays: Sequence[jax.Array], axes: Sequence[int | None], **programs: ClosedJaxpr
) -> tuple[jax.Array, int]:
    there, back = _kernels(**programs)
    *at, x = arrays
    *at_axes, x_axis = axes
    if x_axis is None:  # What is linear in one vector of all states is so in one of each.
        count = next(x.shape[k] for x, k in zip(at, at_axes, strict=True) if k is not None)
        x, x_axis = jnp.broadcast_to(x, (count, *x.shape)), 0

    def tile_of(size: int, batched: tuple[bool, ...]) -> Callable[..., jax.Array] | None:
        ahead, behind = (tiled(kernel.plain, size, batched) for kernel in (there, back))
        if ahead is None or behind is None:
            return None
        ways = Kernel(ahead, ahead, ahead), Kernel(behind, behind, behind)
        return lambda *arrays: _bound(arrays[:-1], arrays[-1], *ways)

    axes = *at_axes, x_axis
    found = in_tiles([*at, x], axes, tile_of)
    if found is None:
        each = jax.vmap(lambda *arrays: jaxpr_as_fun(there.plain)(*arrays)[0], in_axes=axes)
        found = each(*at, x)
    return found, 0


ad.primitive_jvps[_linear] = _forward
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _in_batch
mlir.register_lowering(_linear, mlir.lower_fun(_plainly, multiple_results=False))

__all__ = ["LinearKernel", "linear_kernel_of", "moved", "smooth_kernel"]
