"""Threads of a block and registers of a thread, measured once on a card and remembered.

Kernels that nobody has tuned have `usual` launches: blocks of one warp for small batches, so that
all multiprocessors work, and as many registers as the assembler takes. Which others are faster
depends on the kernel and on the card. Each trial takes the time of the assembler, seconds for long
kernels, so that programs are only tuned where `tune` is called.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax

from .cache import held, keep
from .switch import is_emulated, platform, why_none


class Launch(NamedTuple):
    """How a kernel is launched.

    - `block`: threads of a block.
    - `registers`: most registers of a thread; None for as many as the assembler takes.
    """

    block: int
    registers: int | None = None


# Launches that are tried. With 255 registers a multiprocessor runs 256 threads at a time, with 128
# twice as many, which have to keep more values in memory.
CANDIDATES = tuple(Launch(block, most) for most in (None, 168, 128) for block in (32, 64, 128, 256))

_trial: ContextVar[tuple[Launch, set[str]] | None] = ContextVar("trial", default=None)
_found: dict[str, Launch] = {}


def launch_of(ptx: str, count: int) -> Launch:
    """The launch of a kernel for a batch: the one on trial, the fastest so far, or the usual."""
    name, trial = _name_of(ptx, count), _trial.get()
    if trial is not None:
        trial[1].add(name)
        return trial[0]
    if name not in _found:
        contents = held(name)
        _found[name] = usual(count) if contents is None else Launch(*json.loads(contents))
    return _found[name]


def usual(count: int) -> Launch:
    """The launch of a kernel that was not tuned, for a batch of `count` states."""
    return Launch(32 if count <= 65_536 else 128)


def limited(ptx: str, most: int | None) -> str:
    """The text of a kernel with a limit on the registers of `states`."""
    if most is None:
        return ptx
    head = ptx.index("\n{", ptx.index(".entry states("))
    return f"{ptx[:head]}\n.maxnreg {most}{ptx[head:]}"


@contextmanager
def on_trial(launch: Launch) -> Iterator[set[str]]:
    """Programs that are compiled inside the block have this launch; the names of their kernels."""
    names: set[str] = set()
    token = _trial.set((launch, names))
    try:
        yield names
    finally:
        _trial.reset(token)


def tune(fn: Callable[..., Any], *args: Any, repeats: int = 5) -> dict[Launch, float]:
    """Find the fastest launch of the kernels of a program on this card, and remember it.

    Programs that are compiled later use it for these kernels and for batches of about this size
    (up to the next power of two), in other processes too if the cache is on. Results do not change.

    **Arguments:**

    - `fn`: a function of arrays, such as `jax.vmap` of a motion. It is compiled for each candidate.
    - `args`: its arguments, with as many states as in use.
    - `repeats`: timed calls of each candidate; the shortest one counts.

    **Returns** the seconds of a call by launch.

    **Raises** `RuntimeError` without a GPU for which kernels are generated, and `ValueError` for a
    function without a kernel.
    """
    if platform() != "cuda":
        reason = why_none() or "JAX runs on the CPU"
        raise RuntimeError(f"tune: no kernels for a GPU: {reason}")
    times: dict[Launch, float] = {}
    names: set[str] = set()
    for launch in CANDIDATES:
        with on_trial(launch) as used:
            run = jax.jit(lambda *args: fn(*args)).lower(*args).compile()
        if not used:
            raise ValueError(
                "tune: the function has no kernel of a batch; `native_or_reason` says why, and "
                "`jax.vmap` makes a batch"
            )
        names |= used
        jax.block_until_ready(run(*args))
        times[launch] = min(_seconds(run, args) for _ in range(repeats))
    best = min(times, key=lambda launch: times[launch])
    for name in names:
        _found[name] = best
        keep(name, json.dumps(best).encode())
    return times


def _seconds(run: Callable[..., Any], args: Any) -> float:
    began = time.perf_counter()
    jax.block_until_ready(run(*args))
    return time.perf_counter() - began


def _name_of(ptx: str, count: int) -> str:
    """Name of the file of a launch: by the kernel, the card, and the size of the batch."""
    card = "emulated" if is_emulated() else jax.devices()[0].device_kind
    digest = hashlib.sha256(f"{card}\n{ptx}".encode()).hexdigest()[:40]
    return f"{digest}.{(count - 1).bit_length()}.launch"
