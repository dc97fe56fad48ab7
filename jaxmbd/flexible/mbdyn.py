"""Flexible bodies from the modal files of MBDyn.

Source of the format: MBDyn input manual, "FEM file format" of the modal joint.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..bodies import FlexibleBody
from ..errors import ModelError
from ..model.text_files import read_lines
from ..model.values import as_path
from .mode_shapes import damping_matrix
from .reduction import lump_integrals

GROUP = re.compile(r"\*\*\s*RECORD GROUP\s*(\d+)", re.IGNORECASE)
NEEDED = {
    1: "header",
    2: "node list",
    5: "x coordinates",
    6: "y coordinates",
    7: "z coordinates",
    8: "mode shapes",
    9: "modal mass matrix",
    10: "modal stiffness matrix",
    11: "diagonal of the lumped mass matrix",
}
# Largest difference of the masses of groups 9 and 12 from those of the lumps, and of a matrix from
# its transpose.
AGREEMENT, SYMMETRY = 0.02, 1e-6


class _File(NamedTuple):
    """Contents of a file, in its units, for n nodes and k modes.

    `positions`: shape `(n, 3)`; `shapes`: shape `(n, 6, k)`; `lumps`: shape `(n, 6)`.
    """

    labels: np.ndarray
    positions: np.ndarray
    shapes: np.ndarray
    mass: np.ndarray
    stiffness: np.ndarray
    lumps: np.ndarray
    damping: np.ndarray | None
    total: float | None


def read_mbdyn(
    path: str | Path,
    *,
    length: float = 1.0,
    mass_unit: float = 1.0,
    time: float = 1.0,
    damping: Any = None,
    agreement: float = AGREEMENT,
) -> FlexibleBody:
    """Read a flexible body from a modal file of MBDyn (`.fem`).

    Mode shapes are those of the file, which must not contain rigid motions; the frame of reference
    is that of its coordinates. Inertia follows from the lumped masses of record group 11, which
    must be those of all nodes with mass. Nodes are named by their labels: `node="12"`. Initial
    displacements and velocities of groups 3 and 4 belong to a state and are not read: pass them to
    `assemble(elastic=...)`.

    **Arguments:**

    - `length` [m], `mass_unit` [kg], `time` [s]: units of the file, as in `read_matrices`.
    - `damping`: as in `reduce`. Default: the matrix of group 13, or zero without it.
    - `agreement`: largest difference of the modal masses of group 9, and of the mass of group 12,
      from those of the lumps, relative to the largest.

    **Raises** `ModelError` for files that are not text or end early, for missing groups, for
    matrices that are not symmetric, for lumped masses that differ between directions, and for
    masses that contradict each other. `Model` raises it for rigid motions among the shapes.
    """
    path = as_path(path, "read_mbdyn: path")
    found = _read(path)
    k = found.shapes.shape[2]
    masses = _masses(found, path)
    shapes = found.shapes * np.array([length] * 3 + [1.0] * 3)[None, :, None]
    positions = length * found.positions
    first, second = lump_integrals(
        mass_unit * masses,
        mass_unit * length**2 * found.lumps[:, 3:, None] * np.eye(3),
        positions,
        shapes,
    )
    modal = mass_unit * length**2 * found.mass
    by_lumps = np.einsum("aibi->ab", np.asarray(second)[1:, :, 1:])
    _check_agreement("modal masses of group 9", modal, by_lumps, agreement, path)
    if found.total is not None:
        _check_agreement("mass of group 12", found.total, masses.sum(), agreement, path)
    stiffness = jnp.asarray(mass_unit * length**2 / time**2 * found.stiffness)
    if damping is not None:
        D = damping_matrix(damping, stiffness, jnp.asarray(by_lumps))
    else:
        given = np.zeros((k, k)) if found.damping is None else found.damping
        D = jnp.asarray(mass_unit * length**2 / time * given)
    return FlexibleBody(
        mass=mass_unit * masses.sum(),
        first=first,
        second=second,
        stiffness=stiffness,
        damping=D,
        positions=positions,
        translations=shapes[:, :3].swapaxes(1, 2),
        rotations=shapes[:, 3:].swapaxes(1, 2),
        nodes={str(label): row for row, label in enumerate(found.labels)},
    )


def _read(path: Path) -> _File:
    """**Raises** `ModelError` for missing groups, and groups of another size than the header's."""
    groups = _groups(path)
    missing = [f"{k} ({name})" for k, name in NEEDED.items() if k not in groups]
    if missing:
        raise ModelError(
            f"read_mbdyn: {path.name} has no record group {', '.join(missing)}; inertia at large "
            "rotations follows from group 11, modes and stiffness from the others"
        )
    n, normal, attached, constraint, rejected = (int(x) for x in groups[1][-5:])
    k = normal + attached + constraint - rejected
    positions = np.stack([_numbers(groups, j, n, path) for j in (5, 6, 7)], axis=1)
    shapes = _numbers(groups, 8, 6 * n * k, path).reshape(k, n, 6)
    matrices = {j: _square(groups, j, k, path) for j in (9, 10, 13) if j in groups}
    return _File(
        _numbers(groups, 2, n, path).astype(int),
        positions,
        np.moveaxis(shapes, 0, 2),
        matrices[9],
        matrices[10],
        _numbers(groups, 11, 6 * n, path).reshape(n, 6),
        matrices.get(13),
        float(_numbers(groups, 12, 13, path)[0]) if 12 in groups else None,
    )


