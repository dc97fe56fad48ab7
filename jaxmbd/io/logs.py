"""Logs of robots and rigs: tables, MCAP, ROS bags and MDF4, as signals with their own clocks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from ..model.values import as_mapping, described
from ..signals.time_series import TimeSeries, check_clock
from .channels import Channel, Raw, as_channel, replaced_time, to_series

# Times in seconds after this one are those of an absolute clock [s]: March 1973 as a Unix time.
ABSOLUTE = 1e8
TABLES = (".csv", ".txt", ".tsv", ".parquet")
DUPLICATES = ("error", "first", "last")
HEAD = ("signal", "samples", "missing", "rate [Hz]", "from [s]", "to [s]", "unit", "clock")


@dataclass(frozen=True, eq=False, repr=False)
class Log(Mapping[str, TimeSeries]):
    """Signals of a log, each with its own clock: a mapping `{name: TimeSeries}`.

    - `series`: the signals; `channels`, `clocks`: of each signal, the place in the file, and its
      clock in words.
    - `origin`: time zero of the signals on the absolute clock of the file, integer nanoseconds;
      zero if times are those of the file.
    - `source`: name of the file.
    """

    series: dict[str, TimeSeries]
    channels: dict[str, Channel]
    clocks: dict[str, str]
    origin: int
    source: str

    def __getitem__(self, name: str) -> TimeSeries:
        if name not in self.series:
            raise KeyError(f"no signal {name!r}; there are {', '.join(self.series)}")
        return self.series[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.series)

    def __len__(self) -> int:
        return len(self.series)

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` with one dimension and coordinate `time_<name>` [s] for each signal.

        Samples that do not count are NaN. Signals with several columns have one more dimension,
        `<name>_component`. Needs the extra `io`.
        """
        try:
            import xarray as xr
        except ImportError as error:
            raise ImportError('to_xarray needs xarray: pip install "jaxmbd[io]"') from error
        variables, coords = {}, {}
        for name, x in self.series.items():
            clock = f"time_{name}"
            dims = (clock,) if x.values.ndim == 1 else (clock, f"{name}_component")
            attributes = {"units": x.unit, "channel": self.channels[name].called}
            variables[name] = (dims, np.where(x.valid, x.values, np.nan), attributes)
            coords[clock] = (clock, x.ts, {"units": "s", "long_name": self.clocks[name]})
        return xr.Dataset(variables, coords, {"source": self.source, "origin_ns": self.origin})

    def __repr__(self) -> str:
        rows: list[Sequence[str]] = [HEAD]
        for name, x in self.series.items():
            rate = f"{1 / x.step:.4g}" if x.step > 0 else "-"
            counts = str(len(x)), str(int(np.sum(~x.whole)))
            ends = f"{x.ts[0]:.4g}", f"{x.ts[-1]:.4g}"
            rows.append((name, *counts, rate, *ends, x.unit, self.clocks[name]))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(f"{x:<{w}}" for x, w in zip(r, widths, strict=True)) for r in rows]
        return "\n".join(line.rstrip() for line in lines)


def read_log(
    path: Any,
    signals: Mapping[str, Any],
    *,
    time: str | Channel | None = None,
    rate: float | None = None,
    duplicates: str = "error",
    header: Sequence[str] | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
) -> Log:
    """Read signals of a log, with their own instants: nothing is resampled or interpolated.

    The kind of file follows from its name: tables (`.csv`, `.txt`, `.tsv`, `.parquet`, or a
    `pandas.DataFrame` in place of a path), MCAP (`.mcap`, messages of JSON, ROS 1, ROS 2 and
    protobuf), ROS bags (`.bag`, or the folder of a ROS 2 bag), and MDF4 (`.mf4`, `.mdf`). Needs
    the extra `logs`.

    **Arguments:**

    - `signals`: `{name: channel}`: a `Channel`, its path, or the list of paths of several columns.
    - `time`: the clock. Of a table, a column: `"t"`, or `Channel("t", unit="ms")`; dates are read,
      too. Default: `"time"`. Of messages, `"log"` or `"publish"`, the times of the recorder, or a
      field. Default: `header.stamp` where all messages have it, else `"log"`; `print(log)` names
      the clock. MDF4 has a clock for each group.
    - `rate`: of a table without a clock [Hz]; the first sample is at zero.
    - `duplicates`: `"first"` or `"last"` keeps one of several samples with equal times. Default:
      they are an error.
    - `header`: names of all columns, for a file without a header line; `delimiter` of a text file,
      by default one of comma, semicolon and tab that its first line contains; `decimal`: `","` for
      decimal commas.

    Integer stamps and dates are subtracted from the earliest one of the signals before they become
    seconds, and so are seconds after 1e8; `Log.origin` is that stamp. Samples are equal to those of
    the file unless the channel has a unit, gain or offset. Samples that are not finite, empty
    fields, and saturated samples are missing: see `TimeSeries.valid`. Messages without the field
    of a signal are not samples of it.

    **Raises** `DataError`, with file, channel and row, for channels that are not in the file, for
    samples that are not numbers, and for times that occur twice or go back; `ImportError`, with
    the extra, if the package for the file is not installed.

    For example:

        log = mbd.io.read_log("run.csv", {"hinge": mbd.io.Channel("q1", unit="deg")}, time="t")
        angles = log["hinge"].values  # [rad]
    """
    caller = "read_log"
    named = as_mapping(signals, f"{caller}: signals", "{name: channel}", DataError)
    if not named:
        raise DataError(f"{caller}: signals are missing; pass {{name: channel}}")
    if duplicates not in DUPLICATES:
        raise DataError(f"{caller}: duplicates must be one of {DUPLICATES}, got {duplicates!r}")
    if time is not None and not isinstance(time, str | Channel):
        raise DataError(f"{caller}: time must be a Channel or a name, got {described(time)}")
    channels = {k: as_channel(v, f"{caller}: signal {k!r}") for k, v in named.items()}
    timed = {k: replaced_time(v, time) for k, v in channels.items()}
    if isinstance(path, str | Path) or not _is_frame(path):
        source = _path(path)
        of_text = {"header": header, "delimiter": delimiter, "decimal": decimal}
        raws = _read_file(source, timed, rate, of_text)
    else:
        from .log_tables import read_frame

        source = "DataFrame"
        raws = read_frame(path, timed, rate, source)
    return _as_log(raws, channels, duplicates, str(source))


