"""Report of a fit on one page: estimates, their errors, and readings of data and model."""

import html
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..identification.comparison import ModelComparison
from ..identification.experiment import Experiment
from ..identification.fit import Fit, Overlay, far_apart, integrated, outcome, rms_of
from ..identification.statistics import autocorrelation, residual_series

try:
    from matplotlib.figure import Figure

    from .figure import NotebookFigure
except ImportError as error:
    raise ImportError('a report needs matplotlib: pip install "jaxmbd[viz]"') from error

MAX_PANELS = 12  # Panels of readings; if there are more records, the worst are drawn.
MAX_DOTS = 60  # Readings drawn in a panel: more would merge into a line.
STYLE = """
body { font: 15px/1.45 sans-serif; color: #222; max-width: 62rem; margin: 2rem auto }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: 0.2rem 0.8rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
svg { max-width: 100%; height: auto }
.bad { color: #b00 }
"""
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>
<body>
{body}
</body>
</html>
"""


def write_report(fit: Fit, path: Any, validation: Sequence[Experiment], title: str) -> None:
    """Write the report; see `Fit.report`."""
    parts = [f"<h1>{html.escape(title)}</h1>", *_summary(fit), *_estimates(fit)]
    parts += [*_fits(fit), *residual_plots(fit)] if fit.overlays else []
    parts += [*_comparisons(fit)] if fit.comparisons else []
    parts += [*correlation_plot(fit), *convergence_plot(fit)]
    if len(validation):
        parts += _validation(fit, validation)
    page = PAGE.format(title=html.escape(title), style=STYLE, body="\n".join(parts))
    Path(path).write_text(page, encoding="utf-8")


def plot_fit(fit: Fit) -> Figure:
    """Measured and predicted readings of the records of a fit; see `Fit.plot`."""
    worst = _worst(fit.overlays) if fit.overlays else []
    shown = [(i, name, x) for i in worst for name, x in fit.overlays[i].items()]
    n = len(shown) + len(fit.comparisons)
    figure, grid = grid_of_axes(n, figure=NotebookFigure)
    for axes, (i, name, overlay) in zip(grid, shown, strict=False):
        _curves(axes, overlay, f"record {i}, {name}")
    for axes, record in zip(grid[len(shown) :], fit.comparisons, strict=True):
        residuals = (record.predicted - record.measured) / record.deviations
        axes.bar(range(len(residuals)), residuals)
        axes.set_xticks(range(len(residuals)), record.labels, rotation=90)
        axes.axhline(0.0, color="k", lw=0.8)
        axes.set(ylabel="residual [deviations]", title=f"{record.name}: rms {record.rms:.3g}")
    return figure


def plot_comparison(comparison: ModelComparison) -> Figure:
    """Errors and information criteria of compared models; see `ModelComparison.plot`."""
    candidates = comparison.candidates[::-1]
    figure, grid = grid_of_axes(2, height=1.2 + 0.35 * len(candidates), figure=NotebookFigure)
    names = [x.name for x in candidates]
    crossed = candidates[0].left_out is not None
    grid[0].barh(names, [x.error for x in candidates], color="C0")
    grid[0].axvline(1.0, color="k", lw=0.8, ls="--")
    of = "records left out" if crossed else "the fitted records"
    grid[0].set(xlabel=f"error in {of}, by the least")
    rows = np.arange(len(names))
    grid[1].barh(rows + 0.2, [x.aic for x in candidates], 0.4, color="C1", label="Akaike")
    grid[1].barh(rows - 0.2, [x.bic for x in candidates], 0.4, color="C2", label="Bayesian")
    grid[1].set_yticks(rows, names)
    grid[1].set_xscale("symlog", linthresh=10.0)
    grid[1].set(xlabel="information criterion, less the least")
    grid[1].legend()
    return figure


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in HTML."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(x)}</{tag}>" for x in cells) + "</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def svg(figure: Figure) -> str:
    """A figure as an element of HTML."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def grid_of_axes(
    n: int, height: float = 2.4, figure: type[Figure] = Figure
) -> tuple[Figure, list[Any]]:
    """A figure of a class with n axes, two in a row."""
    rows = (n + 1) // 2
    drawn = figure(figsize=(10, height * rows), layout="constrained")
    grid = drawn.subplots(rows, 2, squeeze=False).ravel()
    for unused in grid[n:]:
        unused.set_axis_off()
    return drawn, list(grid[:n])


