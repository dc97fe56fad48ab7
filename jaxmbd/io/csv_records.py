"""Measured records from files of comma-separated values."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..model.text_files import read_file
from ..model.values import as_names, described


def read_record(
    path: str | Path, columns: Iterable[str], header: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
    """Columns of a file of comma-separated values, as float arrays of shape `(n,)`.

    A byte-order mark is skipped. `Experiment` further checks times and readings.

    **Arguments:** `columns`: names of the columns to read; `header`: names of all columns, for a
    file without a header line. Default: the first line.

    **Raises** `DataError`, with file and column or line, for a file that cannot be read, a column
    that is missing or that occurs twice, a file without a header line, a line with too few fields
    (a truncated file), fields that are not finite numbers, and fewer than two lines.
    """
    if not isinstance(path, str | Path):
        raise DataError(f"read_record: path must be the path of a file, got {described(path)}")
    path, columns = Path(path), list(as_names(columns, "read_record: columns"))
    given = header is not None
    try:
        rows = list(csv.reader(io.StringIO(read_file(path).decode("utf-8-sig"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if not rows:
        raise DataError(f"{path}: the file is empty")
    names = list(as_names(header, "read_record: header")) if header is not None else rows.pop(0)
    names = [name.strip() for name in names]
    _check_names(path, columns, names, given)
    lines = [(number, row) for number, row in enumerate(rows, start=1 if given else 2) if row]
    if len(lines) < 2:
        raise DataError(f"{path}: a record needs two or more lines of data, got {len(lines)}")
    for number, row in lines:
        if len(row) != len(names):
            raise DataError(
                f"{path}, line {number}: {len(row)} fields where the header has {len(names)}; "
                "is the file truncated?"
            )
    return {name: _column(path, name, names.index(name), lines) for name in columns}


def _check_names(path: Path, columns: list[str], names: list[str], given: bool) -> None:
    """**Raises** `DataError` for columns that the names of a file do not determine."""
    if not given and names and all(map(_is_number, names)):
        raise DataError(
            f"{path}: the first line has numbers, {', '.join(names)}, and no names; pass the names "
            f"of all {len(names)} columns as header=[...]"
        )
    missing = [name for name in columns if name not in names]
    if missing:
        raise DataError(
            f"{path}: no column {', '.join(map(repr, missing))}; there are {', '.join(names)}"
        )
    for name in columns:
        places = [str(k + 1) for k, x in enumerate(names) if x == name]
        if len(places) > 1:
            cure = (
                "give each column another name in header"
                if given
                else "rename them in the file, or remove the header line and pass the names of all "
                "columns as header=[...]"
            )
            raise DataError(f"{path}: columns {', '.join(places)} have the name {name!r}; {cure}")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _column(path: Path, name: str, place: int, lines: list[tuple[int, list[str]]]) -> np.ndarray:
    """The numbers of a column. **Raises** `DataError` for a field that is not a finite number."""
    values = np.array([_number(path, n, name, row[place]) for n, row in lines])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        number, row = lines[bad[0]]
        raise DataError(
            f"{path}, line {number}: {name!r} is not finite: {row[place]!r}, in {bad.size} of "
            f"{len(lines)} lines; remove these lines, or fill them by interpolation"
        )
    return values


def _number(path: Path, line: int, column: str, field: str) -> float:
    if not field.strip():  # Loggers leave the field of a missing sample empty.
        return np.nan
    try:
        return float(field)
    except ValueError as error:
        raise DataError(f"{path}, line {line}: {column!r} is not a number: {field!r}") from error