def _is_frame(value: Any) -> bool:
    return type(value).__name__ == "DataFrame" and hasattr(value, "columns")


def _path(path: Any) -> Path:
    if not isinstance(path, str | Path) or not str(path):
        raise DataError(
            f"read_log: path must be the path of a file or a DataFrame, got {described(path)}"
        )
    if not Path(path).exists():
        raise DataError(f"{path}: there is no such file")
    return Path(path)


def _read_file(
    path: Path, channels: Mapping[str, Channel], rate: float | None, of_text: Mapping[str, Any]
) -> dict[str, Raw]:
    """Samples of the signals from the reader for the kind of file."""
    kind = path.suffix.lower()
    try:
        if kind in TABLES:
            from .log_tables import read_table

            return read_table(path, channels, rate, **of_text)
        if rate is not None:
            raise DataError(f"{path}: rate is for tables; this file has clocks")
        if kind in (".mf4", ".mdf", ".dat"):
            from .log_tables import read_mdf

            return read_mdf(path, channels)
        if kind == ".mcap":
            from .log_messages import read_mcap

            return read_mcap(path, channels)
        if kind == ".bag" or path.is_dir():
            from .log_messages import read_bag

            return read_bag(path, channels)
    except ImportError as error:
        raise ImportError(f'{path}: {error.name} is missing: pip install "jaxmbd[logs]"') from error
    if kind == ".db3":
        raise DataError(f"{path}: pass the folder of the ROS 2 bag, which has metadata.yaml")
    raise DataError(
        f"{path}: unknown kind of file {kind!r}; read_log reads {', '.join(TABLES)}, .mcap, .bag, "
        "folders of ROS 2 bags, .mf4, and a pandas.DataFrame"
    )


def _as_log(
    raws: Mapping[str, Raw], channels: Mapping[str, Channel], duplicates: str, source: str
) -> Log:
    """The signals on a common origin of time, in SI units."""
    firsts = [_origin(raw.stamps) for raw in raws.values() if _is_absolute(raw.stamps)]
    relative = [name for name, raw in raws.items() if not _is_absolute(raw.stamps)]
    if firsts and relative:
        raise DataError(
            f"{source}: the clock of {relative[0]!r} is not absolute like that of other signals; "
            "pass time="
        )
    origin, series = min(firsts, default=0), {}
    for name, channel in channels.items():
        raw, called = raws[name], f"{source}: {name!r}"
        ts = _seconds(raw.stamps, origin)
        keep = _kept(ts, duplicates)
        check_clock(ts[keep], f"{called}, {raw.clock}")
        series[name] = to_series(raw._replace(values=raw.values[keep]), ts[keep], channel, called)
    clocks = {name: raws[name].clock for name in channels}
    return Log(series, dict(channels), clocks, origin, source)


def _is_absolute(stamps: np.ndarray) -> bool:
    later = ABSOLUTE * 1e9 if stamps.dtype.kind == "i" else ABSOLUTE
    return bool(np.any(stamps > later))


def _origin(stamps: np.ndarray) -> int:
    if stamps.dtype.kind == "i":
        return int(stamps.min())
    return round(float(np.nanmin(stamps)) * 1e9)


def _seconds(stamps: np.ndarray, origin: int) -> np.ndarray:
    if stamps.dtype.kind == "i":
        return (stamps - origin) / 1e9
    return stamps if origin == 0 else stamps - origin / 1e9


def _kept(ts: np.ndarray, duplicates: str) -> np.ndarray:
    """Rows to keep if adjacent times are equal; times that go back remain, and are an error."""
    keep = np.ones(len(ts), dtype=bool)
    if duplicates != "error":
        repeated = ts[1:] == ts[:-1]
        keep[slice(1, None) if duplicates == "first" else slice(0, -1)] = ~repeated
    return np.flatnonzero(keep)
