"""Cost of a step against the number of bodies, of all contenders on chains."""

from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.peers.protocol import Entry

COLOURS = ("tab:blue", "tab:cyan", "tab:red", "tab:green")


def draw(entries: Iterable[Entry], path: Path) -> None:
    """An SVG of the rows that name a number of links, where there are any; bars are quartiles."""
    curves: dict[str, list[Entry]] = {}
    for entry in entries:
        if "links" in entry.case and "batch" not in entry.case:
            curves.setdefault(entry.name, []).append(entry)
    if not curves:
        return
    mpl.rcParams.update({"svg.hashsalt": "peers", "font.size": 9})
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.subplots()
    for colour, (name, points) in zip(COLOURS, curves.items(), strict=False):
        points = sorted(points, key=lambda entry: entry.case["links"])
        medians = [1e3 * entry.median for entry in points]
        bars = [
            [1e3 * (entry.median - entry.low) for entry in points],
            [1e3 * (entry.high - entry.median) for entry in points],
        ]
        links = [entry.case["links"] for entry in points]
        axes.errorbar(links, medians, bars, color=colour, marker="o", ms=3, lw=1.0, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("links")
    axes.set_ylabel("step [ms]")
    axes.grid(True, which="both", lw=0.2)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