def _summary(fit: Fit) -> Iterator[str]:
    state = "" if outcome(fit.result) == "converged" else ' class="bad"'
    count = len(fit.overlays) + len(fit.comparisons)
    degrees = f", {fit.degrees_of_freedom:.6g} degrees of freedom" if fit.overlays else ""
    yield (
        f"<p{state}>{fit.n_steps} steps: {html.escape(outcome(fit.result))}. {count} "
        f"records{degrees}.</p>"
    )
    if fit.overlays:
        yield f"<p>{html.escape(integrated(fit))}.</p>"
        yield table(["sensor", "rms residual"], [[n, f"{x:.4g}"] for n, x in fit.rms.items()])


def _comparisons(fit: Fit) -> Iterator[str]:
    """Measured and predicted numbers of static and modal experiments."""
    rows = [
        [record.name, label, *(f"{x:.6g}" for x in (a, b, s)), f"{(b - a) / s:.3g}"]
        for record in fit.comparisons
        for label, a, b, s in zip(record.labels, *record[2:], strict=True)
    ]
    yield "<h2>Deflections and modes</h2>"
    head = ["record", "number", "measured", "predicted", "deviation", "residual by deviation"]
    yield table(head, rows)


def _estimates(fit: Fit) -> Iterator[str]:
    yield "<h2>Parameters</h2>"
    plain = np.column_stack([fit.standard_errors, fit.intervals()])
    robust = np.column_stack([fit.robust_errors, fit.intervals(robust=True)])
    limited = {name for bound in fit.bounds for name in bound.parameters}
    rows = [
        [f"{label} (at a bound)" if label in limited else label, f"{start:.6g}", f"{value:.6g}"]
        + [f"{x:.2g}" if i % 3 == 0 else f"{x:.6g}" for i, x in enumerate(numbers)]
        for label, start, value, numbers in zip(
            fit.labels, fit.started_from, fit.values, np.hstack([plain, robust]), strict=True
        )
    ]
    head = ["", "start", "estimate", "std. error", "95 % from", "to"]
    yield table([*head, "robust error", "95 % from", "to"], rows)
    yield (
        "<p>Standard errors, and the intervals next to them, take every residual to be independent "
        "of the others. Robust ones allow for residuals that are correlated over time, here for "
        f"{fit.bandwidth:.3g} s (Newey and West).</p>"
    )
    for bound in fit.bounds:
        yield f'<p class="bad">{html.escape(f"No error at {bound}")}.</p>'
    if fit.bounds:
        yield "<p>Errors of the other parameters are conditional: they hold at these bounds.</p>"
    if apart := far_apart(fit):
        yield f'<p class="bad">{html.escape(apart[0].upper() + apart[1:])}.</p>'
    for names in fit.unseen:
        yield f'<p class="bad">Not told apart by the data: {html.escape(", ".join(names))}.</p>'
    if fit.singular_values.size:
        largest, least = fit.singular_values[0], fit.singular_values[-1]
        condition = "infinite" if least == 0 else f"{largest / least:.3g}"
        yield (
            f"<p>Condition of the Jacobian with columns of length one: {condition}. Large values "
            "mean that combinations of parameters have much larger errors than single ones suggest."
            "</p>"
        )


def _error(overlay: Overlay) -> float:
    return rms_of([{"": overlay}])[""]


