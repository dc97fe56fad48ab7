"""Switch of generated code."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import jax

from .machine_code import is_installed

VARIABLE = "SCALARJIT"

# JAX traces again if the value changes, so that no program of the other choice is reused.
_chosen = jax.make_user_context(default_value=None)


@contextmanager
def enabled(on: bool) -> Iterator[None]:
    """Switch generated machine code on or off inside a `with` block.

    Generated code is an optimization for the CPU: results with and without it agree to rounding.
    Functions under `jax.jit` are traced and compiled separately for each choice. The environment
    variable `SCALARJIT`, 0 or 1, sets the choice outside all blocks. Default: 1.

    It needs the package `llvmlite`. Without it programs run as if switched off.

    **Arguments:**

    - `on`: whether to use generated code.

    **Warns** by `RuntimeWarning`, once, if `llvmlite` is not installed.
    """
    if on and not is_installed():
        _warn()
    with _chosen(on):
        yield


@contextmanager
def as_part() -> Iterator[None]:
    """Trace functions as parts of a program from which code is generated, inside a `with` block.

    They have no code of their own, and JAX differentiates what they compute.
    """
    with _chosen(PART):
        yield


def is_part() -> bool:
    """True inside a block of `as_part`."""
    return _chosen.value == PART


def is_switched_off() -> bool:
    """True if a `with` block or the environment variable switches generated code off."""
    if _chosen.value is not None:
        return _chosen.value is False
    return os.environ.get(VARIABLE) == "0"


# Kernels for GPUs on the CPU ----------------------------------------------------------------------

_emulated = jax.make_user_context(default_value=False)


@contextmanager
def emulated_gpu() -> Iterator[None]:
    """Compute kernels for NVIDIA GPUs on the CPU inside a `with` block, state after state.

    Programs are traced and converted as for a GPU, and have the same instructions, layouts and
    launches: to check them on a machine without a card.
    """
    with _emulated(True):
        yield


def is_emulated() -> bool:
    """True inside a block of `emulated_gpu`."""
    return _emulated.value


def platform() -> str:
    """Platform for which programs are traced here: `cpu`, `cuda`, or another one of JAX."""
    if is_emulated():
        return "cuda"
    name = jax.default_backend()
    return "cuda" if name == "gpu" and _is_nvidia() else name


def _is_nvidia() -> bool:
    return "cuda" in str(jax.devices()[0].client.platform_version).lower()


# Least versions of NVIDIA's driver by versions of CUDA for which JAX has plugins. All of them load
# the kernels, which are for CUDA 11.8 and newer.
DRIVERS = {13: 580, 12: 525}


def why_no_gpu() -> str | None:
    """Why JAX computes on the CPU although its plugin for GPUs is installed, or None."""
    allowed = {"cuda", "gpu"} & set((jax.config.jax_platforms or "gpu").split(","))  # pyright: ignore
    if jax.default_backend() != "cpu" or not allowed:
        return None
    for cuda, driver in DRIVERS.items():
        if find_spec(f"jax_cuda{cuda}_plugin") is not None:
            return (
                f"JAX's plugin for CUDA {cuda} found no GPU and JAX computes on the CPU: if there "
                f"is a card, its driver must be of version {driver} or newer"
            )
    return None


OFF = "generated code is switched off"
PART = "part of a program"
NO_JIT = "jax.disable_jit is on"
NO_LLVMLITE = "the package llvmlite is not installed"


def generates() -> bool:
    """True if generated code is switched on, and possible on this machine.

    **Raises** `ValueError` if the environment variable is neither 0 nor 1.
    **Warns** by `RuntimeWarning`, once, if it is switched on and `llvmlite` is not installed.
    """
    missing = why_none()
    if missing == NO_LLVMLITE:
        _warn()
    return missing is None


def why_none() -> str | None:
    """Reason for which no code is generated here, or None.

    **Raises** `ValueError` if the environment variable is neither 0 nor 1.
    """
    given = os.environ.get(VARIABLE, "1")
    if given not in ("0", "1"):
        raise ValueError(f"{VARIABLE} is {given!r}: set it to 0 (off) or 1 (on)")
    if is_part():
        return PART
    on = given == "1" if _chosen.value is None else _chosen.value
    if not on:
        return OFF
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return NO_JIT
    if not is_installed():
        return NO_LLVMLITE
    own = platform()
    if own == "cuda":
        return None if is_emulated() else _why_no_kernels()
    return None if own == "cpu" else f"code is generated for CPUs and NVIDIA GPUs, not for {own!r}"


@cache
def _why_no_kernels() -> str | None:
    """Reason for which this machine's GPU runs no generated code, or None."""
    import llvmlite.binding as llvm

    from .cuda import LEAST, TRIPLE

    llvm.initialize_all_targets()
    try:
        llvm.Target.from_triple(TRIPLE)
    except RuntimeError:
        return "llvmlite has no compiler for GPUs"
    own = str(getattr(jax.devices()[0], "compute_capability", "0"))
    if float(own) < LEAST:
        return f"the GPU has compute capability {own}: generated code needs {LEAST}"
    return None


_warned: list[bool] = []


def _warn() -> None:
    if not _warned:
        _warned.append(True)
        warnings.warn(
            "scalarjit generates machine code with the package llvmlite, which is not installed: "
            "programs take several times as long; pip install llvmlite, or set SCALARJIT=0",
            RuntimeWarning,
            stacklevel=3,
        )
