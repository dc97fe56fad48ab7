"""Figures of linearizations: modes, frequency responses, root loci, Campbell diagrams."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..linearization.campbell import Campbell
from ..linearization.frequency_response import FrequencyResponse
from ..linearization.modes import Modes
from ..linearization.root_locus import RootLocus

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from .figure import NotebookFigure
except ImportError as error:
    raise ImportError('plot needs matplotlib: pip install "jaxmbd[viz]"') from error

WIDTH = 9.0  # [inch]
# Size of the number of a mode [inch], and the largest number of ticks along modes.
LABEL, MOST_TICKS = (0.26, 0.16), 8
# Gains below this part of the largest one are drawn at it.
FLOOR = 1e-12


def plot_modes(modes: Modes) -> Figure:
    """Plot eigenvalues and shares of joints and bodies, see `Modes.plot`."""
    n_rows = max(len(modes.participation) + len(modes.energies), 4)
    figure = NotebookFigure(figsize=(WIDTH, 1.5 + 0.3 * n_rows), layout="constrained")
    plane, *shares = figure.subplots(1, 3, width_ratios=(1.2, 1.0, 1.0))
    _plane(plane)
    eigenvalues = np.asarray(modes.eigenvalues)
    for k, value in enumerate(eigenvalues):
        plane.plot(value.real, value.imag, "x", color=_colour(k, len(modes)))
    for k in _with_labels(eigenvalues, figure.get_figheight()):
        at = eigenvalues[k].real, eigenvalues[k].imag
        plane.annotate(f" {k}", at, fontsize="small")
    for axis, rows, title in zip(
        shares,
        (modes.participation, modes.energies),
        ("participation", "kinetic energy"),
        strict=True,
    ):
        _heat(axis, rows, len(modes))
        axis.set_title(title, fontsize="medium")
        axis.set_xlabel("mode")
    return figure


def plot_frequency_response(response: FrequencyResponse) -> Figure:
    """Plot gains above phases against the frequency, see `FrequencyResponse.plot`."""
    figure = NotebookFigure(figsize=(WIDTH, 5.0), layout="constrained")
    gain, phase = figure.subplots(2, 1, sharex=True)
    frequencies = np.asarray(response.w) / (2 * np.pi)
    gains, phases = np.asarray(response.gains), np.rad2deg(np.asarray(response.phases))
    floor = FLOOR * gains.max(initial=0.0)
    n = len(response.outputs) * len(response.inputs)
    for i, output in enumerate(response.outputs):
        for j, given in enumerate(response.inputs):
            colour = _colour(i * len(response.inputs) + j, n)
            label = f"{output} by {given}"
            decibels = 20 * np.log10(np.maximum(gains[:, i, j], floor if floor > 0 else 1.0))
            gain.semilogx(frequencies, decibels, color=colour, label=label)
            phase.semilogx(frequencies, phases[:, i, j], color=colour)
    gain.set_ylabel("gain [dB]")
    phase.set_ylabel("phase [°]")
    phase.set_xlabel("frequency [Hz]")
    _finish(gain, phase)
    return figure


def plot_root_locus(locus: RootLocus) -> Figure:
    """Plot eigenvalues in the complex plane and their real parts, see `RootLocus.plot`."""
    figure = NotebookFigure(figsize=(WIDTH, 3.6), layout="constrained")
    plane, growth = figure.subplots(1, 2)
    _plane(plane)
    n = locus.eigenvalues.shape[1]
    for k in range(n):
        values, colour = locus.eigenvalues[:, k], _colour(k, n)
        plane.plot(
            np.real(values), np.imag(values), ".-", color=colour, markersize=3, linewidth=0.8
        )
        plane.plot(np.real(values[0]), np.imag(values[0]), "x", color=colour)
        growth.plot(locus.values, np.real(values), color=colour)
    growth.axhline(0.0, color="0.5", linewidth=0.8)
    growth.set_xlabel("parameter")
    growth.set_ylabel("Re λ [1/s]")
    growth.grid(alpha=0.3)
    return figure


def plot_campbell(diagram: Campbell, orders: Sequence[float]) -> Figure:
    """Plot frequencies above damping ratios against the speed, see `Campbell.plot`."""
    figure = NotebookFigure(figsize=(WIDTH, 5.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    speeds, n = diagram.speeds, diagram.eigenvalues.shape[1]
    for k in range(n):
        colour = _colour(k, n)
        upper.plot(speeds, diagram.frequencies[:, k], color=colour, label=f"mode {k}")
        lower.plot(speeds, diagram.damping_ratios[:, k], color=colour)
    top = 1.1 * diagram.frequencies.max(initial=0.0)
    for order in orders:
        line = order * np.abs(speeds) / (2 * np.pi)
        upper.plot(speeds, line, "--", color="0.4", linewidth=0.9, label=f"{order:g} × speed")
    if top > 0:
        upper.set_ylim(0.0, top)
    upper.set_ylabel("frequency [Hz]")
    lower.set_ylabel("damping ratio")
    lower.set_xlabel("speed [rad/s]")
    _finish(upper, lower)
    return figure


def _finish(upper: Axes, lower: Axes) -> None:
    for axis in (upper, lower):
        axis.grid(alpha=0.3)
    upper.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)


def _plane(axis: Axes) -> None:
    axis.axvline(0.0, color="0.5", linewidth=0.8)
    axis.set_xlabel("Re λ [1/s]")
    axis.set_ylabel("Im λ [rad/s]")
    axis.grid(alpha=0.3)


def _heat(axis: Axes, shares: Mapping[str, Any], n: int) -> None:
    if not shares:
        axis.set_axis_off()
        return
    axis.imshow(np.stack(list(shares.values())), vmin=0.0, vmax=1.0, cmap="Blues", aspect="auto")
    axis.set_yticks(range(len(shares)), list(shares), fontsize="small")
    if n <= MOST_TICKS:
        axis.set_xticks(range(n))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(MOST_TICKS, integer=True))


def _with_labels(eigenvalues: np.ndarray, height: float) -> list[int]:
    """Numbers of the eigenvalues whose labels do not cover one another, the first ones first."""
    sizes = LABEL[0] / (WIDTH / 4), LABEL[1] / height  # As parts of the axes.
    x, y = (_from_0_to_1(part) for part in (np.real(eigenvalues), np.imag(eigenvalues)))
    kept: list[int] = []
    for k in range(len(eigenvalues)):
        if all(abs(x[k] - x[j]) > sizes[0] or abs(y[k] - y[j]) > sizes[1] for j in kept):
            kept.append(k)
    return kept


def _from_0_to_1(x: np.ndarray) -> np.ndarray:
    extent = np.ptp(x)
    return (x - x.min()) / extent if extent > 0 else np.zeros_like(x)


def _colour(k: int, n: int) -> tuple[float, float, float, float]:
    colours = mpl.colormaps["tab10" if n <= 10 else "turbo"]
    return colours(k if n <= 10 else k / (n - 1))
