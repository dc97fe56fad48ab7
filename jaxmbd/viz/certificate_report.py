"""The page of a certificate: its evidence in tables and pictures, without network."""

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalarjit.whole_files import written_whole

from ..identification.experiment import Experiment
from ..identification.fit import Fit
from ..identification.held import held_overlays
from .fit_report import (
    PAGE,
    STYLE,
    convergence_plot,
    correlation_plot,
    drawn_records,
    residual_plots,
    table,
)

Evidence = Mapping[str, Any]


def write_certificate_report(
    fit: Fit, content: Mapping[str, Any], validation: Sequence[Experiment], path: Path
) -> None:
    """Write the page of a certificate; see `Fit.certificate`."""
    evidence: Evidence = content["evidence"]
    parts = [f"<h1>{html.escape(content['title'])}</h1>", *_verdict(content)]
    parts += _parameters(evidence)
    parts += _predictions(evidence) if fit.overlays else []
    if fit.overlays:
        parts += ["<h2>Measured and predicted</h2>", *drawn_records(fit.overlays, "record")]
        parts += [*residual_plots(fit), *_whiteness(evidence)]
    if len(validation):
        parts += ["<h2>Records that the fit has not seen</h2>"]
        parts += drawn_records(held_overlays(fit, validation), "unseen record")
    parts += [*_bodies(evidence), *correlation_plot(fit), *convergence_plot(fit), *_origin(content)]
    body = "\n".join(parts)
    page = PAGE.format(title=html.escape(content["title"]), style=STYLE, body=body)
    with written_whole(path) as part:
        part.write_text(page, encoding="utf-8")


def _verdict(content: Mapping[str, Any]) -> Iterator[str]:
    bad = ' class="bad"' if content["verdict"] == "rejected" else ""
    yield f"<p{bad}><b>Verdict: {html.escape(content['verdict'])}.</b></p>"
    rows = [
        [
            x["name"],
            "yes" if x["passed"] else ("no" if x["required"] else "no (warning)"),
            str(x["found"]),
        ]
        for x in content["evidence"]["checks"]
    ]
    yield table(["check", "met", "found"], rows)


def _parameters(evidence: Evidence) -> Iterator[str]:
    yield "<h2>Parameters</h2>"
    rows = [
        [
            x["name"],
            x["unit"],
            *(f"{x[key]:.6g}" for key in ("start", "estimate")),
            *(f"{x['standard_error']:.2g}", _interval(x["interval"])),
            *(f"{x['robust_error']:.2g}", _interval(x["robust_interval"])),
            "; ".join(x["warnings"]),
        ]
        for x in evidence["parameters"]
    ]
    head = ["parameter", "unit", "start", "estimate", "std. error", "95 % interval"]
    yield table([*head, "robust error", "95 % interval", "warnings"], rows)
    yield (
        "<p>Intervals beside standard errors hold for residuals that are independent of one "
        "another, those beside robust errors for residuals that are correlated over time.</p>"
    )


def _interval(ends: Sequence[float]) -> str:
    return f"{ends[0]:.5g} … {ends[1]:.5g}"


def _predictions(evidence: Evidence) -> Iterator[str]:
    horizons, crossed = evidence["horizons"], evidence["cross_validation"]
    yield "<h2>Errors of predictions</h2>"
    if horizons is None:
        yield "<p>Records are too short for predictions.</p>"
    else:
        keys = list(next(iter(horizons["errors"].values())))
        rows = [
            [name, f"{evidence['rms'].get(name, float('nan')):.4g}"]
            + ["not reached" if of[key] is None else f"{of[key]:.4g}" for key in keys]
            for name, of in horizons["errors"].items()
        ]
        yield table(["sensor", "rms of the fit", *(f"after {key}" for key in keys)], rows)
        yield (
            f"<p>Root mean square errors of {horizons['windows']} predictions, at so much time "
            "after the last reading that they use. Their initial states follow from readings in "
            f"the {horizons['before']:.3g} s before.</p>"
        )
    if evidence["validation"] is not None:
        rows = [[n, f"{x:.4g}"] for n, x in evidence["validation"].items()]
        yield table(["sensor", "rms error in records for validation"], rows)
    if crossed is None:
        yield "<p>There are fewer than two motions, so that none can be left out of the fit.</p>"
        return
    rows = [[n, f"{x:.4g}", f"{crossed['ratio'][n]:.3g}"] for n, x in crossed["rms"].items()]
    yield table(["sensor", "rms error in records left out", "by that of the fit"], rows)
    yield (
        f"<p>{crossed['folds']} fits of the other records. Parameters changed by at most "
        f"{crossed['largest_shift']:.3g} standard errors.</p>"
    )


def _whiteness(evidence: Evidence) -> Iterator[str]:
    rows = [
        [name, str(x["lags"]), f"{x['statistic']:.4g}", f"{x['p']:.3g}", f"{x['first']:.3g}"]
        for name, x in evidence["whiteness"].items()
    ]
    head = ["sensor", "lags", "Ljung–Box statistic", "p", "autocorrelation at lag 1"]
    yield table(head, rows)


def _bodies(evidence: Evidence) -> Iterator[str]:
    yield "<h2>Bodies</h2>"
    rows = [
        [
            *(name, f"{x['mass']:.6g}", f"{x['least']:.3g}", f"{x['triangle']:.3g}"),
            *("yes" if x[key] else "no" for key in ("possible", "fitted")),
        ]
        for name, x in evidence["feasibility"].items()
    ]
    head = ["body", "mass [kg]", "least pseudo-inertia by largest", "triangle margin"]
    yield table([*head, "possible", "fitted"], rows)
    yield (
        "<p>A body is possible if its pseudo-inertia is positive definite, which includes the "
        "triangle inequality of its principal moments.</p>"
    )


def _origin(content: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Files and versions</h2>"
    files = {**content["files"], **content["sources"]}
    yield table(["file", "SHA-256"], [[name, digest] for name, digest in files.items()])
    yield table(["package", "version"], [[n, x] for n, x in content["versions"].items()])
    search, limits = content["search"], content["thresholds"]
    given = {**{f"threshold {n}": x for n, x in limits.items()}, **search}
    yield table(["option", "value"], [[n, str(x)] for n, x in given.items()])
    yield "<p><code>jaxmbd verify FOLDER</code> computes all of this again.</p>"
