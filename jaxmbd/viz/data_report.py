"""Pictures of checked records."""

from typing import Any

import numpy as np

from ..identification.channel_checks import saturated
from ..identification.data_checks import Channel, DataReport

try:
    from .figure import NotebookFigure
except ImportError as error:
    raise ImportError('a plot needs matplotlib: pip install "jaxmbd[viz]"') from error

MAX_PANELS = 24
FAR = 10.0  # Intervals of more than so many median intervals are drawn as gaps.


def plot_data(report: DataReport) -> Any:
    """Channels with gaps, saturated samples and predicted readings; see `DataReport.plot`."""
    ranked = sorted(report.channels, key=lambda x: not _found(x, report))
    shown = ranked[:MAX_PANELS]
    n = len(shown) + (report.visibility is not None)
    figure = NotebookFigure(figsize=(10, 2.4 * ((n + 1) // 2)), layout="constrained")
    grid = figure.subplots((n + 1) // 2, 2, squeeze=False).ravel()
    for axes, channel in zip(grid, shown, strict=False):
        _draw(axes, channel, report)
    if report.visibility is not None:
        sigma = report.visibility.statistics.singular_values
        axes = grid[len(shown)]
        axes.semilogy(np.arange(1, len(sigma) + 1), np.maximum(sigma, 1e-300), "o")
        axes.set(title=f"sensitivities: condition {report.visibility.condition:.3g}")
        axes.set(xlabel="number", ylabel="singular value")
    for unused in grid[n:]:
        unused.set_axis_off()
    return figure


def _draw(axes: Any, channel: Channel, report: DataReport) -> None:
    """One channel, with what was found in it."""
    series = channel.series
    flat = np.where(series.valid, series.values, np.nan).reshape(len(series), -1)
    axes.plot(series.ts, flat, ".", ms=3)
    steps = np.diff(series.ts)
    for k in np.flatnonzero(steps > FAR * np.median(steps)) if len(steps) else ():
        axes.axvspan(series.ts[k], series.ts[k + 1], color="0.85")
    at_end = saturated(series)
    if at_end.any():
        axes.plot(series.ts[at_end], flat[at_end], "rx", ms=4)
    for x in report.comparisons:
        if _is_of(x, channel) and x.alignment is not None:
            axes.plot(x.alignment.ts, x.alignment.predicted, "-k", lw=0.8)
    found = _found(channel, report)
    title = f"{channel.record}, {channel.name}" + (f": {', '.join(found)}" if found else "")
    axes.set(xlabel="time [s]", title=title)


def _found(channel: Channel, report: DataReport) -> list[str]:
    """Kinds of the findings in a channel."""
    return [x.kind for x in report.findings if _is_of(x, channel)]


def _is_of(x: Any, channel: Channel) -> bool:
    """Whether a check or comparison is that of the channel or of a component of it."""
    own = x.channel == channel.name or x.channel.startswith(f"{channel.name}[")
    return own and x.record in ("all", channel.record)
