"""What a new process does not have."""

import ctypes
import gc
import sys
from functools import lru_cache

import jax

from scalarjit import canonical, scalars

CACHE = type(lru_cache(len))


def forget(*packages: str) -> None:
    """Forget the programs of this process, as a new process does; those of further packages too."""
    for known in (canonical._first, canonical._numbers, scalars._waiting):
        known.clear()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("scalarjit", *packages):
            for found in vars(module).values():
                if isinstance(found, CACHE):
                    found.cache_clear()
    jax.clear_caches()


def give_back() -> None:
    """Give memory that nothing uses back to the system, with the C library of GNU."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
