"""Versions and settings that affect results and compile times, for reports of errors."""

import os
import platform
import re
from collections import Counter
from importlib import metadata

import jax

import scalarjit

# Packages of the core, and of the extras by name.
CORE = (
    "jaxmbd",
    "jax",
    "jaxlib",
    "diffrax",
    "equinox",
    "lineax",
    "optimistix",
    "numpy",
    "scipy",
    "llvmlite",
)
EXTRAS = ("k3d", "ipywidgets", "matplotlib", "xarray", "h5netcdf", "control")
SETTINGS = ("jax_enable_x64", "jax_numpy_dtype_promotion", "jax_disable_jit", "jax_debug_nans")
SWITCHES = ("SCALARJIT", "JAX_PLATFORMS")
WORD = re.compile(r"[A-Za-z0-9_.,+-]*")


def report_environment() -> str:
    """Versions of Python, jaxmbd and its packages, devices, and settings, as lines of text.

    For reports of errors. It has no names of hosts or users and no paths; values of flags that may
    be paths are left out. It starts JAX's backend.
    """
    lines = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"]
    lines += [f"{name} {_version(name)}" for name in CORE]
    lines += [f"{name} {_version(name)} (extra)" for name in EXTRAS]
    kinds = Counter(f"{x.platform}: {x.device_kind}" for x in jax.devices())
    lines += [f"{count} device(s), {kind}" for kind, count in sorted(kinds.items())]
    lines += [f"compute capability {x}" for x in sorted(_capabilities())]
    lines.append(f"{os.cpu_count()} CPU core(s)")
    lines.append(_generated())
    lines += filter(None, [scalarjit.why_no_gpu()])
    lines += [f"{name} = {getattr(jax.config, name)}" for name in SETTINGS]
    lines += [f"{name} = {_shown(os.environ[name])}" for name in SWITCHES if name in os.environ]
    lines += [f"XLA flag {flag}" for flag in _xla_flags(os.environ.get("XLA_FLAGS", ""))]
    return "\n".join(lines)


def _generated() -> str:
    try:
        reason = scalarjit.why_none()
    except ValueError as error:  # Of a value of the variable that is neither 0 nor 1.
        reason = str(error)
    return (
        f"no generated code: {reason}" if reason else f"generated code for {scalarjit.platform()}"
    )


def _capabilities() -> set[str]:
    """Compute capabilities of GPUs."""
    found = (getattr(x, "compute_capability", None) for x in jax.devices())
    return {str(x) for x in found if x}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _shown(value: str) -> str:
    """A value of letters, digits and a few signs; others may be paths."""
    return value if WORD.fullmatch(value) else "(left out)"


def _xla_flags(text: str) -> list[str]:
    """Flags with their values; the name of a file of flags is left out."""
    if text and not text.lstrip().startswith("-"):
        return ["file (left out)"]
    flags = []
    for word in text.split():
        name, equals, value = word.partition("=")
        if name.startswith("--") and WORD.fullmatch(name):
            flags.append(name + equals + _shown(value))
    return flags
