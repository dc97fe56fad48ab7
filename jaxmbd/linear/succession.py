"""Order of calls of LAPACK in one program, which jaxlib 0.10 must not run at the same time.

On the CPU, jaxlib 0.10 divides a batch of LAPACK calls into tasks for a pool of threads, and the
calling thread waits for them. XLA runs operations that do not depend on each other in threads of
the same pool. If all threads wait, no thread is left for the tasks, and the program never ends.
Calls that depend on each other cannot meet. Later versions of jaxlib do not wait.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxlib.version import __version__ as jaxlib_version
from jaxtyping import Array

from .._runtime_guard import is_affected

_WAITS = is_affected(jaxlib_version)

# Generated code, which computes in one order, takes the first argument.
_after = Primitive("after")


def after(x: Array, other: Array) -> Array:
    """Return `x`; on jaxlib 0.10 the result depends on `other`, and not on its values.

    Derivatives with respect to `other` are zero.
    """
    if not _WAITS or x.size == 0 or other.size == 0:
        return x
    return _after.bind(x, other)


@_after.def_abstract_eval
def _(x: Any, other: Any) -> Any:
    return x


@_after.def_impl
def _in_order(x: Array, other: Array) -> Array:
    entry = jax.lax.slice(other, (0,) * other.ndim, (1,) * other.ndim).reshape(())
    return x + _zero(entry).astype(x.dtype)


def _zero(entry: Array) -> Array:
    """0, by an operation that XLA does not simplify: no number has 128 bits that are set."""
    if entry.dtype == jnp.bool_:
        bits = entry.astype(jnp.uint8)
    else:
        width = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[entry.dtype.itemsize]
        bits = jax.lax.bitcast_convert_type(entry, width)
    return jax.lax.population_count(bits) >> 7


def _forward(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Array, Any]:
    return _after.bind(*primals), tangents[0]


def _in_batch(arrays: Sequence[Any], axes: Sequence[int | None]) -> tuple[Array, int | None]:
    return _after.bind(*arrays), axes[0]


mlir.register_lowering(_after, mlir.lower_fun(_in_order, multiple_results=False))
ad.primitive_jvps[_after] = _forward
batching.primitive_batchers[_after] = _in_batch

__all__ = ["after"]
