"""What earlier processes have found for programs, so that scalars are not made again.

A record in the cache holds the name of a program's code, or the reason for which there is none. Its
own name is a digest of the program, of the processor, and of the source that generates code.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from jax.extend.core import ClosedJaxpr

from . import cache
from .digest import digest_of, generator, settings
from .machine_code import Target, target
from .scalars import reason_of


class Record(NamedTuple):
    """Name of the code of a program, or the reason for which there is none.

    - `shared`, `varying`: numbers of operations, as in `registered.Code`.
    """

    code: str | None
    reason: str | None = None
    shared: int = 0
    varying: int = 0


def recorded(
    program: ClosedJaxpr, batched: Sequence[bool], is_linear: bool, target: Target
) -> Record | None:
    """The record of a program for a processor, or None."""
    name = _name_of(program, batched, is_linear, target)
    contents = None if name is None else cache.held(name)
    return None if contents is None else Record(*json.loads(contents))


def record(
    program: ClosedJaxpr, batched: Sequence[bool], is_linear: bool, target: Target, found: Record
) -> None:
    """Write the record of a program, if there is a cache."""
    name = _name_of(program, batched, is_linear, target)
    if name is not None:
        cache.keep(name, json.dumps(found).encode())


@lru_cache(maxsize=256)
def reason_for_none(program: ClosedJaxpr) -> str | None:
    """Reason for which there is no code for one state, or None."""
    which = program, (False,) * len(program.in_avals), False, target()
    known = recorded(*which)
    if known is not None:
        return known.reason
    reason = reason_of(program)
    if reason is not None:
        record(*which, Record(None, reason))
    return reason


def _name_of(
    program: ClosedJaxpr, batched: Sequence[bool], is_linear: bool, target: Target
) -> str | None:
    """Name of the record, or None without a cache or without a digest of the program."""
    if cache.folder() is None:
        return None
    digest = digest_of(program)
    if digest is None:
        return None
    try:
        source = generator()
    except OSError:  # Such as that of a package in an archive.
        return None
    which = f"{source} {settings()} {digest} {[bool(x) for x in batched]} {bool(is_linear)}"
    return f"{cache.name_of(which, target)}.json"


__all__ = ["Record", "reason_for_none", "record", "recorded"]
