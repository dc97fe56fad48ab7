"""Error against the time of a run, a panel for each mechanism."""

from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.peers.protocol import Entry

MARKERS = "osD^vPX*"


def draw(entries: Iterable[Entry], path: Path) -> None:
    """An SVG of the rows that name an error, where there are any; bars are quartiles."""
    panels: dict[str, dict[str, list[Entry]]] = {}
    for entry in entries:
        if "error" in entry.case:
            panel = panels.setdefault(entry.case["mechanism"], {})
            panel.setdefault(entry.name, []).append(entry)
    if not panels:
        return
    mpl.rcParams.update({"svg.hashsalt": "peers", "font.size": 9})
    methods = list(dict.fromkeys(method(name) for curves in panels.values() for name in curves))
    figure = Figure(figsize=(4.2 * len(panels), 6.0), layout="constrained")
    every = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, curves) in zip(every, panels.items(), strict=True):
        for name, points in curves.items():
            k = methods.index(method(name))
            line(axes, name, points, f"C{k}", MARKERS[k % len(MARKERS)])
        axes.set(xscale="log", yscale="log", xlabel="run [ms]", title=title)
        axes.grid(True, which="major", lw=0.2)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    every[0].set_ylabel("error")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def method(name: str) -> str:
    """Key of a row's colour: its name without stabilization and coordinates."""
    return name if name.startswith("MuJoCo") else name.partition(",")[0]


def line(axes: Axes, name: str, points: list[Entry], colour: str, marker: str) -> None:
    """One curve, dashed where it is a peer's."""
    points = sorted(points, key=lambda entry: entry.case["steps"])
    medians = [1e3 * entry.median for entry in points]
    bars = [
        [1e3 * (entry.median - entry.low) for entry in points],
        [1e3 * (entry.high - entry.median) for entry in points],
    ]
    errors = [entry.case["error"] for entry in points]
    dashes = "--" if name.startswith("MuJoCo") else "-"
    axes.errorbar(
        *(medians, errors),
        xerr=bars,
        fmt=dashes,
        color=colour,
        marker=marker,
        ms=3,
        lw=1.0,
        label=name,
    )
