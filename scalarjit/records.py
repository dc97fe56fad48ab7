"""What earlier processes have found for programs, so that scalars are not made again.

A record in the cache holds the name of a program's code, or the reason for which there is none. Its
own name is a digest of the program, of the processor, and of the source that generates code.
"""

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from jax.extend.core import ClosedJaxpr

from . import cache
from .digest import digest_of, settings
from .direct import routine_of
from .machine_code import Target, target
from .scalars import reason_of

CODE = re.compile("[0-9a-f]{40}")  # A name of `cache.name_of`.


class Record(NamedTuple):
    """Name of the code of a program, or the reason for which there is none.

    - `shared`, `varying`: numbers of operations, as in `registered.Code`.
    """

    code: str | None
    reason: str | None = None
    shared: int = 0
    varying: int = 0


def recorded(
    program: ClosedJaxpr,
    batched: Sequence[bool],
    is_linear: bool,
    target: Target,
    most: float = math.inf,
) -> Record | None:
    """The record of a program for a processor, or None; `most` as of `reason_for_none`."""
    name = _name_of(program, batched, is_linear, target, most)
    contents = None if name is None else cache.held(name)
    return None if contents is None else _parsed(contents)


def _parsed(contents: bytes) -> Record | None:
    """The record of a file, or None if the file holds something else."""
    try:
        found = json.loads(contents)
    except (ValueError, RecursionError):
        return None
    if not (isinstance(found, list) and len(found) == len(Record._fields)):
        return None
    code, reason, *counts = found
    if code is None:
        is_valid = isinstance(reason, str)
    else:
        is_valid = isinstance(code, str) and bool(CODE.fullmatch(code)) and reason is None
    is_valid = is_valid and all(type(x) is int and x >= 0 for x in counts)
    return Record(*found) if is_valid else None


def record(
    program: ClosedJaxpr,
    batched: Sequence[bool],
    is_linear: bool,
    target: Target,
    found: Record,
    most: float = math.inf,
) -> None:
    """Write the record of a program, if there is a cache; `most` as of `reason_for_none`."""
    name = _name_of(program, batched, is_linear, target, most)
    if name is not None:
        cache.keep(name, json.dumps(found).encode())


@lru_cache(maxsize=256)
def reason_for_none(program: ClosedJaxpr, most: float = math.inf) -> str | None:
    """Reason for which there is no code for one state, or none of up to `most` operations; or None.

    Records with a finite `most` are of programs that have code as well: their reason is empty.
    """
    which = program, (False,) * len(program.in_avals), False, target()
    known = recorded(*which, most=most)
    if known is not None:
        return known.reason or None
    reason = None if routine_of(program) else reason_of(program, most)
    if reason is not None or most < math.inf:
        record(*which, Record(None, reason or ""), most)
    return reason


def _name_of(
    program: ClosedJaxpr,
    batched: Sequence[bool],
    is_linear: bool,
    target: Target,
    most: float,
) -> str | None:
    """Name of the record, or None without a cache or without a digest of the program."""
    if cache.folder() is None:
        return None
    digest = digest_of(program)
    if digest is None:
        return None
    which = f"{settings()} {digest} {[bool(x) for x in batched]} {bool(is_linear)}"
    which += f" {most:.0f}" if most < math.inf else ""
    return f"{cache.name_of(which, target)}.json"
