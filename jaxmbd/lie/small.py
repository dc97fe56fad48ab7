"""Products of small vectors and matrices: of the library, or written out as sums of products.

What is written out fuses with its surroundings, and XLA can make one kernel of a whole program; for
batches the library's products take half the time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax.numpy as jnp
from jaxtyping import Array, Float

# How: "sum" of slices, or "reduce", which is faster and that XLA makes a library call of in large
# arrays.
_form: ContextVar[str | None] = ContextVar("_form", default=None)


@contextmanager
def written_out(form: str) -> Iterator[None]:
    """Writes out the products of what is traced within."""
    token = _form.set(form)
    try:
        yield
    finally:
        _form.reset(token)


def dot(a: Float[Array, "n"], b: Float[Array, "n"]) -> Float[Array, ""]:
    """aᵀ b."""
    return a @ b if _form.get() is None else _added(a * b)


def matvec(A: Float[Array, "m n"], x: Float[Array, "n"]) -> Float[Array, "m"]:
    """A x."""
    return A @ x if _form.get() is None else _added((A * x[None, :]).T)


def matmul(A: Float[Array, "m k"], B: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """A B."""
    if _form.get() is None:
        return A @ B
    return _added(A.T[:, :, None] * B[:, None, :])


def _added(x: Float[Array, "k ..."]) -> Float[Array, "..."]:
    if _form.get() == "reduce" or x.shape[0] == 0:
        return jnp.sum(x, axis=0)
    total = x[0]
    for k in range(1, x.shape[0]):
        total = total + x[k]
    return total


__all__ = ["dot", "matmul", "matvec", "written_out"]
