"""The result of a fit: estimates, errors, predictions and reports."""

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ..errors import DataError
from ..model import Model
from ..motion.results import RESULTS
from .bounds import Bound
from .experiment import Experiment, nearest_in_periods
from .minimizers import AbstractMinimizer
from .prediction import Sensors, Simulator, motions_only, predicted
from .problem import Problem
from .records import Comparison
from .statistics import ByLabel

# Standard and robust errors with a larger ratio are reported as different.
FAR_APART = 1.5


class Overlay(NamedTuple):
    """Measured and predicted readings of one sensor in one record.

    - `ts`: times of readings that count [s], shape `(n,)`; `measured` and `predicted`: shape `(n,)`
      or `(n, k)`. Predicted angles are within half a turn of the measured ones. Components that do
      not count are NaN.
    """

    ts: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray


class Search(NamedTuple):
    """The options of `identify` that are not part of its `Problem`, for the same fit again."""

    method: AbstractMinimizer
    starts: int
    spread: float
    seed: int


class Fit(eqx.Module, ByLabel):
    """Estimates and their errors, the result of `identify`; `print` a table or `report` a page.

    A fit is read like a dict `{label: value}`, but its `values` are an array.

    - `model`, `sensors`: model and sensors with fitted parameters.
    - `labels`, `values`, `standard_errors`: of the reported numbers, shape `(k,)`; a standard error
      is infinite if the data cannot distinguish the number from others. It is NaN, and so are
      intervals, for numbers that are limited by `bounds`, and for all numbers if the fit did not
      reach a minimum. Errors of other numbers are conditional on the bounds.
    - `correlation`: of the reported numbers, shape `(k, k)`.
    - `robust_errors`, `robust_degrees`: standard errors that allow for residuals that are
      correlated over time, and their degrees of freedom, shape `(k,)`.
    - `bandwidth`: assumed length of correlations for `robust_errors` [s].
    - `degrees_of_freedom`: number of readings and defects, less that of unknowns. Unknowns count by
      the share in which the motions determine them, if there are other records; without motions
      the degrees are infinite, since all standard deviations are given.
    - `rms`: root mean square residual of every sensor, in its own unit.
    - `initial_states`: corrections to every record's initial state, shape `(2 nv + nz,)` each, if
      they were fitted: coordinates, velocities, first-order states.
    - `defects`: continuity defects between windows, in standard deviations, shape
      `(g, 2 nv + nz)`: coordinates, velocities, first-order states.
    - `unseen`: groups of names that the data cannot distinguish.
    - `bounds`: the bounds at which the fit ended, of transforms and of possible bodies; each has
      the `parameters` that it limits and the `inequality` in words.
    - `singular_values`: of the Jacobian with columns of length one, largest first.
    - `overlays`: `{sensor: Overlay}` of every motion.
    - `comparisons`: measured and predicted numbers of every other record.
    - `costs`: half the sum of squares at each start and after each of its steps.
    - `n_steps`, `result`: number of steps, and result of the optimizer or of the check of its end:
      `RESULTS.at_bound` with `bounds`, `RESULTS.no_minimum` if it ended where further steps are
      rejected.
    - `substeps`: number of integration steps in each sample interval.
    - `integration_error`: `{sensor: estimated largest error at sample times}` in all records at the
      end of the fit, in the sensor's own unit.
    - `problem`, `search`: the problem, and the other options of `identify`.
    """

    model: Model
    sensors: Sensors
    labels: list[str]
    values: np.ndarray
    standard_errors: np.ndarray
    correlation: np.ndarray
    robust_errors: np.ndarray
    robust_degrees: np.ndarray
    bandwidth: float
    degrees_of_freedom: float
    rms: dict[str, float]
    initial_states: list[np.ndarray]
    defects: np.ndarray
    unseen: list[list[str]]
    bounds: list[Bound]
    singular_values: np.ndarray
    overlays: list[dict[str, Overlay]]
    comparisons: list[Comparison]
    costs: list[np.ndarray]
    n_steps: int
    result: RESULTS
    substeps: int
    integration_error: dict[str, float]
    started_from: np.ndarray
    simulator: Simulator
    problem: Problem = eqx.field(static=True)
    search: Search = eqx.field(static=True)

    def __getitem__(self, label: str) -> float:
        return float(self.values[self._row(label)])

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the reported numbers, from the standard errors, shape `(k, k)`.

        If the data cannot distinguish a number from others, its variance is infinite and its
        covariances are NaN.
        """
        with np.errstate(invalid="ignore"):
            return np.outer(self.standard_errors, self.standard_errors) * self.correlation

    def standard_error(self, label: str) -> float:
        """Standard error of one reported number."""
        return float(self.standard_errors[self._row(label)])

    def intervals(self, level: float = 0.95, robust: bool = False) -> np.ndarray:
        """Confidence intervals of the reported numbers, shape `(k, 2)`, by Student's t.

        From `standard_errors`, or from `robust_errors` if `robust`.

        **Raises** `DataError` for a level that is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise DataError(f"intervals: level must be between 0 and 1, got {level}")
        from scipy import stats  # Takes a second to load.

        errors = self.robust_errors if robust else self.standard_errors
        degrees = self.robust_degrees if robust else self.degrees_of_freedom
        half_width = stats.t.ppf(0.5 + 0.5 * level, degrees) * errors
        return np.stack([self.values - half_width, self.values + half_width], axis=1)

    def interval(
        self, label: str, level: float = 0.95, robust: bool = False
    ) -> tuple[float, float]:
        """Confidence interval of one reported number."""
        lower, upper = self.intervals(level, robust)[self._row(label)]
        return float(lower), float(upper)

    def predict(self, experiments: Experiment | Sequence[Experiment]) -> Any:
        """The result of `jaxmbd.predict` for the fitted model and sensors.

        Integrator and substeps are those given to `identify`. Default of `substeps`: chosen for
        these records.
        """
        return predicted(self.simulator, self.model, experiments)

    def validate(self, experiments: Experiment | Sequence[Experiment]) -> dict[str, float]:
        """Root mean square error of every sensor in records that were not fitted."""
        return rms_of(self.overlay(motions_only(experiments, "validate")))

    def overlay(self, records: Sequence[Experiment]) -> list[dict[str, Overlay]]:
        """Measured readings of records, and predicted ones of the fitted model."""
        readings = predicted(self.simulator, self.model, records, residuals=self.rms)
        nearest = functools.partial(self.simulator.nearest, self.model)
        return overlays_of(nearest, records, readings)

    def report(self, path: Any, validation: Sequence[Experiment] = (), title: str = "Fit") -> None:
        """Write a report on one page (`.html`) that needs no network; needs the extra `viz`.

        It shows parameters with 95 % intervals of both kinds, parameters that the data cannot
        distinguish, measured and predicted readings of every record, autocorrelation of the
        residuals, correlation of the parameters and convergence.

        **Arguments:** `path`: file; `validation`: records that were not fitted; `title`.
        """
        from ..viz.fit_report import write_report

        write_report(self, path, validation, title)

    def certificate(
        self,
        path: str | os.PathLike[str],
        validation: Sequence[Experiment] = (),
        *,
        sources: Iterable[Any] = (),
        thresholds: Mapping[str, float] | None = None,
        title: str = "Certificate of a fitted model",
    ) -> dict[str, Any]:
        """Write a folder with all that others need to check the fit; needs the extra `viz`.

        The folder has `certificate.json` (schema, digests of all files, versions, seeds,
        thresholds, evidence, verdict), `report.html` (one page without network), `problem.json`
        (starting model, records and options) and `model.json` (the fitted model). Evidence is:
        parameters with units, intervals and warnings; errors of predictions one step and 0.1, 0.5
        and 2 s ahead; errors in records left out of the fit; whiteness of the residuals;
        possibility of each body. `verify` computes it again.

        The verdict is `"rejected"` if the fit did not converge, the data cannot distinguish all
        parameters, one is at an edge, a body is impossible, integration errors are large, or errors
        in records left out exceed those of the fit. Correlated residuals and large standard errors
        are warnings.

        **Arguments:**

        - `path`: the folder.
        - `validation`: records that were not fitted, for predictions ahead and overlays.
        - `sources`: files that the records came from, whose digests the certificate has.
        - `thresholds`: `{check: limit}`, positive; `cross_validation_ratio` 1.5,
          `integration_share` 0.1, `relative_error` 0.25, `whiteness_p` 0.01 by default.
        - `title`: heading of the page.

        **Returns** the content of `certificate.json`.

        **Raises** `DataError` for what files cannot hold, such as functions of Python as sensors,
        for missing `sources`, and for unknown thresholds.
        """
        from .certificate import write_certificate

        return write_certificate(self, path, validation, sources, thresholds, title)

    def plot(self) -> Any:
        """Measured and predicted readings, one panel for each sensor of each record.

        Of many records the ones with the largest errors are drawn. Static and modal records have
        bars of their residuals in deviations. Needs the extra `viz`.

        **Returns** a `matplotlib.figure.Figure` outside of pyplot: `figure.savefig(path)`.
        """
        from ..viz.fit_report import plot_fit

        return plot_fit(self)

    def _row(self, label: str) -> int:
        if label not in self.labels:
            raise KeyError(f"no parameter {label!r}; there are {', '.join(self.labels)}")
        return self.labels.index(label)

    def __str__(self) -> str:
        width = max(len(label) for label in self.labels)
        heads = ("start", "estimate", "std. error", "robust")
        lines = [f"{'parameter':<{width}}  " + "  ".join(f"{head:>12}" for head in heads)]
        errors = self.standard_errors, self.robust_errors
        rows = zip(self.labels, self.started_from, self.values, *errors, strict=True)
        lines += [
            f"{n:<{width}}  {s:12.6g}  {x:12.6g}  {e:12.2g}  {robust:12.2g}"
            for n, s, x, e, robust in rows
        ]
        lines += [f"no error at {bound}" for bound in self.bounds]
        lines += filter(None, [far_apart(self)])
        lines += [f"rms residual of {name}: {value:.4g}" for name, value in self.rms.items()]
        lines += [f"rms residual of {x.name}: {x.rms:.4g} deviations" for x in self.comparisons]
        if self.defects.size:
            lines.append(
                f"rms defect between windows: {np.sqrt(np.mean(self.defects**2)):.4g} deviations"
            )
        lines += [f"not told apart by the data: {', '.join(names)}" for names in self.unseen]
        lines += [integrated(self)] if self.overlays else []
        lines += [f"{self.n_steps} steps: {outcome(self.result)}"]
        return "\n".join(lines)


