"""Two flags of XLA's CPU backend in jaxlib 0.10: against a deadlock, and for shorter compile times.

The "concurrency optimized scheduler" of XLA's CPU backend, on by default, deadlocks in scanned,
vmapped programs such as batched simulations. Measured on two cores with a chain of 10 links, 1024
scenarios and 50 Runge-Kutta steps (hung: never ended, all threads idle):

=====================  ==========================  ===========
jaxlib                 scheduler                   hung
=====================  ==========================  ===========
0.10.2                 on (the default)            11 of 12
0.10.2                 off                         0 of 21
0.11.2 and 0.12.0.1    on (the default)            0 of 8
=====================  ==========================  ===========

The guard therefore acts on ``0.10 <= jaxlib < 0.11`` only. 0.10 is the newest series for Python
3.11 and the oldest series that jaxmbd supports. Outside this range the flag is not needed, and XLA
aborts the process on an unknown flag. The flag exists in 0.10.0, 0.10.1 and 0.10.2.

The guard does not depend on the number of cores. The deadlock was observed on two cores and not
tested on more, the flag is harmless there, and a container's quota can limit many cores to two.

The second flag chooses the older of two compilers of fused operations in jaxlib 0.10. Programs of
jaxmbd compile in 0.6 to 0.85 of the CPU time and run as fast (``docs/pages/compiling.md`` has the
figures). Later versions of jaxlib have the newer compiler only.

This is the only place where jaxmbd changes global configuration.
"""

import functools
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

FLAG_NAME = "xla_cpu_enable_concurrency_optimized_scheduler"
CURE = f"--{FLAG_NAME}=false"
# The newer flag for the same choice. XLA converts the older flag, present in all of 0.10, to it.
SUCCESSOR_NAME = "xla_cpu_scheduler_type"
COMPILER_NAME = "xla_cpu_use_fusion_emitters"
OLDER_COMPILER = f"--{COMPILER_NAME}=false"
AFFECTED_FROM, AFFECTED_BELOW = (0, 10), (0, 11)


@functools.cache
def prevent_deadlock() -> None:
    """Set the flags of jaxlib 0.10, once per process, if no backend is running yet.

    **Warns** by `RuntimeWarning` if a backend is running already.
    """
    # The import of jaxlib.version is cheap (no backend, no jax), and names the version in use.
    from jaxlib.version import __version__ as jaxlib_version

    xla_flags, warning = decide(jaxlib_version, os.environ, backends_are_initialized())
    if xla_flags is not None:
        os.environ["XLA_FLAGS"] = xla_flags
    if warning is not None:
        warnings.warn(warning, RuntimeWarning, stacklevel=2)


def decide(
    jaxlib_version: str, environ: Mapping[str, str], initialized: bool
) -> tuple[str | None, str | None]:
    """Return the new value of ``XLA_FLAGS`` and the warning to issue; None for no change.

    ``initialized``: whether a backend is running. XLA reads ``XLA_FLAGS`` only when the first
    backend starts. A flag that the user sets, to either value, is left alone; so is the scheduler
    if its successor is set.
    """
    if not is_affected(jaxlib_version):
        return None, None
    given = environ.get("XLA_FLAGS", "").strip()
    from_file = given != "" and not given.startswith("-")
    text = _read(given) if from_file else given
    named = {word.lstrip("-").split("=")[0] for word in text.split()}
    missing = [] if named & {FLAG_NAME, SUCCESSOR_NAME} else [CURE]
    if not (initialized or from_file):
        missing += [] if COMPILER_NAME in named else [OLDER_COMPILER]
        return " ".join([given, *missing]).strip() if missing else None, None
    if not missing:
        return None, None
    if initialized:
        return None, _warning(
            jaxlib_version,
            f"A JAX backend is already running, so jaxmbd can no longer prevent it. Import jaxmbd "
            f"before JAX computes anything, or start Python with XLA_FLAGS={CURE} set.",
        )
    # XLA reads either flags or the name of a file with flags, never both.
    return None, _warning(
        jaxlib_version,
        f"XLA_FLAGS names the file {given!r}, which jaxmbd leaves alone. Add {CURE} to it.",
    )


def is_affected(jaxlib_version: str) -> bool:
    """True if this version of jaxlib is in the range that deadlocks."""
    major, minor = jaxlib_version.split(".")[:2]
    return AFFECTED_FROM <= (int(major), int(minor)) < AFFECTED_BELOW


def backends_are_initialized() -> bool:
    """True if a JAX backend is running; starts no backend.

    JAX has no public function for this: ``jax.devices()`` and all of ``jax.extend.backend`` start
    the backends that they report. ``jax.distributed.initialize`` calls the function used here
    (present in JAX 0.10 to 0.12). JAX is looked up, not imported: if it is not imported, no backend
    is running.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""  # XLA itself aborts the process, with the name of the file in its message.


def _warning(jaxlib_version: str, why_and_cure: str) -> str:
    return (
        f"jaxlib {jaxlib_version} can hang forever in batched simulations on the CPU "
        f"(a fault of its scheduler, fixed in jaxlib 0.11). {why_and_cure}"
    )
