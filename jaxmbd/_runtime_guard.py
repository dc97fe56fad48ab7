"""Guard against a deadlock of XLA's CPU runtime in jaxlib 0.10.

The "concurrency optimized scheduler" of XLA's CPU backend, on by default, deadlocks in scanned,
vmapped programs, which is what a batched simulation is. Measured on two cores with a chain of
10 links, 1024 scenarios and 50 Runge-Kutta steps (hung means: never ended, all threads idle):

=====================  ==========================  ===========
jaxlib                 scheduler                   hung
=====================  ==========================  ===========
0.10.2                 on (the default)            11 of 12
0.10.2                 off                         0 of 21
0.11.2 and 0.12.0.1    on (the default)            0 of 8
=====================  ==========================  ===========

The guard therefore acts on ``0.10 <= jaxlib < 0.11``, and nowhere else. 0.10 is the newest series
for Python 3.11 and the oldest one that jaxmbd supports. Outside the range the cure is not needed;
besides, XLA aborts the process on a flag that it does not know, so the flag is only ever set where
it is known to exist (0.10.0, 0.10.1 and 0.10.2 all carry it).

The number of cores plays no part. The deadlock was seen on two cores and not searched for on more,
the flag is harmless there, and a container's quota can make many cores behave as two.

This is the only place where jaxmbd touches global configuration.
"""

import functools
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

FLAG_NAME = "xla_cpu_enable_concurrency_optimized_scheduler"
CURE = f"--{FLAG_NAME}=false"
# The newer flag for the same choice. XLA stores the older one, which all of 0.10 knows, as this.
SUCCESSOR_NAME = "xla_cpu_scheduler_type"
AFFECTED_FROM, AFFECTED_BELOW = (0, 10), (0, 11)


@functools.cache
def prevent_deadlock() -> None:
    """Switch the faulty scheduler off, once per process, as long as no backend is running yet.

    Warns ``RuntimeWarning`` where that is no longer possible.
    """
    # jaxlib is light (no backend, no jax) and its version is the one that will run.
    from jaxlib.version import __version__ as jaxlib_version

    xla_flags, warning = decide(jaxlib_version, os.environ, backends_are_initialized())
    if xla_flags is not None:
        os.environ["XLA_FLAGS"] = xla_flags
    if warning is not None:
        warnings.warn(warning, RuntimeWarning, stacklevel=2)


def decide(
    jaxlib_version: str, environ: Mapping[str, str], initialized: bool
) -> tuple[str | None, str | None]:
    """Return the new value of ``XLA_FLAGS`` and the warning to give; None means: leave it.

    ``initialized`` says whether a backend is running. XLA reads ``XLA_FLAGS`` when the first one
    starts and never again. A user who names the flag, with either value, or its
    successor has decided.
    """
    if not is_affected(jaxlib_version):
        return None, None
    given = environ.get("XLA_FLAGS", "").strip()
    from_file = given != "" and not given.startswith("-")
    text = _read(given) if from_file else given
    named = {word.lstrip("-").split("=")[0] for word in text.split()}
    if named & {FLAG_NAME, SUCCESSOR_NAME}:
        return None, None
    if initialized:
        return None, _warning(
            jaxlib_version,
            f"A JAX backend is already running, so jaxmbd can no longer prevent it. Import jaxmbd "
            f"before JAX computes anything, or start Python with XLA_FLAGS={CURE} set.",
        )
    if from_file:
        # XLA reads either flags or the name of a file that holds them, never both.
        return None, _warning(
            jaxlib_version,
            f"XLA_FLAGS names the file {given!r}, which jaxmbd leaves alone. Add {CURE} to it.",
        )
    return f"{given} {CURE}".lstrip(), None


def is_affected(jaxlib_version: str) -> bool:
    """Whether this jaxlib is in the range that is known to deadlock."""
    major, minor = jaxlib_version.split(".")[:2]
    return AFFECTED_FROM <= (int(major), int(minor)) < AFFECTED_BELOW


def backends_are_initialized() -> bool:
    """Whether a JAX backend is running, found out without starting one.

    JAX has no public question for this: ``jax.devices()`` and all of ``jax.extend.backend`` start
    the backends that they report. ``jax.distributed.initialize`` asks the function used here
    (present in JAX 0.10 to 0.12). JAX is looked up, not imported: if nobody has, nothing runs.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""  # XLA itself stops the process, with the name of the file in its message.


def _warning(jaxlib_version: str, why_and_cure: str) -> str:
    return (
        f"jaxlib {jaxlib_version} can hang forever in batched simulations on the CPU "
        f"(a fault of its scheduler, gone in jaxlib 0.11). {why_and_cure}"
    )
