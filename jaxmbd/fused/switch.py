"""Switch of fused programs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from ..errors import ModelError

VARIABLE = "JAXMBD_FUSED"

# JAX traces again if the value changes, so that no program of the other choice is reused.
_chosen = jax.make_user_context(default_value=None)


@contextmanager
def enabled(on: bool) -> Iterator[None]:
    """Switch fused programs on or off inside a `with` block.

    Fused programs are an optimization for the CPU: results with and without them agree to
    rounding. Functions under `jax.jit` are traced and compiled separately for each choice. The
    environment variable `JAXMBD_FUSED`, 0 or 1, sets the choice outside all blocks. Default: 1.

    **Arguments:**

    - `on`: whether to use fused programs.
    """
    with _chosen(on):
        yield


def fuses() -> bool:
    """True if fused programs are switched on, and `jax.jit` too.

    **Raises** `ModelError` if the environment variable is neither 0 nor 1.
    """
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return False
    if _chosen.value is not None:
        return _chosen.value
    given = os.environ.get(VARIABLE, "1")
    if given not in ("0", "1"):
        raise ModelError(f"{VARIABLE} is {given!r}: set it to 0 (off) or 1 (on)")
    return given == "1"


__all__ = ["enabled", "fuses"]
