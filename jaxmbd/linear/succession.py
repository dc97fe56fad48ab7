"""Order of calls of LAPACK in one program, which jaxlib 0.10 must not run at the same time.

On the CPU, jaxlib 0.10 divides a batch of LAPACK calls into tasks for a pool of threads, and the
calling thread waits for them. XLA runs operations that do not depend on each other in threads of
the same pool. If all threads wait, no thread is left for the tasks, and the program never ends.
Calls that depend on each other cannot meet. Later versions of jaxlib do not wait.
"""

import jax
import jax.numpy as jnp
from jaxlib.version import __version__ as jaxlib_version
from jaxtyping import Array

from .._runtime_guard import is_affected

_WAITS = is_affected(jaxlib_version)

# Generated code, which computes in one order, finds `after` by the name of this function.
NAME = "after_in_order"


def after(x: Array, other: Array) -> Array:
    """Return `x`; on jaxlib 0.10 the result depends on `other`, and not on its values.

    Derivatives with respect to `other` are zero.
    """
    if not _WAITS or x.size == 0 or other.size == 0:
        return x
    return _after(x, other)


def _in_order(x: Array, other: Array) -> Array:
    entry = jax.lax.slice(other, (0,) * other.ndim, (1,) * other.ndim).reshape(())
    return x + _zero(entry).astype(x.dtype)


_in_order.__name__ = NAME
# A call by this name, also in derivatives, where a call that is differentiated is another one.
_after = jax.custom_jvp(jax.jit(_in_order))
_after.defjvp(lambda x, dx: (_after(*x), dx[0]))


def _zero(entry: Array) -> Array:
    """0, by an operation that XLA does not simplify: no number has 128 bits that are set."""
    if entry.dtype == jnp.bool_:
        bits = entry.astype(jnp.uint8)
    else:
        width = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[entry.dtype.itemsize]
        bits = jax.lax.bitcast_convert_type(entry, width)
    return jax.lax.population_count(bits) >> 7


__all__ = ["after"]
