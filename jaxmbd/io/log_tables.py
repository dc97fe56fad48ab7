"""Signals of tables and of MDF4 files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # pyright: ignore[reportMissingImports]

from ..errors import DataError
from ..model.values import as_names
from .channels import Channel, Raw, as_channel, factor_of

DELIMITERS = (",", ";", "\t")
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "ns": 1}


def read_table(
    path: Path,
    channels: Mapping[str, Channel],
    rate: float | None,
    header: Sequence[str] | None,
    delimiter: str | None,
    decimal: str,
) -> dict[str, Raw]:
    """Signals of a text file or of a Parquet file."""
    if path.suffix.lower() == ".parquet":
        if header is not None or delimiter is not None or decimal != ".":
            raise DataError(f"{path}: header, delimiter and decimal are for text files")
        try:
            return read_frame(pd.read_parquet(path), channels, rate, str(path))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read: {error}") from error
    return read_frame(_text(path, header, delimiter, decimal), channels, rate, str(path), decimal)


def _text(
    path: Path, header: Sequence[str] | None, delimiter: str | None, decimal: str
) -> pd.DataFrame:
    """A text file, with numbers as exact as the text.

    **Raises** `DataError` for an empty or truncated file, and for a file without names.
    """
    if decimal not in (".", ","):
        raise DataError(f"{path}: decimal must be '.' or ',', got {decimal!r}")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}; logs must be in UTF-8") from error
    lines = [line for line in lines if line.strip()]
    if len(lines) < 2:
        raise DataError(f"{path}: a log needs two or more lines, got {len(lines)}")
    if delimiter is None:
        # Of the candidates in the first line, a decimal comma is none.
        allowed = [x for x in DELIMITERS if x != decimal]
        delimiter = max(allowed, key=lines[0].count)
    names = None if header is None else list(as_names(header, f"{path}: header"))
    try:
        frame = pd.read_csv(
            path,
            sep=delimiter,
            decimal=decimal,
            names=names,
            header=None if names is not None else 0,
            encoding="utf-8-sig",
            skipinitialspace=True,
            index_col=False,
        )
    except (ValueError, pd.errors.ParserError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    frame.columns = [str(x).strip() for x in frame.columns]
    if lines[-1].count(delimiter) < lines[0].count(delimiter):
        raise DataError(f"{path}: the last line has too few fields; is the file truncated?")
    if names is None:
        _check_header(path, lines[0].split(delimiter), decimal)
    return frame


def _check_header(path: Path, fields: Sequence[str], decimal: str) -> None:
    """**Raises** `DataError` for a first line of numbers, and for equal names."""
    names = [x.strip().strip('"') for x in fields]
    if all(_is_number(x.replace(decimal, ".")) for x in names):
        raise DataError(
            f"{path}: the first line has numbers, {', '.join(names)}, and no names; pass the names "
            f"of all {len(names)} columns as header=[...]"
        )
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path}: {names.count(name)} columns have the name {name!r}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_frame(
    frame: pd.DataFrame,
    channels: Mapping[str, Channel],
    rate: float | None,
    source: str,
    decimal: str = ".",
) -> dict[str, Raw]:
    """Signals of a table, whose rows are samples."""
    if rate is not None and not (isinstance(rate, int | float) and 0 < rate < np.inf):
        raise DataError(f"{source}: rate must be a positive number [Hz], got {rate!r}")
    if len(frame) < 2:
        raise DataError(f"{source}: a log needs two or more rows, got {len(frame)}")
    clocks: dict[Any, np.ndarray] = {}
    raws = {}
    for name, channel in channels.items():
        key = channel.time
        if rate is not None:
            if key is not None:
                raise DataError(f"{source}: pass either time or rate, not both")
            stamps, clock = np.arange(len(frame)) / rate, f"{rate:g} Hz"
        else:
            of_time = as_channel("time" if key is None else key, f"{source}: time")
            clock = of_time.paths[0]
            if of_time not in clocks:
                clocks[of_time] = _stamps(frame, of_time, source)
            stamps = clocks[of_time]
        columns = [_numbers(_column(frame, x, source), x, source, decimal) for x in channel.paths]
        values = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        raws[name] = Raw(stamps, values, None, clock)
    return raws


def _column(frame: pd.DataFrame, name: str, source: str) -> pd.Series:
    if name not in frame.columns:
        known = ", ".join(map(str, frame.columns))
        raise DataError(f"{source}: no column {name!r}; there are {known}")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise DataError(f"{source}: {column.shape[1]} columns have the name {name!r}")
    return column


def _numbers(column: pd.Series, name: str, source: str, decimal: str) -> np.ndarray:
    """The numbers of a column. Empty fields are NaN."""
    if column.dtype.kind in "fiub":
        return column.to_numpy()
    numbers = np.asarray(pd.to_numeric(column, errors="coerce"), dtype=float)
    bad = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
    if bad.size:
        text = str(column.iloc[bad[0]])
        cure = "; pass decimal=','" if decimal == "." and "," in text else ""
        raise DataError(
            f"{source}: {name!r} in row {bad[0]} is not a number: {text!r}, and {bad.size} of "
            f"{len(column)} rows in all{cure}"
        )
    return numbers


def _stamps(frame: pd.DataFrame, channel: Channel, source: str) -> np.ndarray:
    """Stamps of a column of times: integer nanoseconds of integers and dates, or seconds."""
    if len(channel.paths) != 1 or channel.gain != 1.0:
        raise DataError(f"{source}: time must be one column with a unit, got {channel}")
    name, unit = channel.paths[0], "s" if channel.unit is None else channel.unit
    column = _column(frame, name, source)
    if column.isna().any():
        row = int(np.flatnonzero(column.isna())[0])
        raise DataError(f"{source}: the time {name!r} in row {row} is missing")
    if column.dtype.kind in "fiu":
        return to_stamps(column.to_numpy(), unit, f"{source}: time {name!r}")
    try:
        dates = pd.to_datetime(column, utc=True, format="ISO8601")
    except (ValueError, TypeError) as error:
        raise DataError(f"{source}: the time {name!r} has neither numbers nor dates") from error
    return dates.dt.as_unit("ns").astype("int64").to_numpy()


def to_stamps(numbers: np.ndarray, unit: str, name: str) -> np.ndarray:
    """Integer nanoseconds of integers, seconds of other numbers."""
    factor, si = factor_of(unit, name)
    if si != "s":
        raise DataError(f"{name}: the unit of a time is s, ms, us or ns, not {unit!r}")
    if numbers.dtype.kind in "iu" and unit in NANOSECONDS:
        return numbers.astype("int64") * NANOSECONDS[unit]
    # By division, since a thousandth has no exact float.
    return numbers / round(1 / factor) if factor < 1 else numbers * factor


def read_mdf(path: Path, channels: Mapping[str, Channel]) -> dict[str, Raw]:
    """Signals of an MDF4 file, with the clocks of their groups and the units that it states."""
    from asammdf import MDF  # pyright: ignore[reportMissingImports]

    try:
        file = MDF(path)
    except Exception as error:  # The library raises several of its own.
        raise DataError(f"{path}: cannot be read as MDF: {error}") from error
    with file:
        return {name: _of_mdf(file, path, channel) for name, channel in channels.items()}


def _of_mdf(file: Any, path: Path, channel: Channel) -> Raw:
    if channel.time is not None:
        raise DataError(f"{path}: MDF has a clock for each group; omit time of {channel.called}")
    parts = [file.get(group=g, index=i) for g, i in (_place(file, path, x) for x in channel.paths)]
    first, columns = parts[0], [_samples(x, path) for x in parts]
    for other in parts[1:]:
        if not np.array_equal(other.timestamps, first.timestamps):
            raise DataError(
                f"{path}: {other.name!r} and {first.name!r} have different clocks; read them as "
                "two signals"
            )
    units = {x.unit for x in parts}
    if len(units) > 1 and channel.unit is None:
        raise DataError(f"{path}: {channel.called} have different units, {', '.join(units)}")
    values = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    return Raw(np.asarray(first.timestamps, dtype=float), values, first.unit or None, "group")


def _samples(signal: Any, path: Path) -> np.ndarray:
    """Samples; those that the file marks as invalid are NaN."""
    samples = np.asarray(signal.samples)
    if samples.dtype.kind not in "fiub" or samples.ndim not in (1, 2):
        raise DataError(f"{path}: the samples of {signal.name!r} are not numbers")
    bits = signal.invalidation_bits
    if bits is None or not np.any(bits):
        return samples
    samples = samples.astype(float)
    samples[np.asarray(bits, dtype=bool)] = np.nan
    return samples


def _place(file: Any, path: Path, name: str) -> tuple[int, int]:
    """Group and index of a channel."""
    group, slash, own = name.partition("/")
    numbered = bool(slash) and group.isdigit()
    places = file.whereis(own if numbered else name)
    if numbered:
        places = [place for place in places if place[0] == int(group)]
    if not places:
        known = sorted({str(x) for x in file.channels_db})
        raise DataError(f"{path}: no channel {name!r}; there are {', '.join(known)}")
    if len(places) > 1:
        options = ", ".join(f"'{g}/{name}'" for g, _ in places)
        raise DataError(f"{path}: groups have channels of the name {name!r}; use one of {options}")
    return tuple(places[0])
