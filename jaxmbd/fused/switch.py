"""Whether fused programs are made."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from ..errors import ModelError

VARIABLE = "JAXMBD_FUSED"

# JAX traces anew where it changes, so that no program is reused that was made the other way.
_chosen = jax.make_user_context(default_value=None)


@contextmanager
def enabled(on: bool) -> Iterator[None]:
    """Make fused programs inside a `with` block, or none.

    Fused programs are an optimization for the CPU: results with and without them agree to
    rounding. Functions under `jax.jit` are traced and compiled for each choice by itself. The
    choice outside of all blocks is that of the environment variable `JAXMBD_FUSED`, 0 or 1.
    Default: 1.

    **Arguments:**

    - `on`: whether fused programs are made.
    """
    with _chosen(on):
        yield


def fuses() -> bool:
    """Whether fused programs are made here.

    **Raises** `ModelError` if the environment variable is neither 0 nor 1.
    """
    if _chosen.value is not None:
        return _chosen.value
    given = os.environ.get(VARIABLE, "1")
    if given not in ("0", "1"):
        raise ModelError(f"{VARIABLE} is {given!r}: set it to 0 (off) or 1 (on)")
    return given == "1"


__all__ = ["enabled", "fuses"]