def _curves(axes: Any, overlay: Overlay, label: str) -> None:
    flat = [np.reshape(x, (len(overlay.ts), -1)) for x in overlay[1:]]
    some = slice(None, None, -(-len(overlay.ts) // MAX_DOTS))
    for k, (measured, predicted) in enumerate(zip(*(x.T for x in flat), strict=True)):
        axes.plot(overlay.ts[some], measured[some], ".", color="0.45", ms=4)
        axes.plot(overlay.ts, predicted, "-", color=f"C{k}", lw=1.4)
    axes.set(xlabel="time [s]", title=f"{label}: rms {_error(overlay):.3g}")


def _worst(records: Sequence[Mapping[str, Overlay]]) -> list[int]:
    """Numbers of the records with the largest errors, in their order.

    Errors are in units of the usual error of each sensor.
    """
    errors = [{name: _error(x) for name, x in record.items()} for record in records]
    usual: dict[str, float] = {}
    for name in {name for record in records for name in record}:
        usual[name] = float(np.median([e[name] for e in errors if name in e])) or 1.0
    ranks = [max(x / usual[name] for name, x in e.items()) for e in errors]
    drawn, n = [], 0
    for i in np.argsort(ranks)[::-1]:
        n += len(records[i])
        if drawn and n > MAX_PANELS:
            break
        drawn.append(int(i))
    return sorted(drawn)


def drawn_records(records: Sequence[Mapping[str, Overlay]], kind: str) -> Iterator[str]:
    """Measured and predicted readings of the records with the largest errors."""
    worst = _worst(records)
    if len(worst) < len(records):
        yield f"<p>The {len(worst)} of {len(records)} records with the largest errors.</p>"
    shown = [(i, name, x) for i in worst for name, x in records[i].items()]
    figure, grid = grid_of_axes(len(shown))
    for axes, (i, name, overlay) in zip(grid, shown, strict=True):
        _curves(axes, overlay, f"{kind} {i}, {name}")
    yield svg(figure)


def _fits(fit: Fit) -> Iterator[str]:
    yield "<h2>Measured and predicted</h2><p>Dots are readings, lines the fitted model.</p>"
    yield from drawn_records(fit.overlays, "record")


def residual_plots(fit: Fit) -> Iterator[str]:
    """Autocorrelation of the residuals of every sensor."""
    yield (
        "<h2>Residuals from sample to sample</h2><p>Within the dashed lines noise is white, as "
        "standard errors take it to be. Outside, the model misses something, and standard errors "
        "are too small; robust ones allow for it.</p>"
    )
    series = residual_series(fit.overlays)
    figure, grid = grid_of_axes(len(series))
    for axes, (name, parts) in zip(grid, series.items(), strict=True):
        n = max(map(len, parts)) // 2  # Larger lags have few pairs of readings.
        axes.fill_between(range(n + 1), autocorrelation(parts, n), step="mid", lw=0)
        band = 1.96 / np.sqrt(sum(map(len, parts)))
        for level in (-band, band):
            axes.axhline(level, color="k", lw=0.8, ls="--")
        axes.set(xlabel="lag [samples]", ylabel="autocorrelation", title=name)
    yield svg(figure)


def correlation_plot(fit: Fit) -> Iterator[str]:
    """Correlation of the parameters."""
    yield "<h2>Correlation of the parameters</h2>"
    size = 2.5 + 0.3 * len(fit.labels)
    figure = Figure(figsize=(size + 2, size), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(fit.correlation, vmin=-1, vmax=1, cmap="RdBu_r")
    ticks = range(len(fit.labels))
    axes.set_xticks(ticks, fit.labels, rotation=90)
    axes.set_yticks(ticks, fit.labels)
    figure.colorbar(image)
    yield svg(figure)


def convergence_plot(fit: Fit) -> Iterator[str]:
    """Costs of all steps."""
    yield "<h2>Convergence</h2>"
    figure = Figure(figsize=(7, 2.8), layout="constrained")
    axes = figure.subplots()
    for costs in fit.costs:
        axes.semilogy(np.where(np.isfinite(costs) & (costs > 0), costs, np.nan), ".-", lw=1)
    axes.set(xlabel="step", ylabel="half the sum of squares")
    yield svg(figure)


def _validation(fit: Fit, records: Sequence[Experiment]) -> Iterator[str]:
    yield "<h2>Records that the fit has not seen</h2>"
    overlays = fit.overlay(records)
    seen, unseen = fit.rms, rms_of(overlays)
    rows = [[n, f"{x:.4g}", f"{seen[n]:.4g}" if n in seen else ""] for n, x in unseen.items()]
    yield table(["sensor", "rms error", "in the fit"], rows)
    yield from drawn_records(overlays, "unseen record")
