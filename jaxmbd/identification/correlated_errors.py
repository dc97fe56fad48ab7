"""Standard errors that allow for residuals which are correlated over time.

To first order, the error of a reported number is Σ z, where z is its change by the noise at one
time. Its variance is the sum of the products z(s) z(t), weighted by 1 - h/B if h = |s - t| < B
(Newey & West 1987): the mean square, over all places of a window of length B, of the sum of z
inside the window. This is the sandwich estimator whose clusters are such windows; if records are
much shorter than B, its clusters are whole records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .experiment import Experiment
from .statistics import autocorrelation

# Motions, joined from records that share a clock --------------------------------------------------


class Readings(NamedTuple):
    """Residuals of the readings of one record, or of a motion, one row for each time.

    - `r`: weighted residuals of the components of all sensors, shape `(n, c)`.
    - `pulls`: change of each reported number by a residual of one, shape `(n, c, k)`.
    - `J`: derivatives of the residuals by the unknowns, shape `(n, c, u)`.
    """

    r: np.ndarray
    pulls: np.ndarray
    J: np.ndarray


class Motion(NamedTuple):
    """Readings along one clock, where every time occurs once.

    - `ts`: increasing times, shape `(n,)` [s].
    - `series`: weighted residuals of every component of every sensor, by its name, and the median
      time between them [s]; without readings that do not count.
    - `z`: change of the reported numbers by the residuals at each time, shape `(n, k)`.
    - `pulls`, `J`: as of `Readings`.
    """

    ts: np.ndarray
    series: dict[str, tuple[np.ndarray, float]]
    z: np.ndarray
    pulls: np.ndarray
    J: np.ndarray


def join_records(experiments: Sequence[Experiment], readings: Sequence[Readings]) -> list[Motion]:
    """Join records, in the given order, into motions.

    A record continues the motion of the record before it if it begins after the end of that
    record, or if it begins later and both have equal readings at their common times.
    """
    groups: list[list[int]] = []
    for i, record in enumerate(experiments):
        if groups and _continues(experiments[i - 1], record):
            groups[-1].append(i)
        else:
            groups.append([i])
    return [_merged([experiments[i] for i in rows], [readings[i] for i in rows]) for rows in groups]


def _continues(first: Experiment, second: Experiment) -> bool:
    before, after = np.asarray(first.ts), np.asarray(second.ts)
    if first.measurements.keys() != second.measurements.keys() or after[0] <= before[0]:
        return False
    _, i, j = np.intersect1d(before, after, return_indices=True)
    same = [
        np.array_equal(np.asarray(x)[i], np.asarray(second.measurements[name])[j], equal_nan=True)
        for name, x in first.measurements.items()
    ]
    return bool(after[0] > before[-1] or (len(i) and all(same)))


def _merged(records: Sequence[Experiment], readings: Sequence[Readings]) -> Motion:
    """One motion; a reading in several records occurs once, with the sum of its `pulls`."""
    times = np.concatenate([np.asarray(record.ts) for record in records])
    order = np.argsort(times, kind="stable")
    ts, first, counts = np.unique(times[order], return_index=True, return_counts=True)
    r, pulls, J = (np.concatenate(x)[order] for x in zip(*readings, strict=True))
    z, pulls, J = (
        np.add.reduceat(x, first, axis=0) for x in (np.einsum("nck,nc->nk", pulls, r), pulls, J)
    )
    # A reading that counts twice has the weight of one reading of half the variance.
    J = J / np.sqrt(np.expand_dims(counts, (1, 2)))
    valid = np.concatenate([_valid(record) for record in records])[order][first]
    series = {
        name: _own(ts[own], x[own])
        for name, x, own in zip(_components(records[0]), r[first].T, valid.T, strict=True)
    }
    return Motion(ts, series, z, pulls, J)


def _own(ts: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Residuals of a component, and the median time between them; infinite for fewer than two."""
    return x, float(np.median(np.diff(ts))) if len(ts) > 1 else np.inf


def _valid(record: Experiment) -> np.ndarray:
    """Whether readings count, shape `(n, c)`, by components of all sensors."""
    n = len(record.ts)
    return np.concatenate(
        [record.counts(name).reshape(n, -1) for name in sorted(record.measurements)], axis=1
    )


def _components(record: Experiment) -> list[str]:
    return [
        f"{name}{list(index)}"
        for name, x in sorted(record.measurements.items())
        for index in np.ndindex(x.shape[1:])
    ]


