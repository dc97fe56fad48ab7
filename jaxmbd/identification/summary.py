"""The result of a fit at a minimum: values, standard errors and comparisons with the data."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..errors import warn
from ..motion.results import RESULTS
from ..programs import stored
from .bounds import Bounds, bounds_at
from .correlated_errors import Robust, robust_of
from .experiment import Experiment
from .fit import Fit, Overlay, Search, overlays_of, rms_of
from .losses import Squares
from .multistart import End
from .problem import Problem
from .records import AbstractRecord, Comparison
from .residuals import (
    Linearization,
    Residuals,
    by_batch,
    by_record,
    defects_of,
    linearize,
    n_others,
    n_readings,
)
from .statistics import NAMED_SHARE, Statistics, correlation_of, statistics
from .substeps import Integration, Motions

# A step leads away from a minimum if it reduces the residuals by more than one standard error, and
# half the sum of squares by more than this part; steps end at reductions by 1e-6.
FAR = 1e-4


class RankWarning(UserWarning):
    """The data cannot distinguish all parameters."""


class BoundWarning(UserWarning):
    """A fit ended at bounds of its parameters; names parameters, inequalities and a remedy."""


class Linear(NamedTuple):
    """The linearized problem at the end of a minimization.

    - `at_end`: residuals and derivatives; `step`: the Gauss–Newton step, shape `(n,)`.
    - `bounds`: bounds at which the minimization ended.
    - `statistics`, `degrees`: of the unknowns, conditional on the bounds, and degrees of freedom.
    - `is_minimum`: whether steps along the bounds would not reduce the residuals.
    """

    at_end: Linearization
    step: np.ndarray
    bounds: Bounds
    statistics: Statistics
    degrees: float
    is_minimum: bool


def linearized(residuals: Residuals, unknowns: Any) -> Linear:
    """The linearized problem at unknowns."""
    line = linearize(residuals, unknowns)
    line = line._replace(r=np.asarray(line.r), J=np.asarray(line.J), D=np.asarray(line.D))
    _, _, step, _ = _linear(residuals, line, None)
    bounds = bounds_at(residuals.selected, unknowns[0], line, step)
    held = bounds.rows if bounds.found else None
    found, degrees, _, is_minimum = _linear(residuals, line, held)
    return Linear(line, step, bounds, found, degrees, is_minimum)


def fit_at(
    residuals: Residuals,
    experiments: Sequence[Experiment],
    records: Sequence[AbstractRecord],
    end: End,
    linear: Linear,
    motions: Motions,
    integration: Integration,
    problem: Problem,
    search: Search,
) -> Fit:
    """The fit at the end of a minimization.

    **Warns** by `RankWarning`, naming parameters, if the data cannot distinguish them, and by
    `BoundWarning` if it ended at bounds.
    """
    unknowns = end.unknowns
    selected, (theta, starts) = residuals.selected, unknowns
    (r, J, D, _), found = linear.at_end, linear.statistics
    n = sum(x.size for x in by_batch(residuals, r))
    errors, correlation = reported_errors(found, D)
    robust = _robust(residuals, experiments, unknowns, found, r, J, D, J[n:])
    robust_errors = np.where(np.isfinite(errors), np.sqrt(robust.variances), np.inf)
    none = linear.bounds.limited if linear.is_minimum else np.ones(len(errors), dtype=bool)
    errors, robust_errors = (np.where(none, np.nan, x) for x in (errors, robust_errors))
    correlation = np.where(none | none[:, None], np.nan, correlation)
    _warn(linear)
    subject = selected.apply(theta)
    simulator = eqx.tree_at(lambda s: s.sensors, residuals.simulator, subject.sensors)
    overlays = overlays_at(residuals, motions)
    return Fit(
        model=subject.model,
        sensors=subject.sensors,
        labels=selected.labels(),
        values=np.asarray(selected.report(theta)),
        standard_errors=errors,
        correlation=correlation,
        robust_errors=robust_errors,
        robust_degrees=robust.degrees,
        bandwidth=robust.bandwidth,
        degrees_of_freedom=linear.degrees,
        rms=rms_of(overlays),
        initial_states=_in_order(residuals, starts),
        defects=defects_of(residuals, r[n + n_others(residuals) :]),
        unseen=found.unseen,
        bounds=linear.bounds.found,
        singular_values=found.singular_values,
        overlays=overlays,
        comparisons=_comparisons(residuals, records, r[n:]),
        costs=end.costs,
        n_steps=end.n_steps,
        result=_result(end, linear),
        substeps=integration.substeps,
        integration_error=integration.errors,
        started_from=np.asarray(selected.report(selected.free())),
        simulator=simulator,
        problem=problem,
        search=search,
    )


def _result(end: End, linear: Linear) -> RESULTS:
    """The result of the minimizer, or what it does not see."""
    if end.result != RESULTS.successful or (linear.is_minimum and not linear.bounds.found):
        return end.result
    return RESULTS.at_bound if linear.is_minimum else RESULTS.no_minimum


def _warn(linear: Linear) -> None:
    if linear.statistics.unseen:
        groups = "; ".join(", ".join(names) for names in linear.statistics.unseen)
        warn(
            f"identify: the data cannot distinguish {groups}. Their values are one choice of many; "
            "fix some of them, or add records that move differently",
            RankWarning,
        )
    if linear.bounds.found:
        remedy = (
            ". Where a body is the bound, fit all of its inertia by PhysicalInertia(), or the "
            "whole body by PhysicalBody()"
        )
        warn(
            f"identify: the fit ended at {'; '.join(map(str, linear.bounds.found))}. These "
            "parameters have no standard errors; those of others are conditional on the bounds"
            f"{remedy if linear.bounds.of_bodies else ''}",
            BoundWarning,
        )


def overlays_at(residuals: Residuals, motions: Motions) -> list[dict[str, Overlay]]:
    """Measured and predicted readings of every record, by sensor."""
    readings = motions.run(residuals.simulator.substeps)
    return overlays_of(motions.nearest, motions.experiments, readings)


def _linear(
    residuals: Residuals, line: Linearization, held: np.ndarray | None
) -> tuple[Statistics, float, np.ndarray, bool]:
    """Statistics of the unknowns, degrees of freedom, Gauss–Newton step, and whether it is small.

    The variance of readings is estimated; that of other records, defects and priors is one. The
    shares in which other records determine the unknowns are not a loss of degrees of freedom. Rows
    `held` as for `statistics`.
    """
    r, J = (np.asarray(x, dtype=float) for x in (line.r, line.J))
    n, m = sum(x.size for x in by_batch(residuals, r)), n_others(residuals)
    labels = residuals.selected.free_labels()
    labels += ["an initial state"] * (J.shape[1] - len(labels))
    deviation = np.ones(len(r))

    def of(degrees: float) -> Statistics:
        if n:
            deviation[:n] = max(np.sqrt(r[:n] @ r[:n] / degrees), np.finfo(float).tiny)
        return statistics(J / deviation[:, None], labels, 1.0, held)

    linear, degrees = of(1.0), np.inf
    if n:
        defects = defects_of(residuals, r[n + m :]).size
        least = n_readings(residuals) + defects - linear.singular_values.size
        degrees = float(max(least, 1))
        linear = of(degrees)
        if m:
            shares = float(np.sum((J[n : n + m] @ linear.directions) ** 2))
            degrees = max(least + shares, 1.0)
            linear = of(degrees)
    components = linear.directions.T @ (J.T @ (r / deviation**2))
    step = -linear.directions @ components
    reduction = 0.5 * float(np.sum((J @ step) ** 2))
    is_far = np.linalg.norm(components) > 1.0 and reduction > FAR * (1.0 + 0.5 * float(r @ r))
    return linear, degrees, step, not is_far


def _comparisons(
    residuals: Residuals, records: Sequence[AbstractRecord], r: np.ndarray
) -> list[Comparison]:
    """Measured and predicted numbers of the records that are not motions, in their order.

    `r`: their residuals, stack by stack.
    """
    by_row: dict[int, Comparison] = {}
    for stack in residuals.stacks:
        measured, deviations = map(np.asarray, (stack.records.measured, stack.records.deviations))
        own, r = np.split(r, [measured.size])
        predicted = measured + own.reshape(measured.shape) * deviations
        for i, row in enumerate(stack.rows):
            record, values = records[row], (measured[i], predicted[i], deviations[i])
            by_row[row] = Comparison(record.name, record.labels(), *values)
    return [by_row[row] for row in sorted(by_row)]


def reported_errors(
    linear: Statistics, D: Float[np.ndarray, "k p"]
) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors and correlations of the reported numbers, by the delta method."""
    by_directions = D @ linear.directions[: D.shape[1]]
    reported = by_directions @ by_directions.T
    undetermined = linear.share_undetermined(D) > NAMED_SHARE
    reported[undetermined, undetermined] = np.inf
    return np.sqrt(np.diagonal(reported)), correlation_of(reported)


