"""The instants of a record whose sensors have clocks of their own."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import DataError
from ..signals.time_series import TimeSeries

# Instants of different sensors are equal if they differ by at most this part of the shortest
# sample interval: stamps of one event differ by rounding.
EQUAL = 1e-6
# Intervals without a reading of any sensor that are longer than so many sample intervals of the
# fastest sensor are divided, since each interval has the same number of integration steps.
LONGEST = 2.0
# Largest number of instants after that, in units of the number of readings.
MOST = 50


class Clocked(NamedTuple):
    """Readings of several sensors at common instants.

    - `ts`: instants, shape `(n,)` [s].
    - `readings`, `valid`: by sensor, `(n,)` or `(n, k)`; NaN and False where there is none.
    """

    ts: np.ndarray
    readings: dict[str, np.ndarray]
    valid: dict[str, np.ndarray]


def on_common_instants(series: Mapping[str, TimeSeries], name: str) -> Clocked:
    """Every valid sample at its own instant, among the instants of all sensors.

    **Raises** `DataError` if all samples together have fewer than two instants, or if there is a
    gap that is too long to be integrated.
    """
    own = {key: np.flatnonzero(_any_valid(x)) for key, x in series.items()}
    times = [x.ts[own[key]] for key, x in series.items()]
    steps = [np.median(np.diff(ts)) for ts in times if len(ts) > 1]
    instants = np.unique(np.concatenate(times))
    if len(instants) < 2 or not steps:
        raise DataError(f"{name}: there are fewer than two valid samples of any sensor")
    step = float(min(steps))
    starts = np.concatenate([[True], np.diff(instants) > EQUAL * step])
    instants = instants[starts]
    ts = _divided(instants, step, name)
    readings, valid = {}, {}
    for (key, x), at in zip(series.items(), times, strict=True):
        # The instant of a sample is the latest one that is not after it.
        rows = np.searchsorted(ts, at, side="right") - 1
        shape = (len(ts), *x.values.shape[1:])
        readings[key], valid[key] = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        if len(np.unique(rows)) < len(rows):
            raise DataError(
                f"{name}: two samples of {key!r} are less than {EQUAL * step:.1g} s apart"
            )
        readings[key][rows], valid[key][rows] = x.values[own[key]], x.valid[own[key]]
        readings[key][~valid[key]] = np.nan
    return Clocked(ts, readings, valid)


def _any_valid(x: TimeSeries) -> np.ndarray:
    return np.any(x.valid.reshape(len(x.ts), -1), axis=1)


def _divided(instants: np.ndarray, step: float, name: str) -> np.ndarray:
    """The instants, and equally spaced ones between those that are far apart."""
    gaps = np.diff(instants)
    parts = np.where(gaps > LONGEST * step, np.ceil(gaps / step), 1.0)
    if np.sum(parts) > MOST * len(instants):
        row = int(np.argmax(gaps))
        raise DataError(
            f"{name}: there is a gap of {gaps[row]:.3g} s after {instants[row]:.6g} s, where "
            f"samples are {step:.3g} s apart; make two records, by `TimeSeries.between`, or by "
            "start= and stop= of `from_log`"
        )
    filled: Sequence[np.ndarray] = [
        t + gap * np.arange(n) / n for t, gap, n in zip(instants[:-1], gaps, parts, strict=True)
    ]
    return np.concatenate([*filled, instants[-1:]])
