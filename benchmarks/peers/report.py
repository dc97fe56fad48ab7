"""Results as Markdown and as JSON."""

import math
import platform
import resource
import time
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import jax

from benchmarks.peers.protocol import Entry, Result, Target
from benchmarks.peers.steps import THREADS

PACKAGES = (
    *("jax", "jaxlib", "numpy", "equinox", "diffrax"),
    *("mujoco", "mujoco-mjx", "pin", "exudyn", "example-robot-data-loaders"),
)


def circumstances(flags: str) -> dict[str, Any]:
    """Date, machine and versions."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {processor()}",
        "cores": THREADS,
        "backend": jax.default_backend(),
        "python": platform.python_version(),
        "XLA_FLAGS": flags,
        "versions": {name: version(name) for name in PACKAGES},
    }


def processor() -> str:
    """The processor's name, where Linux tells it."""
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "processor unknown"


def peak_memory() -> int:
    """Most bytes that the process has held so far."""
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def as_json(head: dict[str, Any], name: str, result: Result) -> dict[str, Any]:
    """Every number of a section, seconds and bytes."""
    return head | {
        "peak memory of the process [B]": peak_memory(),
        "section": name,
        "title": result.title,
        "about": result.about,
        "unit": result.unit,
        "rows": [asdict(entry) for entry in result.entries],
        "targets": [target._asdict() | {"met": target.met} for target in result.targets],
        "exponents": {k: p if math.isfinite(p) else None for k, p in result.fits.items()},
    }


def heading(head: dict[str, Any]) -> str:
    """Machine and date of the measurements of a section."""
    versions = ", ".join(f"{name} {number}" for name, number in head["versions"].items())
    return (
        f"{head['date']}, {head['machine']}, {head['cores']} cores, {head['backend']}, Python "
        f"{head['python']}, {versions}. XLA_FLAGS: {head['XLA_FLAGS'] or 'none'}.\n"
    )


def as_markdown(result: Result) -> str:
    """A section: rows, exponents, and numbers beside their targets."""
    keys = list(dict.fromkeys(key for entry in result.entries for key in entry.case))
    timed = [f"{result.unit} [µs]", "quartiles"] if result.unit else []
    head = [*keys, "by", "dtype", *timed, "compile [s]", "memory [kB]"]
    rows = [row(entry, keys, bool(timed)) for entry in result.entries]
    lines = [f"## {result.title}", "", result.about, "", *table(head, rows)]
    known = {name: p for name, p in result.fits.items() if math.isfinite(p)}
    if known:
        fits = ", ".join(f"{name} {p:.2f}" for name, p in known.items())
        lines += ["", f"Exponents of cost: {fits}."]
    if result.targets:
        wanted = ["found", "wanted", "met"]
        lines += ["", *table(["", *wanted], [target_row(target) for target in result.targets])]
    return "\n".join([*lines, ""])


def table(head: list[str], rows: list[str]) -> list[str]:
    """Lines of a table."""
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows]


def row(entry: Entry, keys: list[str], timed: bool) -> str:
    """A line of a section's table, without times of runs where nothing but compiling was timed."""
    cells = [str(entry.case.get(key, "")) for key in keys]
    low, median, high = (f"{1e6 * t:.3g}" for t in (entry.low, entry.median, entry.high))
    compiling = "" if entry.compiling is None else f"{entry.compiling:.1f}"
    memory = "" if entry.memory is None else f"{entry.memory / 1e3:.0f}"
    dtype = entry.settings.get("dtype", "")
    cells += [
        entry.name,
        dtype,
        *([median, f"{low} to {high}"] if timed else []),
        compiling,
        memory,
    ]
    return f"| {' | '.join(cells)} |"


def target_row(target: Target) -> str:
    """A line of the table of targets."""
    wanted = f"{target.relation} {target.wanted:g}"
    return f"| {target.what} | {target.found:.3g} | {wanted} | {'yes' if target.met else 'no'} |"
