"""Delays between channels, by least squares over shifts of a smooth motion.

A channel y and the reading x of a smooth motion are compared by y(t) = g x(t - d) + c. For each
delay d, g and c follow by linear least squares (variable projection, Golub & Pereyra 1973). The
motion is a cubic smoothing spline through measured positions, whose smoothing follows from
generalized cross-validation (Wahba 1990). It shifts no phase.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..signals.time_series import TimeSeries

# Delays up to so many sample intervals of the slower channel are tried, and at most this time [s].
MOST_STEPS, MOST_TIME = 25, 0.3
# Least number of samples for a comparison.
FEWEST = 30
# Intervals of more than so many median intervals are gaps, within which there is no motion.
GAP = 4.0
DEGREE = 5
# Numbers of samples from knot to knot that are tried.
SPACINGS = (2, 3, 4, 6, 8, 11, 16, 22, 32)


class Smooth(NamedTuple):
    """A smooth curve through the samples of a channel with one column.

    - `curve`: the spline over (t - start) / step; `start` and `step` [s].
    - `ts`: times of the valid samples [s].
    """

    curve: Callable[..., np.ndarray]
    start: float
    step: float
    ts: Float[np.ndarray, "n"]

    def __call__(self, t: Float[np.ndarray, "m"], derivative: int = 0) -> Float[np.ndarray, "m"]:
        x = self.curve((t - self.start) / self.step, nu=derivative)
        return np.asarray(x) / self.step**derivative

    def covers(self, t: Float[np.ndarray, "m"], margin: float) -> Bool[np.ndarray, "m"]:
        """Whether there are samples about the times, on both sides and without a gap."""
        ends = (t >= self.ts[0] + margin) & (t <= self.ts[-1] - margin)
        starts = np.flatnonzero(np.diff(self.ts) > GAP * self.step)
        for k in starts:
            ends &= (t < self.ts[k] - margin) | (t > self.ts[k + 1] + margin)
        return ends


class Alignment(NamedTuple):
    """The comparison of a channel with a motion.

    - `delay`, `deviation`: by which the channel is late, and its standard deviation [s].
    - `timescale`: ratio of the channel and its rate, root mean squares [s]: a delay of one per cent
      of it changes the channel by one per cent.
    - `factors`: of the columns of the motion.
    - `share`: root mean square of what they do not explain, as a part of that of the channel.
    - `ts`, `predicted`: times [s] of the comparison, and what they explain.
    """

    delay: float
    deviation: float
    timescale: float
    factors: Float[np.ndarray, "p"]
    share: float
    ts: Float[np.ndarray, "n"]
    predicted: Float[np.ndarray, "n"]


def components(series: TimeSeries) -> dict[int, TimeSeries]:
    """The components of a channel that have valid samples, each with one column."""
    if series.values.ndim == 1:
        return {0: series}
    columns = enumerate(zip(series.values.T, series.valid.T, strict=True))
    return {
        k: TimeSeries(series.ts, x, valid, period=series.period)
        for k, (x, valid) in columns
        if valid.any()
    }


def smooth(series: TimeSeries) -> Smooth | None:
    """A smooth curve near a channel with one column; None for few or constant samples."""
    if series.values.ndim != 1 or series.valid.sum() < FEWEST:
        return None
    series = series.unwrapped()
    ts, x = series.ts[series.valid], series.values[series.valid]
    if np.ptp(x) == 0:
        return None
    step = float(np.median(np.diff(ts)))
    middle, size = np.mean(x), np.std(x)
    curve = _spline((ts - ts[0]) / step, (x - middle) / size)
    return Smooth(lambda s, nu: middle * (nu == 0) + size * curve(s, nu=nu), ts[0], step, ts)


def _spline(x: np.ndarray, y: np.ndarray) -> Callable[..., np.ndarray]:
    """The spline of least squares with the least generalized cross-validation."""
    from scipy.interpolate import make_lsq_spline  # Takes a second to load.

    best, least = None, np.inf
    for spacing in SPACINGS:
        # Knots at samples: there are samples between any two of them, also beside a gap.
        inner = x[DEGREE + 1 : -DEGREE - 1 : spacing]
        if len(inner) == 0:
            break
        knots = np.concatenate([np.repeat(x[0], DEGREE + 1), inner, np.repeat(x[-1], DEGREE + 1)])
        curve = make_lsq_spline(x, y, knots, k=DEGREE)
        n, p = len(x), len(knots) - DEGREE - 1
        score = n * np.sum((y - curve(x)) ** 2) / (n - p) ** 2
        if score < least:
            best, least = curve, score
    assert best is not None  # There are enough samples for one knot.
    return best


def align(
    series: TimeSeries,
    columns: Callable[[Float[np.ndarray, "n"]], Float[np.ndarray, "n p"]],
    covers: Callable[[Float[np.ndarray, "n"], float], Bool[np.ndarray, "n"]],
    step: float,
) -> Alignment | None:
    """The delay of a channel with respect to columns of readings as functions of time.

    `covers` as of `Smooth`; `step`: sample interval of the motion [s]. None for too few samples,
    or a channel that does not move.
    """
    own = smooth(series)
    if own is None:
        return None
    step = max(step, own.step)
    most = min(MOST_STEPS * step, MOST_TIME)
    rows = series.valid.copy()
    rows &= covers(series.ts, most + 3 * step)
    if rows.sum() < FEWEST:
        return None
    ts, y = series.ts[rows], series.unwrapped().values[rows]

    def fit(delay: float, target: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Mean square of what is not explained, factors, and what is explained."""
        X = np.column_stack([columns(ts - delay), np.ones(len(ts))])
        size = np.linalg.norm(X, axis=0)
        factors = np.linalg.lstsq(X / np.where(size > 0, size, 1.0), target, rcond=1e-10)[0]
        predicted = X / np.where(size > 0, size, 1.0) @ factors
        return (
            float(np.mean((target - predicted) ** 2)),
            factors / np.maximum(size, 1e-300),
            predicted,
        )

    delay, curvature = _minimum(lambda d: fit(d, y)[0], most, step)
    error, factors, predicted = fit(delay, y)
    # Half the second derivative of the sum of squares is that of the likelihood times σ².
    deviation = np.sqrt(2 * error / (curvature * len(ts))) if curvature > 0 else np.inf
    # Noise of the channel itself is no difference from the motion.
    without_noise = own(ts)
    share = np.sqrt(np.mean((without_noise - predicted) ** 2)) / np.std(without_noise)
    timescale = float(np.std(without_noise) / np.sqrt(np.mean(own(ts, 1) ** 2)))
    return Alignment(delay, float(deviation), timescale, factors[:-1], float(share), ts, predicted)


def _minimum(cost: Callable[[float], float], most: float, step: float) -> tuple[float, float]:
    """The delay of least cost, and the second derivative of the cost there."""
    from scipy.optimize import minimize_scalar

    grid = np.arange(-np.ceil(2 * most / step), np.ceil(2 * most / step) + 1) * 0.5 * step
    costs = [cost(d) for d in grid]
    k = int(np.argmin(costs))
    ends = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    found = minimize_scalar(cost, bounds=ends, method="bounded", options={"xatol": 1e-6 * step})
    delay, h = float(found.x), 0.25 * step
    return delay, (cost(delay + h) - 2 * cost(delay) + cost(delay - h)) / h**2
