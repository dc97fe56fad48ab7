"""Clear what this process remembers, so that a test can act as a new process."""

import jax

from jaxmbd.native import call, canonical, records, registered
from jaxmbd.programs import storage
from jaxmbd.system import kernels


def forget() -> None:
    """Forget the programs of this process, as a new process does."""
    for known in (canonical._first, storage._known, kernels._known):
        known.clear()
    for made in (call._derivative, call._turned, call.linearized):
        made.cache_clear()
    for found in (records.reason_for_none, registered.code_of):
        found.cache_clear()
    jax.clear_caches()
