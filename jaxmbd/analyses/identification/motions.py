"""Records that share a clock, put together into the motions that they are parts of."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .experiment import Experiment


class Readings(NamedTuple):
    """Residuals of the readings of one record, or of a motion, one row for each time.

    - `r`: of the components of all sensors, weighted, shape `(n, c)`.
    - `pulls`: what a residual of one moves each reported number by, shape `(n, c, k)`.
    - `J`: derivatives of the residuals by the unknowns, shape `(n, c, u)`.
    """

    r: np.ndarray
    pulls: np.ndarray
    J: np.ndarray


class Motion(NamedTuple):
    """Readings along one clock, where every time occurs once.

    - `ts`: increasing times, shape `(n,)` [s].
    - `series`: weighted residuals of every component of every sensor, shape `(n,)`, by its name.
    - `z`: what the residuals at each time move the reported numbers by, shape `(n, k)`.
    - `pulls`, `J`: as of `Readings`.
    """

    ts: np.ndarray
    series: dict[str, np.ndarray]
    z: np.ndarray
    pulls: np.ndarray
    J: np.ndarray


def join_records(experiments: Sequence[Experiment], readings: Sequence[Readings]) -> list[Motion]:
    """The motions of which records, in the order in which they are given, are parts.

    A record goes on with the motion of the one before it where it begins after that has ended, or
    where it begins later and both have read the same at the times that they have in common.
    """
    groups: list[list[int]] = []
    for i, record in enumerate(experiments):
        if groups and _goes_on(experiments[i - 1], record):
            groups[-1].append(i)
        else:
            groups.append([i])
    return [
        _together([experiments[i] for i in rows], [readings[i] for i in rows]) for rows in groups
    ]


def _goes_on(first: Experiment, second: Experiment) -> bool:
    before, after = np.asarray(first.ts), np.asarray(second.ts)
    if first.measurements.keys() != second.measurements.keys() or after[0] <= before[0]:
        return False
    _, i, j = np.intersect1d(before, after, return_indices=True)
    same = [
        np.array_equal(np.asarray(x)[i], np.asarray(second.measurements[name])[j])
        for name, x in first.measurements.items()
    ]
    return bool(after[0] > before[-1] or (len(i) and all(same)))


def _together(records: Sequence[Experiment], readings: Sequence[Readings]) -> Motion:
    """One motion; what was read once occurs once, with all that it pulls."""
    times = np.concatenate([np.asarray(record.ts) for record in records])
    order = np.argsort(times, kind="stable")
    ts, first, counts = np.unique(times[order], return_index=True, return_counts=True)
    r, pulls, J = (np.concatenate(x)[order] for x in zip(*readings, strict=True))
    z, pulls, J = (
        np.add.reduceat(x, first, axis=0) for x in (np.einsum("nck,nc->nk", pulls, r), pulls, J)
    )
    # What counts twice is followed like one reading of half the variance.
    J = J / np.sqrt(np.expand_dims(counts, (1, 2)))
    return Motion(ts, dict(zip(_components(records[0]), r[first].T, strict=True)), z, pulls, J)


def _components(record: Experiment) -> list[str]:
    return [
        f"{name}{list(index)}"
        for name, x in sorted(record.measurements.items())
        for index in np.ndindex(x.shape[1:])
    ]


__all__ = ["Motion", "Readings", "join_records"]