def _robust(
    residuals: Residuals,
    experiments: Sequence[Experiment],
    unknowns: Any,
    linear: Statistics,
    r: np.ndarray,
    J: np.ndarray,
    D: np.ndarray,
    others: np.ndarray,
) -> Robust:
    """Variances that allow for correlated residuals; `others` are rows of other residuals."""
    # `bends` of squares are one: they need no simulation.
    squares = isinstance(residuals.loss, Squares)
    bends = np.ones_like(r) if squares else np.asarray(_bends(residuals, unknowns))
    of_unknowns = np.concatenate([D, np.zeros((len(D), J.shape[1] - D.shape[1]))], axis=1)
    of_r, of_J, of_loss = (by_record(residuals, experiments, x) for x in (r, J, bends))
    return robust_of(experiments, of_r, of_J, of_loss, others, linear.directions, of_unknowns)


@stored
def _bends(residuals: Residuals, unknowns: Any) -> Array:
    """`AbstractLoss.bends` of every residual."""
    plain = eqx.tree_at(lambda x: x.loss, residuals, Squares()).plain(unknowns)
    return residuals.loss.bends(plain)


def _in_order(residuals: Residuals, starts: list[Array]) -> list[np.ndarray]:
    by_record = {
        row: np.asarray(start)[i]
        for batch, start in zip(residuals.batches, starts, strict=True)
        for i, row in enumerate(batch.rows)
    }
    return [by_record[row] for row in sorted(by_record)]
