"""Channels of a log: where a signal is in the file, and its conversion to SI units."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..signals.time_series import TimeSeries

# Units of files: factor to the SI unit, and its name.
UNITS: dict[str, tuple[float, str]] = {
    **{x: (1.0, x) for x in ("", "1", "rad", "m", "s", "kg", "N", "Nm", "N m", "A", "V", "Pa")},
    **{x: (1.0, x) for x in ("rad/s", "rad/s^2", "m/s", "m/s^2", "Hz", "K", "W", "J", "N/m")},
    "deg": (np.pi / 180, "rad"),
    "°": (np.pi / 180, "rad"),
    "deg/s": (np.pi / 180, "rad/s"),
    "°/s": (np.pi / 180, "rad/s"),
    "deg/s^2": (np.pi / 180, "rad/s^2"),
    "rev": (2 * np.pi, "rad"),
    "rpm": (2 * np.pi / 60, "rad/s"),
    "mrad": (1e-3, "rad"),
    "km": (1e3, "m"),
    "cm": (1e-2, "m"),
    "mm": (1e-3, "m"),
    "um": (1e-6, "m"),
    "µm": (1e-6, "m"),
    "mm/s": (1e-3, "m/s"),
    "km/h": (1 / 3.6, "m/s"),
    "g0": (9.80665, "m/s^2"),
    "mm/s^2": (1e-3, "m/s^2"),
    "g": (1e-3, "kg"),
    "kN": (1e3, "N"),
    "mN": (1e-3, "N"),
    "kNm": (1e3, "N m"),
    "mNm": (1e-3, "N m"),
    "Nmm": (1e-3, "N m"),
    "mA": (1e-3, "A"),
    "mV": (1e-3, "V"),
    "bar": (1e5, "Pa"),
    "min": (60.0, "s"),
    "ms": (1e-3, "s"),
    "us": (1e-6, "s"),
    "µs": (1e-6, "s"),
    "ns": (1e-9, "s"),
}


@dataclass(frozen=True)
class Channel:
    """One channel of a log, for `read_log`.

    **Arguments:**

    - `path`: a column of a table; a channel of MDF4, `"<group>/<name>"` if groups have equal
      names; or a field of a topic, such as `"/joint_states.position[elbow]"`. The name in brackets
      is looked up in the list `name` of each message, whose order may change. Several paths give
      the columns of one signal.
    - `unit`: of the numbers in the file, such as `"deg"` or `"rpm"`; results are in SI units.
      Default: the unit that an MDF4 file states, or else SI units.
    - `gain`, `offset`: the result is `gain` times the number in SI units, plus `offset`: for
      example a torque from the current of a drive.
    - `period`, `limits`, `missing`: as for `TimeSeries`, in the numbers of the file: period of an
      encoder, range `(lower, upper)` of the sensor, and the number that a logger writes for a
      missing sample.
    - `time`: the clock of this channel, in place of that of `read_log`.

    For example:

        torque = mbd.io.Channel("i1", unit="mA", gain=0.12, limits=(-3000, 3000))
    """

    path: str | Sequence[str]
    unit: str | None = None
    gain: float = 1.0
    offset: float = 0.0
    period: float | None = None
    limits: tuple[float, float] | None = None
    missing: float | None = None
    time: "str | Channel | None" = None

    def __post_init__(self) -> None:
        is_list = isinstance(self.path, str | list | tuple)
        paths = self.paths if is_list else ()
        if not paths or not all(isinstance(x, str) and x for x in paths):
            raise DataError(f"Channel: path must be a name or several, got {self.path!r:.80}")
        if self.unit is not None:
            factor_of(self.unit, f"Channel {self.called}")
        for name in ("gain", "offset"):
            value = getattr(self, name)
            if not isinstance(value, int | float | np.number) or not np.isfinite(value):
                raise DataError(f"Channel {self.called}: {name} must be a number, got {value!r}")
        if self.gain == 0:
            raise DataError(f"Channel {self.called}: gain must not be zero")

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, one for each column."""
        return (self.path,) if isinstance(self.path, str) else tuple(self.path)

    @property
    def called(self) -> str:
        """The paths in messages."""
        return ", ".join(map(repr, self.paths))


class Raw(NamedTuple):
    """Samples as a file holds them.

    - `stamps`: integer nanoseconds of an absolute clock, or seconds.
    - `values`: shape `(n,)` or `(n, k)`; `unit`: that the file states, or None.
    - `clock`: the clock in words.
    """

    stamps: np.ndarray
    values: np.ndarray
    unit: str | None
    clock: str


def as_channel(value: Any, name: str) -> Channel:
    """A channel from a path, several paths, or a channel."""
    if isinstance(value, Channel):
        return value
    if isinstance(value, str | list | tuple):
        return Channel(value if isinstance(value, str) else tuple(value))
    raise DataError(f"{name} must be a Channel, a path or a list of paths, got {value!r:.60}")


def factor_of(unit: str, name: str) -> tuple[float, str]:
    """Factor to SI units, and the SI unit. **Raises** `DataError` for unknown units."""
    if not isinstance(unit, str) or unit not in UNITS:
        known = ", ".join(x for x in UNITS if x)
        raise DataError(
            f"{name}: unit {unit!r} is unknown; pass unit='' and gain=, or one of {known}"
        )
    return UNITS[unit]


def to_series(raw: Raw, ts: np.ndarray, channel: Channel, name: str) -> TimeSeries:
    """The samples in SI units. Numbers do not change if factor and gain are 1 and offset is 0."""
    unit = channel.unit if channel.unit is not None else raw.unit or ""
    factor, si = factor_of(unit, name)
    scale = channel.gain * factor

    def convert(x: Any) -> Any:
        y = x if scale == 1.0 else scale * x
        return y if channel.offset == 0.0 else y + channel.offset

    values = np.asarray(raw.values)
    if values.dtype.kind not in "fiub":
        raise DataError(f"{name}: the samples are not numbers: {values.ravel()[:1]}")
    valid = None if channel.missing is None else values != channel.missing
    limits = channel.limits
    if limits is not None:
        ends = [convert(x) for x in limits]
        limits = (min(ends), max(ends))
    period = None if channel.period is None else abs(scale) * channel.period
    converted = convert(values.astype(float))
    si = si if channel.gain == 1.0 else ""  # A gain changes the quantity.
    return TimeSeries(ts, converted, valid, period=period, limits=limits, unit=si, name=name)


def replaced_time(channel: Channel, time: Any) -> Channel:
    """The channel with a clock of its own, or else with `time`."""
    if channel.time is not None:
        return channel
    return Channel(**{f.name: getattr(channel, f.name) for f in fields(channel)} | {"time": time})
