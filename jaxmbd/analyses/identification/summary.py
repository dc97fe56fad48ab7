"""The result of a fit at a minimum: values, standard errors and comparisons with the data."""

import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .experiment import Experiment
from .fit import Fit, Overlay, overlays_of, rms_of
from .flat_residuals import by_batch, by_record, defects_of, n_others, n_readings
from .losses import Squares
from .minimum import End, linearize
from .records import AbstractRecord, Comparison
from .residuals import Residuals
from .robust import Robust, robust_of
from .statistics import Statistics, correlation_of, statistics
from .substeps import Integration, Motions


class RankWarning(UserWarning):
    """The data cannot distinguish all parameters."""


def fit_at(
    residuals: Residuals,
    experiments: Sequence[Experiment],
    records: Sequence[AbstractRecord],
    end: End,
    motions: Motions,
    integration: Integration,
) -> Fit:
    """The fit at the end of a minimization.

    **Warns** by `RankWarning`, naming parameters, if the data cannot distinguish them.
    """
    unknowns = end.unknowns
    selected, (theta, starts) = residuals.selected, unknowns
    r, J, D = (np.asarray(x) for x in linearize(residuals, unknowns))
    labels = selected.free_labels()
    labels += ["an initial state"] * (J.shape[1] - len(labels))
    n = sum(x.size for x in by_batch(residuals, r))
    defects = defects_of(residuals, r[n + n_others(residuals) :])
    linear, degrees = _linear(residuals, r, J, labels, defects.size)
    errors, correlation = _reported(linear, D)
    robust = _robust(residuals, experiments, unknowns, linear, r, J, D, J[n:])
    if linear.unseen:
        groups = "; ".join(", ".join(names) for names in linear.unseen)
        warnings.warn(
            f"identify: the data do not tell apart: {groups}. Their values are one choice of many; "
            "fix some of them, or add records that move differently",
            RankWarning,
            stacklevel=3,
        )
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
        robust_errors=np.where(np.isfinite(errors), np.sqrt(robust.variances), np.inf),
        robust_degrees=robust.degrees,
        bandwidth=robust.bandwidth,
        degrees_of_freedom=degrees,
        rms=rms_of(overlays),
        initial_states=_in_order(residuals, starts),
        defects=defects,
        unseen=linear.unseen,
        singular_values=linear.singular_values,
        overlays=overlays,
        comparisons=_comparisons(residuals, records, r[n:]),
        costs=end.costs,
        n_steps=end.n_steps,
        result=end.result,
        substeps=integration.substeps,
        integration_error=integration.errors,
        started_from=np.asarray(selected.report(selected.free())),
        simulator=simulator,
    )


def overlays_at(residuals: Residuals, motions: Motions) -> list[dict[str, Overlay]]:
    """Measured and predicted readings of every record, by sensor."""
    readings = motions.run(residuals.simulator.substeps)
    return overlays_of(motions.nearest, motions.experiments, readings)


def _linear(
    residuals: Residuals, r: np.ndarray, J: np.ndarray, labels: list[str], n_defects: int
) -> tuple[Statistics, float]:
    """Statistics of the unknowns, and degrees of freedom of the variance of the readings.

    The variance of readings is estimated; that of other records, defects and priors is one. The
    shares in which other records determine the unknowns are no loss of degrees of freedom.
    """
    n, m = sum(x.size for x in by_batch(residuals, r)), n_others(residuals)
    if n == 0:
        return statistics(J, labels, 1.0), np.inf
    least = n_readings(residuals) + n_defects - J.shape[1]

    def of(degrees: float) -> Statistics:
        deviation = np.ones(len(r))
        deviation[:n] = np.sqrt(r[:n] @ r[:n] / degrees)
        return statistics(J / np.maximum(deviation, np.finfo(float).tiny)[:, None], labels, 1.0)

    degrees = float(max(least, 1))
    linear = of(degrees)
    if m:
        shares = float(np.sum((J[n : n + m] @ linear.directions) ** 2))
        degrees = max(least + shares, 1.0)
        linear = of(degrees)
    return linear, degrees


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


def _reported(linear: Statistics, D: Float[np.ndarray, "k p"]) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors and correlations of the reported numbers, by the delta method."""
    p = D.shape[1]
    covariance = linear.covariance[:p, :p]
    unseen = ~np.isfinite(np.diagonal(covariance))
    reported = D @ np.where(np.isfinite(covariance), covariance, 0.0) @ D.T
    undetermined = np.any(D[:, unseen] != 0, axis=1)
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


@eqx.filter_jit
def _bends(residuals: Residuals, unknowns: Any) -> Array:
    """`AbstractLoss.bends` of every residual."""
    plain = eqx.tree_at(lambda x: x.loss, residuals, Squares()).plain(unknowns)
    return residuals.loss.bends(plain)


def _in_order(residuals: Residuals, starts: list[Array]) -> list[np.ndarray]:
    by_record = {
        row: np.asarray(start[i])
        for batch, start in zip(residuals.batches, starts, strict=True)
        for i, row in enumerate(batch.rows)
    }
    return [by_record[row] for row in sorted(by_record)]


__all__ = ["RankWarning", "fit_at", "overlays_at"]
