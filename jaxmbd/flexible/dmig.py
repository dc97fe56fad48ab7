"""Matrices of Nastran's direct matrix input at grid points (DMIG), from bulk data in text."""

import re
from pathlib import Path

import numpy as np

from ..errors import ModelError
from ..model.text_files import read_lines

SUFFIXES = (".pch", ".bdf", ".dat", ".nas", ".dmig")
# A number whose exponent has no letter, such as 1.5-3.
EXPONENT = re.compile(r"(?<=[\d.])([+-]\d+)$")


def dmig_entries(path: Path, name: str | None, who: str) -> np.ndarray:
    """Entries (node, freedom, node, freedom, value) of a real matrix, shape `(n, 5)`.

    Reads small, large and free fields. **Arguments:** `name`: of the matrix; None for the only one
    of the file.

    **Raises** `ModelError` for unknown or several matrices, complex ones, scalar points, and
    fields that cannot be read.
    """
    lines = read_lines(path, who, "ascii", "export DMIG as text")
    entries = [entry for entry in _entries(lines) if entry[1][0].upper() == "DMIG"]
    names = sorted({fields[1].upper() for _, fields in entries})
    if name is None and len(names) != 1:
        raise ModelError(
            f"{who}: {path.name} has the matrices {', '.join(names) or 'none'}; pass names, such "
            "as names=('KAAX', 'MAAX')"
        )
    chosen = names[0] if name is None else name.upper()
    if chosen not in names:
        raise ModelError(
            f"{who}: {path.name} has no matrix {chosen!r}; it has {', '.join(names) or 'none'}"
        )
    rows: list[tuple[int, int, int, int, float]] = []
    for line, fields in entries:
        if fields[1].upper() != chosen:
            continue
        try:
            if fields[2] == "0":
                _check_header(fields, chosen, path, who)
            else:
                rows += _column(fields)
        except ModelError:
            raise
        except ValueError:
            raise ModelError(
                f"{who}: the DMIG entry at line {line} of {path.name} cannot be read: fields "
                f"{fields[:9]}"
            ) from None
    if not rows:
        raise ModelError(f"{who}: {path.name} has no entries of {chosen}")
    if any(row[1] == 0 or row[3] == 0 for row in rows):
        raise ModelError(
            f"{who}: {chosen} of {path.name} has scalar points, such as modal coordinates of a "
            "reduced superelement; export the matrices of grid points alone"
        )
    return np.asarray(rows, dtype=float)


def _check_header(fields: list[str], name: str, path: Path, who: str) -> None:
    form, kind = int(fields[3]), int(fields[4])
    if kind not in (1, 2):
        raise ModelError(
            f"{who}: {name} of {path.name} is complex (TIN = {kind}); K and M must be real"
        )
    if form not in (1, 6):
        raise ModelError(
            f"{who}: {name} of {path.name} is rectangular (IFO = {form}); K and M are square"
        )


def _column(fields: list[str]) -> list[tuple[int, int, int, int, float]]:
    """Entries of one column: its point and component, then point, component, real, imaginary."""
    node, freedom = int(fields[2]), int(fields[3] or 0)
    found = []
    for k in range(5, len(fields), 4):
        row = [*fields[k : k + 4], "", "", ""]
        if any(row[:3]):
            found.append((int(row[0]), int(row[1] or 0), node, freedom, _number(row[2])))
    return found


def _number(text: str) -> float:
    return float(EXPONENT.sub(r"E\1", text.upper().replace("D", "E")))


def _entries(lines: list[str]) -> list[tuple[int, list[str]]]:
    """Line numbers and fields of the entries of bulk data, continuations included.

    Field 0 is the name of the entry; the fields of continuations follow without their markers.
    """
    entries: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, 1):
        line = line.split("$")[0].rstrip()
        if not line:
            continue
        if "," in line:
            first, *fields = (field.strip() for field in line.split(","))
            large = first.endswith("*")
        else:
            first, large = line[:8].strip(), "*" in line[:8]
            width, end = (16, 72) if large else (8, 72)
            fields = [line[k : k + width].strip() for k in range(8, min(len(line), end), width)]
        per_line = 4 if large else 8
        fields = [*fields[:per_line], *[""] * (per_line - len(fields))]
        if first and first[0] not in "+*":
            entries.append((number, [first.rstrip("*"), *fields]))
        elif entries:
            entries[-1][1].extend(fields)
    return entries


__all__ = ["SUFFIXES", "dmig_entries"]