def overlays_of(
    nearest: Callable[[str, Any, Any], Any],
    records: Sequence[Experiment],
    readings: Sequence[Mapping[str, Any]],
) -> list[dict[str, Overlay]]:
    """Measured readings of every record that count, and predicted ones of a model.

    Of equivalent readings, such as angles a turn apart, `nearest` returns the one nearest to the
    measured reading.
    """
    return [
        {name: _overlay(nearest, record, name, read[name]) for name in sorted(record.measurements)}
        for record, read in zip(records, readings, strict=True)
    ]


def _overlay(
    nearest: Callable[[str, Any, Any], Any], record: Experiment, name: str, read: Any
) -> Overlay:
    """Readings of one sensor at its own instants; NaN for components that do not count."""
    ts, measured, read = map(np.asarray, (record.ts, record.measurements[name], read))
    counts = record.counts(name)
    rows = np.any(counts.reshape(len(counts), -1), axis=1)
    ts, measured, read, counts = ts[rows], measured[rows], read[rows], counts[rows]
    measured = np.where(counts, measured, read)
    read = np.asarray(nearest(name, read, measured))
    if name in record.periods:
        read = np.asarray(nearest_in_periods(read, measured, record.periods[name]))
    return Overlay(ts, np.where(counts, measured, np.nan), read)


