"""Stiffness and mass matrices from text files of finite element programs."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import ModelError
from ..model.text_files import read_lines
from ..model.values import as_path

# Files that are not text of entries, and how to get one.
REFUSED = {
    ".mnf": "an Adams modal neutral file is binary and has modes instead of K and M; export K and "
    "M from the program that wrote it",
    ".op2": "export DMIG as text (EXTSEOUT(DMIGPCH)), which is read",
    ".op4": "its matrices have no labels of nodes; export DMIG as text (EXTSEOUT(DMIGPCH)), or "
    "pass what pyyeti.nastran.op4.load reads to flexible.reduce, with the positions of the nodes",
    ".fem": "it has modes instead of K and M; read it by read_mbdyn",
}
# Largest difference of the mass from the one that is expected.
MASS = 0.01


class Matrices(NamedTuple):
    """K and M of a finite element model in SI units, node by node.

    - `K`, `M`: symmetric, shape `(n, n)`, as `reduce` takes them.
    - `nodes`: labels of the nodes in the order of the rows, shape `(n_nodes,)`.
    """

    K: np.ndarray
    M: np.ndarray
    nodes: np.ndarray


def read_matrices(
    stiffness: str | Path,
    mass: str | Path,
    dofs: str | Path | None = None,
    *,
    length: float = 1.0,
    mass_unit: float = 1.0,
    time: float = 1.0,
    total_mass: float | None = None,
    names: tuple[str, str] | None = None,
) -> Matrices:
    """Read stiffness and mass matrix from text files of Abaqus, CalculiX or Nastran.

    The upper, the lower, or both triangles may be present. Files of Nastran (`.pch`, `.bdf`,
    `.dat`, `.nas`, `.dmig`) have DMIG entries of grid points in small, large or free fields. Other
    files have one entry a line, separated by commas or spaces, in one of two forms:

    - `node, freedom, node, freedom, value`, with freedoms 1 to 6: Abaqus, `*MATRIX OUTPUT,
      FORMAT=MATRIX INPUT`;
    - `row column value`, with a file `dofs` that has `node.freedom` of one row a line: CalculiX,
      `SOLVER=MATRIXSTORAGE`, files `.sti`, `.mas` and `.dof`. In Abaqus this is
      `FORMAT=COORDINATE`.

    Lines that begin with `*` or `#` are left out.

    **Arguments:** `length` [m], `mass_unit` [kg], `time` [s]: units of the files. In a model in mm,
    t and s (and N, MPa) they are 1e-3, 1e3 and 1. `total_mass` [kg]: the mass that M is to have.
    `names`: of K and M among the DMIG of a file, such as `("KAAX", "MAAX")`; both may be in the
    same file. Default: the only one of each file.

    **Raises** `ModelError` for binary files, for lines that are not entries, for entries that
    contradict each other, for files that end early or differ in their freedoms, and if the mass is
    not `total_mass` to 1 %.
    """
    tables = {}
    matrices = names or (None, None)
    files = (("stiffness", stiffness, matrices[0]), ("mass", mass, matrices[1]))
    for name, path, matrix in files:
        path = as_path(path, f"read_matrices: {name}")
        advice = REFUSED.get(path.suffix.lower())
        if advice is not None:
            raise ModelError(f"read_matrices: cannot read {path.name}: {advice}")
        if path.suffix.lower() in SUFFIXES:
            tables[name] = dmig_entries(path, matrix, "read_matrices")
        else:
            tables[name] = _entries(path)
    labels = None if dofs is None else _labels(as_path(dofs, "read_matrices: dofs"))
    of_stiffness, of_mass = (_labelled(table, labels) for table in tables.values())
    places, nodes, per_node = _places(of_stiffness, Path(stiffness).name)
    scales = np.where(np.arange(6) < 3, 1.0, length)
    K, M = (
        _filled(table, places, len(nodes), per_node, scales * np.sqrt(unit), Path(path).name)
        for table, unit, path in (
            (of_stiffness, mass_unit / time**2, stiffness),
            (of_mass, mass_unit, mass),
        )
    )
    _check_complete(K, M, nodes, per_node)
    found = float(M.reshape(len(nodes), per_node, len(nodes), per_node)[:, 0, :, 0].sum())
    if total_mass is not None and abs(found - total_mass) > MASS * total_mass:
        raise ModelError(
            f"read_matrices: the sum of M is {found:.6g} kg, but total_mass is {total_mass:.6g} "
            "kg; check mass_unit (1e3 for a model in mm, t and s)"
        )
    return Matrices(K, M, nodes)


def _check_complete(K: np.ndarray, M: np.ndarray, nodes: np.ndarray, per_node: int) -> None:
    """**Raises** `ModelError` for freedoms without entries; rotations may be without inertia."""
    massless = (np.diagonal(M) == 0) & (np.arange(len(M)) % per_node < 3)
    missing = np.flatnonzero((np.diagonal(K) == 0) | massless)
    if missing.size:
        node, freedom = nodes[missing[0] // per_node], 1 + missing[0] % per_node
        raise ModelError(
            f"read_matrices: freedom {freedom} of node {node} has no stiffness or no mass; the "
            "file is truncated, or the matrix was not assembled for all freedoms"
        )


def _entries(path: Path) -> np.ndarray:
    """Numbers of all lines, shape `(n, 3)` or `(n, 5)`."""
    rows: list[list[float]] = []
    lines = read_lines(path, "read_matrices", "ascii", "export it as text")
    for k, line in enumerate(lines, 1):
        fields = line.replace(",", " ").replace("D", "E").replace("d", "e").split()
        if not fields or fields[0][0] in "*#":
            continue
        try:
            row = [float(x) for x in fields]
        except ValueError:
            row = []
        if len(row) not in (3, 5) or (rows and len(row) != len(rows[0])):
            raise ModelError(
                f"read_matrices: line {k} of {path.name} is not an entry: {line[:60]!r}; entries "
                "are 'row column value' or 'node, freedom, node, freedom, value'. If it is the "
                "last line, the file is truncated"
            )
        rows.append(row)
    if not rows:
        raise ModelError(f"read_matrices: {path.name} has no entries")
    return np.asarray(rows)


def _labels(path: Path) -> np.ndarray:
    """Node and freedom of each row, shape `(n, 2)`, from lines 'node.freedom'."""
    lines = read_lines(path, "read_matrices", "ascii", "export it as text")
    parts = [line.strip().split(".") for line in lines]
    try:
        return np.asarray([[int(node), int(freedom)] for node, freedom in filter(any, parts)])
    except ValueError:
        raise ModelError(
            f"read_matrices: {path.name} must have lines 'node.freedom', such as 12.3"
        ) from None


def _labelled(table: np.ndarray, labels: np.ndarray | None) -> np.ndarray:
    """Entries by node and freedom, shape `(n, 5)`."""
    if table.shape[1] == 5:
        return table
    if labels is None:
        raise ModelError(
            "read_matrices: entries 'row column value' need the file `dofs`, with the node and the "
            "freedom of each row"
        )
    rows = table[:, :2].astype(int) - 1
    if rows.min() < 0 or rows.max() >= len(labels):
        raise ModelError(
            f"read_matrices: an entry has the row or column {rows.max() + 1}, but the file of "
            f"freedoms has {len(labels)} lines; one of them is truncated"
        )
    return np.concatenate([labels[rows[:, 0]], labels[rows[:, 1]], table[:, 2:]], axis=1)


def _places(table: np.ndarray, name: str) -> tuple[dict[int, int], np.ndarray, int]:
    """Row of each node, labels of the nodes, and the number of freedoms of a node."""
    nodes = np.unique(table[:, [0, 2]]).astype(int)
    largest = int(table[:, [1, 3]].max())
    if largest > 6 or table[:, [1, 3]].min() < 1:
        raise ModelError(f"read_matrices: {name} has a freedom that is not one of 1 to 6")
    return {int(node): row for row, node in enumerate(nodes)}, nodes, 3 if largest <= 3 else 6


def _filled(
    table: np.ndarray,
    places: Mapping[int, int],
    n_nodes: int,
    per_node: int,
    scales: np.ndarray,
    name: str,
) -> np.ndarray:
    """The symmetric matrix with these entries."""
    unknown = sorted({int(x) for x in table[:, [0, 2]].ravel()} - set(places))
    if unknown or table[:, [1, 3]].max() > per_node:
        raise ModelError(
            f"read_matrices: {name} has degrees of freedom that the stiffness matrix lacks"
            + (f", of node {unknown[0]}" if unknown else "")
        )
    freedoms = table[:, [1, 3]].astype(int) - 1
    at = [
        per_node * np.asarray([places[int(node)] for node in table[:, column]]) + freedoms[:, i]
        for i, column in enumerate((0, 2))
    ]
    values = table[:, 4] * scales[freedoms[:, 0]] * scales[freedoms[:, 1]]
    n = per_node * n_nodes
    one, given = np.zeros((n, n)), np.zeros((n, n), dtype=bool)
    np.add.at(one, (at[0], at[1]), values)
    given[at[0], at[1]] = True
    scale = np.abs(one).max()
    both = given & given.T
    if np.any(np.abs(one - one.T)[both] > 1e-6 * scale):
        raise ModelError(
            f"read_matrices: {name} is not symmetric; contact, friction and follower loads make "
            "such matrices: export the linear model"
        )
    return np.where(given, one, one.T)


# Matrices of Nastran's direct matrix input at grid points (DMIG), from bulk data in text ----------

SUFFIXES = (".pch", ".bdf", ".dat", ".nas", ".dmig")
# A number whose exponent has no letter, such as 1.5-3.
EXPONENT = re.compile(r"(?<=[\d.])([+-]\d+)$")


def dmig_entries(path: Path, name: str | None, caller: str) -> np.ndarray:
    """Entries (node, freedom, node, freedom, value) of a real matrix, shape `(n, 5)`.

    Reads small, large and free fields. **Arguments:** `name`: of the matrix; None for the only one
    of the file.

    **Raises** `ModelError` for unknown or several matrices, complex ones, scalar points, and
    fields that cannot be read.
    """
    lines = read_lines(path, caller, "ascii", "export DMIG as text")
    entries = [entry for entry in _dmig_entries(lines) if entry[1][0].upper() == "DMIG"]
    names = sorted({fields[1].upper() for _, fields in entries})
    if name is None and len(names) != 1:
        raise ModelError(
            f"{caller}: {path.name} has the matrices {', '.join(names) or 'none'}; pass names, "
            "such as names=('KAAX', 'MAAX')"
        )
    chosen = names[0] if name is None else name.upper()
    if chosen not in names:
        raise ModelError(
            f"{caller}: {path.name} has no matrix {chosen!r}; it has {', '.join(names) or 'none'}"
        )
    rows: list[tuple[int, int, int, int, float]] = []
    for line, fields in entries:
        if fields[1].upper() != chosen:
            continue
        try:
            if fields[2] == "0":
                _check_header(fields, chosen, path, caller)
            else:
                rows += _column(fields)
        except ModelError:
            raise
        except ValueError:
            raise ModelError(
                f"{caller}: the DMIG entry at line {line} of {path.name} cannot be read: fields "
                f"{fields[:9]}"
            ) from None
    if not rows:
        raise ModelError(f"{caller}: {path.name} has no entries of {chosen}")
    if any(row[1] == 0 or row[3] == 0 for row in rows):
        raise ModelError(
            f"{caller}: {chosen} of {path.name} has scalar points, such as modal coordinates of a "
            "reduced superelement; export the matrices of grid points alone"
        )
    return np.asarray(rows, dtype=float)


def _check_header(fields: list[str], name: str, path: Path, caller: str) -> None:
    form, kind = int(fields[3]), int(fields[4])
    if kind not in (1, 2):
        raise ModelError(
            f"{caller}: {name} of {path.name} is complex (TIN = {kind}); K and M must be real"
        )
    if form not in (1, 6):
        raise ModelError(
            f"{caller}: {name} of {path.name} is rectangular (IFO = {form}); K and M are square"
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


def _dmig_entries(lines: list[str]) -> list[tuple[int, list[str]]]:
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