def _groups(path: Path) -> dict[int, list[str]]:
    """Words of each record group."""
    lines = read_lines(path, "read_mbdyn", "utf-8", "MBDyn's binary .mod files are not read")
    groups: dict[int, list[str]] = {}
    current = None
    for line in lines:
        match = GROUP.match(line.strip())
        if match:
            current = groups.setdefault(int(match[1]), [])
        elif current is not None and not line.lstrip().startswith("**"):
            current += line.replace("D", "E").split()
    return groups


def _numbers(groups: dict[int, list[str]], group: int, count: int, path: Path) -> np.ndarray:
    words = groups[group]
    if len(words) != count:
        raise ModelError(
            f"read_mbdyn: record group {group} of {path.name} has {len(words)} numbers, but its "
            f"header requires {count}; the file is truncated or its header is wrong"
        )
    try:
        values = np.asarray([float(word) for word in words])
    except ValueError as error:
        raise ModelError(f"read_mbdyn: record group {group} of {path.name}: {error}") from None
    if not np.all(np.isfinite(values)):
        raise ModelError(f"read_mbdyn: record group {group} of {path.name} must be finite")
    return values


def _square(groups: dict[int, list[str]], group: int, k: int, path: Path) -> np.ndarray:
    matrix = _numbers(groups, group, k * k, path).reshape(k, k)
    error = np.abs(matrix - matrix.T).max(initial=0.0)
    if error > SYMMETRY * np.abs(matrix).max(initial=0.0):
        raise ModelError(
            f"read_mbdyn: the matrix of record group {group} of {path.name} is not symmetric (by "
            f"{error:.1e})"
        )
    return 0.5 * (matrix + matrix.T)


def _masses(found: _File, path: Path) -> np.ndarray:
    """Mass of each lump, shape `(n,)`."""
    masses = found.lumps[:, :3]
    differs = np.ptp(masses, axis=1).max()
    if differs > 1e-6 * np.abs(masses).max():
        raise ModelError(
            f"read_mbdyn: lumped masses of group 11 of {path.name} differ between directions (by "
            f"{differs:.1e}), from which inertia at large rotations does not follow"
        )
    return masses.mean(axis=1)


def _check_agreement(name: str, value: Any, by_lumps: Any, agreement: float, path: Path) -> None:
    scale = np.abs(value).max()
    error = np.abs(np.asarray(value) - by_lumps).max() / scale
    if error > agreement:
        raise ModelError(
            f"read_mbdyn: the {name} of {path.name} differ by {100 * error:.1f} % from those of "
            "the lumped masses of group 11; export the lumps of all nodes with mass, or raise "
            "`agreement`"
        )
