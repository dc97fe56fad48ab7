"""Measured records from files of comma-separated values."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..model.arguments import as_names, described
from ..model.text_files import read_file


def read_record(path: str | Path, columns: Iterable[str]) -> dict[str, np.ndarray]:
    """Columns of a file with a header line, as float arrays of shape `(n,)`.

    `Experiment` further checks times and readings.

    **Raises** `DataError`, with file and column or line, for a file that cannot be read, a missing
    column, a line with too few fields (a truncated file), a field that is no finite number, and
    fewer than two lines.
    """
    if not isinstance(path, str | Path):
        raise DataError(f"read_record: path must be the path of a file, got {described(path)}")
    path, columns = Path(path), list(as_names(columns, "read_record: columns"))
    try:
        rows = list(csv.reader(io.StringIO(read_file(path).decode("utf-8"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if not rows:
        raise DataError(f"{path}: the file is empty")
    header = [name.strip() for name in rows[0]]
    missing = [name for name in columns if name not in header]
    if missing:
        raise DataError(
            f"{path}: no column {', '.join(map(repr, missing))}; there are {', '.join(header)}"
        )
    lines = [(number, row) for number, row in enumerate(rows[1:], start=2) if row]
    if len(lines) < 2:
        raise DataError(f"{path}: a record needs two or more lines of data, got {len(lines)}")
    for number, row in lines:
        if len(row) != len(header):
            raise DataError(
                f"{path}, line {number}: {len(row)} fields where the header has {len(header)}; "
                "is the file truncated?"
            )
    return {
        name: np.array([_number(path, n, name, row[header.index(name)]) for n, row in lines])
        for name in columns
    }


def _number(path: Path, line: int, column: str, field: str) -> float:
    try:
        value = float(field)
    except ValueError as error:
        raise DataError(f"{path}, line {line}: {column!r} is no number: {field!r}") from error
    if not np.isfinite(value):
        raise DataError(f"{path}, line {line}: {column!r} is not finite: {field!r}")
    return value