def rms_of(overlays: Sequence[Mapping[str, Overlay]]) -> dict[str, float]:
    """Root mean square error of every sensor in all records together, in its own unit."""
    errors: dict[str, list[np.ndarray]] = {}
    for record in overlays:
        for name, (_, measured, read) in record.items():
            errors.setdefault(name, []).append((read - measured)[~np.isnan(measured)])
    return {n: float(np.sqrt(np.mean(np.concatenate(x) ** 2))) for n, x in sorted(errors.items())}


def far_apart(fit: Fit) -> str:
    """In words, numbers whose robust and standard errors differ; empty if there are none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = fit.robust_errors / fit.standard_errors
        far = np.abs(np.log(ratios)) > np.log(FAR_APART)  # False if both are zero or infinite.
    if not far.any():
        return ""
    named = [
        f"{n} ({x:.2g})" for n, x, is_far in zip(fit.labels, ratios, far, strict=True) if is_far
    ]
    return (
        "residuals are correlated over time: use the robust errors, which differ from the others "
        f"by a factor of more than {FAR_APART} for {', '.join(named)}"
    )


def integrated(fit: Fit) -> str:
    """In words, number of substeps and estimated integration errors."""
    number = f"{fit.substeps} substep" + ("s" if fit.substeps > 1 else "")
    errors = ", ".join(f"{name} {x:.2g}" for name, x in sorted(fit.integration_error.items()))
    return f"{number} in each sample interval, with integration errors of about: {errors}"


def outcome(result: RESULTS) -> str:
    """In words, the result of the minimization."""
    return "converged" if result == RESULTS.successful else RESULTS[result]