# 95 % of the autocorrelations of white noise are within so many standard deviations.
BAND = 1.96
# Least number of consecutive lags within the band, after which longer lags count as noise.
FEWEST_LAGS = 5
# Windows for accurate intervals are longer than those for the least mean square error of a
# variance (Sun, Phillips & Jin 2008). Measurements with twice the length showed little loss.
LONGER = 2.0
# B is reduced if a number would have fewer degrees of freedom.
FEWEST_DEGREES = 4.0
# Least share of the noise that is assumed to be left in the residuals.
LEAST_LEFT = 0.1


class Robust(NamedTuple):
    """Variances of the reported numbers and their degrees of freedom, shape `(k,)`; B [s]."""

    variances: np.ndarray
    degrees: np.ndarray
    bandwidth: float


def robust_of(
    experiments: Sequence[Experiment],
    r: Sequence[Float[np.ndarray, "_n _c"]],
    J: Sequence[Float[np.ndarray, "_n _c u"]],
    bends: Sequence[Float[np.ndarray, "_n _c"]],
    others: Float[np.ndarray, "g u"],
    directions: Float[np.ndarray, "u s"],
    D: Float[np.ndarray, "k u"],
) -> Robust:
    """Variances of the numbers whose derivatives by the unknowns are `D`.

    **Arguments:** records; `r`, `J`: weighted residuals of each record and their Jacobian, by
    components of its sensors; `bends`: see `AbstractLoss.bends`, one for squares; `others`: the
    Jacobian of other records, defects and priors, whose variance is one; `directions`: directions
    of the unknowns that the data determine.
    """
    J = [x @ directions for x in J]
    G, E = others @ directions, D @ directions
    gram = G.T @ G + sum(_product(x, np.ones(x.shape[:2])) for x in J)
    # With other losses than squares, JᵀJ is not the Hessian of the cost.
    hessian = G.T @ G + sum(_product(x, w) for x, w in zip(J, bends, strict=True))
    influence = np.linalg.solve(hessian, E.T)
    orthonormal = np.linalg.inv(np.linalg.cholesky(gram)).T
    readings = [Readings(a, x @ influence, x @ orthonormal) for a, x in zip(r, J, strict=True)]
    if not experiments:
        variances = np.sum((G @ influence) ** 2, axis=0)
        return Robust(variances, np.full(len(D), np.inf), 0.0)
    by_readings = robust_variances(join_records(experiments, readings))
    variances = by_readings.variances + np.sum((G @ influence) ** 2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = by_readings.degrees * (variances / by_readings.variances) ** 2
    return Robust(variances, np.where(np.isnan(degrees), np.inf, degrees), by_readings.bandwidth)


def _product(
    J: Float[np.ndarray, "n c s"], weights: Float[np.ndarray, "n c"]
) -> Float[np.ndarray, "s s"]:
    flat = J.reshape(weights.size, J.shape[2])
    return (weights.reshape(-1, 1) * flat).T @ flat


def robust_variances(motions: Sequence[Motion]) -> Robust:
    """Variances of reported numbers from the readings, corrected for small samples.

    Derivatives by the unknowns are in units in which the columns of all motions together are
    orthonormal. A fit reduces residuals below the noise: the sum is divided by the share of white
    noise that would be left. Degrees of freedom are those of a χ² variable of the same mean and
    variance, less one, after Bell & McCaffrey (2002). For the mean of m whole records of one length
    they give the usual factor m / (m - 1) and m - 1 degrees; for the mean of one long record,
    intervals are those of Kiefer & Vogelsang (2005) to a few per cent.
    """
    step = float(np.median(np.concatenate([np.diff(m.ts) for m in motions])))
    B = max(_bandwidth(motions, step), step)
    degrees = _degrees(motions, B)
    while step < B and np.min(degrees) < FEWEST_DEGREES:
        B = max(0.8 * B, step)
        degrees = _degrees(motions, B)
    total, white, lost = (
        np.sum([f(m) for m in motions], axis=0)
        for f in (
            lambda m: _windowed(m.ts, m.z, B),
            lambda m: np.sum(m.pulls**2, axis=(0, 1)),
            lambda m: _lost(m, B),
        )
    )
    # The variance of a number without influence is zero with any correction.
    left = np.maximum(1.0 - lost / np.where(white > 0, white, 1.0), LEAST_LEFT)
    return Robust(total / left, np.maximum(degrees, 1.0), B)


def _windowed(
    ts: Float[np.ndarray, "n"], z: Float[np.ndarray, "n k"], B: float
) -> Float[np.ndarray, "k"]:
    """Σ z(s) z(t) max(0, 1 - abs(s - t)/B), from the sums inside a window at all its places."""
    places = np.sort(np.concatenate([ts - B, ts]))  # Places at which a reading enters or leaves.
    middle, share = 0.5 * (places[1:] + places[:-1]), np.diff(places) / B
    before = np.concatenate([np.zeros((1, z.shape[1])), np.cumsum(z, axis=0)])
    inside = before[np.searchsorted(ts, middle + B)] - before[np.searchsorted(ts, middle)]
    return share @ inside**2


def _lost(motion: Motion, B: float) -> Float[np.ndarray, "k"]:
    """Part of `_windowed` that a fit removes from white noise of variance one."""
    lost = []
    for pulls in np.moveaxis(motion.pulls, 2, 0):
        along = np.einsum("nc,ncu->nu", pulls, motion.J)
        lost.append(np.sum(_windowed(motion.ts, along, B)))
    return np.array(lost)


def _degrees(motions: Sequence[Motion], B: float) -> Float[np.ndarray, "k"]:
    """2 (mean)² / variance of `_windowed` for white noise, less one."""
    mean, squares = np.zeros(()), np.zeros(())
    for m in motions:
        a = np.sum(m.pulls**2, axis=1)
        # Σ a(s) a(t) (1 - (t - s)/B)² over s < t, by sums of powers of s/B: no loop over pairs.
        x = np.expand_dims((m.ts - m.ts[0]) / B, 1)
        first = np.searchsorted(m.ts, m.ts - B, side="right")
        before = [np.concatenate([0.0 * a[:1], np.cumsum(a * x**p, axis=0)]) for p in range(3)]
        a0, a1, a2 = (y[:-1] - y[first] for y in before)
        earlier = (1.0 - x) ** 2 * a0 + 2.0 * (1.0 - x) * a1 + a2
        mean = mean + np.sum(a, axis=0)
        squares = squares + np.sum(a * (a + 2.0 * earlier), axis=0)
    return np.where(mean > 0, mean**2 / np.where(mean > 0, squares, 1.0) - 1.0, np.inf)


def _bandwidth(motions: Sequence[Motion], step: float) -> float:
    """B for the component with the longest correlation, used for all components.

    For a correlation exp(-h/τ), the mean square error of the variance is least with
    (3/2 τ² n)^(1/3) samples (Andrews 1991). Every component counts its own samples.
    """
    series: dict[str, list[tuple[np.ndarray, float]]] = {}
    for m in motions:
        for name, (x, own) in m.series.items():
            if len(x) > 1:
                series.setdefault(name, []).append((x, own))
    widths = [step]
    for parts in series.values():
        residuals, steps = zip(*parts, strict=True)
        n, tau = sum(map(len, residuals)), correlation_lags(residuals)
        widths.append(float(np.median(steps)) * LONGER * (1.5 * tau**2 * n) ** (1 / 3))
    return max(widths)


def correlation_lags(series: Sequence[np.ndarray]) -> float:
    """Correlation length of residuals of one sensor, in samples: Σ h ρ(h) / (1/2 + Σ ρ(h)).

    ρ are absolute autocorrelations, up to the lag after which they are within Bartlett's band of
    white noise for as many lags again. 2ρ / (1 - ρ²) for an autoregression of order one.
    """
    rho = np.abs(autocorrelation(series, max(map(len, series)) // 2))[1:]
    squares = np.concatenate([[0.0], np.cumsum(rho**2)[:-1]])
    within = rho <= BAND * np.sqrt((1.0 + 2.0 * squares) / sum(map(len, series)))
    outside = np.concatenate([[0], np.cumsum(~within)])
    # As many lags again, since autocorrelations that oscillate about zero pass through the band.
    ends = np.minimum(2 * np.arange(len(outside)) + FEWEST_LAGS, len(rho))
    m = int(np.argmax(outside[ends] == outside))
    h = np.arange(1, m + 1)
    return float(np.sum(h * rho[:m]) / (0.5 + np.sum(rho[:m])))
