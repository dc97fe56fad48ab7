"""A measured signal with its own clock, and with samples that may be missing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..errors import DataError
from ..model.values import is_positive
from .kinds import Samples


@dataclass(frozen=True, eq=False, init=False, repr=False)
class TimeSeries:
    """Readings of one sensor or drive at its own instants.

    **Arguments:**

    - `ts`: increasing times, shape `(n,)` [s]; gaps and jitter are allowed.
    - `values`: readings, shape `(n,)` or `(n, k)`. Samples that are not finite are missing.
    - `valid`: False for samples that do not count, shape `(n,)` or that of the values. Default: all
      samples count.
    - `period`: the readings repeat after so much, such as 2π for an encoder of one turn. Default:
      they do not.
    - `limits`: range `(lower, upper)` of the sensor; samples at its ends or beyond are saturated
      and do not count.
    - `unit`: for plots and messages.
    - `name`: for messages.

    **Raises** `DataError` for times that do not increase or are not finite, other shapes, and if
    no sample is valid.

    For example:

        series = mbd.TimeSeries(ts, angles, valid=angles < 5.0, period=2 * np.pi, unit="rad")
    """

    ts: Float[np.ndarray, "n"]
    values: Float[np.ndarray, "n *k"]
    valid: Bool[np.ndarray, "n *k"]
    period: float | None
    limits: tuple[float, float] | None
    unit: str

    def __init__(
        self,
        ts: Any,
        values: Any,
        valid: Any = None,
        *,
        period: float | None = None,
        limits: tuple[float, float] | None = None,
        unit: str = "",
        name: str = "TimeSeries",
    ):
        times, readings = _floats(ts, f"{name}: ts"), _floats(values, f"{name}: values")
        if times.ndim != 1 or readings.ndim not in (1, 2) or len(readings) != len(times):
            raise DataError(
                f"{name}: ts of shape (n,) and values of shape (n,) or (n, k) are needed, got "
                f"{times.shape} and {readings.shape}"
            )
        check_clock(times, name)
        counts = np.isfinite(readings)
        if valid is not None:
            counts = counts & _mask(valid, readings.shape, name)
        if limits is not None:
            lower, upper = _limits(limits, name)
            with np.errstate(invalid="ignore"):
                counts = counts & (readings > lower) & (readings < upper)
            limits = lower, upper
        if not counts.any():
            raise DataError(f"{name}: none of the {len(times)} samples is valid")
        if period is not None and not is_positive(period):
            raise DataError(f"{name}: period must be a positive number, got {period!r}")
        if not isinstance(unit, str):
            raise DataError(f"{name}: unit must be a text, got {unit!r}")
        period = None if period is None else float(period)
        for field, value in zip(
            ("ts", "values", "valid", "period", "limits", "unit"),
            (times, readings, counts, period, limits, unit),
            strict=True,
        ):
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.ts)

    def __repr__(self) -> str:
        n, missing = len(self), int(np.sum(~self.whole))
        return (
            f"TimeSeries({n} samples of {self.values.shape[1:]} [{self.unit}], {self.ts[0]:g} s to "
            f"{self.ts[-1]:g} s, {missing} missing)"
        )

    @property
    def whole(self) -> Bool[np.ndarray, "n"]:
        """True for samples all of whose components are valid."""
        return np.all(self.valid.reshape(len(self.ts), -1), axis=1)

    @property
    def step(self) -> float:
        """Median time from sample to sample [s]; zero for one sample."""
        return float(np.median(np.diff(self.ts))) if len(self.ts) > 1 else 0.0

    def between(self, start: float, stop: float) -> "TimeSeries":
        """The samples at times in [start, stop].

        **Raises** `DataError` if none of them is valid.
        """
        rows = (self.ts >= start) & (self.ts <= stop)
        return TimeSeries(
            self.ts[rows],
            self.values[rows],
            self.valid[rows],
            period=self.period,
            limits=self.limits,
            unit=self.unit,
            name=f"TimeSeries from {start:g} s to {stop:g} s",
        )

    def unwrapped(self) -> "TimeSeries":
        """Without jumps by the period: each valid sample is the equivalent nearest to the last."""
        if self.period is None:
            return self
        flat = self.values.reshape(len(self.ts), -1).copy()
        for column, valid in zip(flat.T, self.valid.reshape(len(self.ts), -1).T, strict=True):
            column[valid] = np.unwrap(column[valid], period=self.period)
        values = flat.reshape(self.values.shape)
        return TimeSeries(self.ts, values, self.valid, unit=self.unit)

    def at(self, t: Any) -> Float[np.ndarray, "..."]:
        """Linear interpolation between valid samples, in increments of the period.

        Constant before the first and after the last valid sample. `t`: one time or several [s].
        """
        series = self.unwrapped()
        times, n = np.asarray(t, dtype=float), len(self.ts)
        flat, valid = series.values.reshape(n, -1), series.valid.reshape(n, -1)
        columns = [
            np.interp(times, self.ts[v], x[v]) if v.any() else np.full(times.shape, np.nan)
            for x, v in zip(flat.T, valid.T, strict=True)
        ]
        return np.stack(columns, axis=-1).reshape(times.shape + self.values.shape[1:])

    def rate_at(self, t: float, span: float) -> Float[np.ndarray, "*k"]:
        """Slope of a parabola through the valid samples within `span` [s] of t, at t.

        A straight line if there are two such samples, and zero if there are fewer.
        """
        series, n = self.unwrapped(), len(self.ts)
        flat, valid = series.values.reshape(n, -1), series.valid.reshape(n, -1)
        slopes = np.zeros(flat.shape[1])
        for k, (x, v) in enumerate(zip(flat.T, valid.T, strict=True)):
            rows = v & (np.abs(self.ts - t) <= span)
            degree = min(2, int(rows.sum()) - 1)
            if degree >= 1:
                slopes[k] = np.polynomial.polynomial.polyfit(self.ts[rows] - t, x[rows], degree)[1]
        return slopes.reshape(self.values.shape[1:])

    def signal(self) -> Samples:
        """The signal as an input of a model: linear interpolation between whole samples.

        **Raises** `DataError` for fewer than two of them.
        """
        rows, series = self.whole, self.unwrapped()
        if rows.sum() < 2:
            raise DataError(f"TimeSeries: an input needs two valid samples, there are {rows.sum()}")
        return Samples(self.ts[rows], series.values[rows])


def check_clock(ts: Float[np.ndarray, "n"], name: str) -> None:
    """**Raises** `DataError`, with the row, for times that are not finite or do not increase."""
    bad = np.flatnonzero(~np.isfinite(ts))
    if bad.size:
        raise DataError(f"{name}: the time in row {bad[0]} is not finite, and {bad.size} in all")
    steps = np.diff(ts)
    rows = np.flatnonzero(steps <= 0)
    if rows.size:
        k = int(rows[0])
        kind = "occurs twice" if steps[k] == 0 else f"follows {ts[k]:.9g} s"
        raise DataError(
            f"{name}: times must increase; {ts[k + 1]:.9g} s in row {k + 1} {kind}, and "
            f"{rows.size} rows in all are repeated or earlier than the row before"
        )


def _floats(value: Any, name: str) -> np.ndarray:
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not numeric") from error
    return array.astype(float)


def _mask(valid: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    try:
        mask = np.asarray(valid)
    except ValueError as error:
        raise DataError(f"{name}: valid is ragged") from error
    if mask.dtype != bool or mask.shape not in (shape, shape[:1]):
        raise DataError(
            f"{name}: valid must be an array of bool of shape {shape} or {shape[:1]}, got "
            f"{mask.dtype} of shape {mask.shape}"
        )
    return mask.reshape(mask.shape + (1,) * (len(shape) - mask.ndim))


def _limits(limits: Any, name: str) -> tuple[float, float]:
    try:
        lower, upper = map(float, limits)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: limits must be (lower, upper), got {limits!r:.60}") from error
    if not lower < upper:
        raise DataError(f"{name}: limits must be (lower, upper) with lower < upper, got {limits}")
    return lower, upper
