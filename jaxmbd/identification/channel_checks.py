"""Checks of single channels: clocks, saturation, and channels that never change."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..errors import DataError
from ..signals.time_series import TimeSeries

# A run of so many equal samples at the end of the range is a saturation,
RUN = 3
# if the channel moves on to it by more than this share of its largest step, and by more than so
# many units of its resolution: at a turning point steps are small.
STEEP, RESOLUTION = 0.15, 3.0


@dataclass(frozen=True)
class Check:
    """A number compared with its threshold.

    - `kind`: such as `"delay"`; `record`, `channel`: where; `number`, `unit`, `threshold`.
    - `refuses`: whether the data are refused if the check fails.
    - `remedy`: what to do if it fails.
    """

    kind: str
    record: str
    channel: str
    number: float
    unit: str
    threshold: float
    refuses: bool
    remedy: str

    @property
    def passed(self) -> bool:
        """Whether the number is within the threshold. NaN is outside."""
        return bool(self.number <= self.threshold)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of `check_data`.

    - `gap`: longest interval, in median intervals.
    - `jitter`: median deviation of intervals, in median intervals.
    - `saturated`: samples in runs at an end of the range.
    - `delay`: of a channel [s]. Default: a fifth of its sample interval.
    - `factor`: deviation from one of the factor of a channel.
    - `mismatch`: share of a channel that does not follow from others.
    - `condition`: of the Jacobian of the readings with columns of length one.
    - `error`: standard error of a parameter, in units of its value.

    **Raises** `DataError` for numbers that are not positive.
    """

    gap: float = 10.0
    jitter: float = 0.25
    saturated: float = 0.0
    delay: float | None = None
    factor: float = 0.05
    mismatch: float = 0.1
    condition: float = 1e3
    error: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "delay":
                continue
            if not isinstance(value, int | float | np.number) or not value >= 0:
                raise DataError(f"Thresholds: {field.name} must be positive, got {value!r:.60}")


def of_channel(
    record: str, name: str, series: TimeSeries, is_input: bool, limits: Thresholds
) -> list[Check]:
    """Checks of the clock and of the range of a channel."""
    ts = series.ts
    steps = np.diff(ts) if len(ts) > 1 else np.zeros(1)
    step = float(np.median(steps))
    longest = int(np.argmax(steps))
    cure = (
        "the input is a straight line there: cut the record, by start= and stop= of from_log"
        if is_input
        else "the motion runs on without readings; make two records if they are to be compared"
    )
    where = f"the longest interval, {steps[longest]:.3g} s, begins at {ts[longest]:.4g} s; {cure}"
    gap = steps[longest] / step if step > 0 else 1.0
    regular = steps[steps <= limits.gap * step]
    jitter = float(np.median(np.abs(regular - step))) / step if step > 0 else 0.0
    share = 0 if is_input else int(saturated(series).sum())
    return [
        Check("gap", record, name, float(gap), "intervals", limits.gap, is_input, where),
        Check(
            "clock",
            record,
            name,
            jitter,
            "intervals",
            limits.jitter,
            False,
            "the clock is irregular; check that stamps are those of the sensor (header.stamp) and "
            "not those of the recorder",
        ),
        Check(
            "saturation",
            record,
            name,
            float(share),
            "samples",
            limits.saturated,
            True,
            f"the channel rests at an end of its range, {_range(series)}; declare limits= of the "
            "channel, so that these samples do not count, or repeat the motion with less amplitude",
        ),
    ]


def _range(series: TimeSeries) -> str:
    values = series.values[series.valid]
    return f"{values.min():.4g} to {values.max():.4g} {series.unit}".strip()


def saturated(series: TimeSeries) -> np.ndarray:
    """True for samples in runs of equal values at an end of the range of a component."""
    found = np.zeros(len(series), dtype=bool)
    flat, valid = series.values.reshape(len(series), -1), series.valid.reshape(len(series), -1)
    for column, counts in zip(flat.T, valid.T, strict=True):
        rows = np.flatnonzero(counts)
        x = column[rows]
        steps = np.abs(np.diff(x))
        if len(x) < 2 * RUN or not steps.any():
            continue
        steep = max(STEEP * steps.max(), RESOLUTION * steps[steps > 0].min())
        for end in (x.min(), x.max()):
            for first, last in _runs(x == end):
                # Into the run the channel may move by less than its last whole step.
                before = steps[max(first - 2, 0) : first].max(initial=0.0)
                after = steps[last : last + 2].max(initial=0.0)
                if last - first + 1 >= RUN and max(before, after) > steep:
                    found[rows[first : last + 1]] = True
    return found


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """First and last row of each run of True."""
    edges = np.diff(np.concatenate([[0], mask.astype(int), [0]]))
    ends = zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1, strict=True)
    return [(int(a), int(b)) for a, b in ends]


def of_dead_channel(name: str, series: Sequence[TimeSeries], is_input: bool) -> Check:
    """Whether a component of a channel is constant in all records."""
    flat = np.concatenate([x.values.reshape(len(x), -1) for x in series])
    valid = np.concatenate([x.valid.reshape(len(x), -1) for x in series])
    ranges = [np.ptp(x[v]) if v.any() else 0.0 for x, v in zip(flat.T, valid.T, strict=True)]
    dead = [k for k, size in enumerate(ranges) if size == 0]
    which = f" (component {dead[0]})" if dead and len(ranges) > 1 else ""
    return Check(
        "dead",
        "all",
        name,
        float(len(dead)),
        "components",
        0.0,
        not is_input,
        f"the channel never changes{which}: check its wiring and its place in the log, or omit it",
    )
