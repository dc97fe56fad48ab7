"""What a new process does not have."""

import jax

from scalarjit import call, canonical, records, registered


def forget() -> None:
    """Forget the programs of this process, as a new process does."""
    canonical._first.clear()
    for made in (call._derivative, call._turned, call.linearized):
        made.cache_clear()
    for found in (records.reason_for_none, registered.code_of):
        found.cache_clear()
    jax.clear_caches()
