"""Motions, joined from records that share a clock."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .experiment import Experiment


class Readings(NamedTuple):
    """Residuals of the readings of one record, or of a motion, one row for each time.

    - `r`: weighted residuals of the components of all sensors, shape `(n, c)`.
    - `pulls`: change of each reported number by a residual of one, shape `(n, c, k)`.
    - `J`: derivatives of the residuals by the unknowns, shape `(n, c, u)`.
    """

    r: np.ndarray
    pulls: np.ndarray
    J: np.ndarray


class Motion(NamedTuple):
    """Readings along one clock, where every time occurs once.

    - `ts`: increasing times, shape `(n,)` [s].
    - `series`: weighted residuals of every component of every sensor, shape `(n,)`, by its name.
    - `z`: change of the reported numbers by the residuals at each time, shape `(n, k)`.
    - `pulls`, `J`: as of `Readings`.
    """

    ts: np.ndarray
    series: dict[str, np.ndarray]
    z: np.ndarray
    pulls: np.ndarray
    J: np.ndarray


def join_records(experiments: Sequence[Experiment], readings: Sequence[Readings]) -> list[Motion]:
    """Join records, in the given order, into motions.

    A record continues the motion of the record before it if it begins after the end of that
    record, or if it begins later and both have equal readings at their common times.
    """
    groups: list[list[int]] = []
    for i, record in enumerate(experiments):
        if groups and _continues(experiments[i - 1], record):
            groups[-1].append(i)
        else:
            groups.append([i])
    return [_merged([experiments[i] for i in rows], [readings[i] for i in rows]) for rows in groups]


def _continues(first: Experiment, second: Experiment) -> bool:
    before, after = np.asarray(first.ts), np.asarray(second.ts)
    if first.measurements.keys() != second.measurements.keys() or after[0] <= before[0]:
        return False
    _, i, j = np.intersect1d(before, after, return_indices=True)
    same = [
        np.array_equal(np.asarray(x)[i], np.asarray(second.measurements[name])[j])
        for name, x in first.measurements.items()
    ]
    return bool(after[0] > before[-1] or (len(i) and all(same)))


def _merged(records: Sequence[Experiment], readings: Sequence[Readings]) -> Motion:
    """One motion; a reading in several records occurs once, with the sum of its `pulls`."""
    times = np.concatenate([np.asarray(record.ts) for record in records])
    order = np.argsort(times, kind="stable")
    ts, first, counts = np.unique(times[order], return_index=True, return_counts=True)
    r, pulls, J = (np.concatenate(x)[order] for x in zip(*readings, strict=True))
    z, pulls, J = (
        np.add.reduceat(x, first, axis=0) for x in (np.einsum("nck,nc->nk", pulls, r), pulls, J)
    )
    # A reading that counts twice has the weight of one reading of half the variance.
    J = J / np.sqrt(np.expand_dims(counts, (1, 2)))
    return Motion(ts, dict(zip(_components(records[0]), r[first].T, strict=True)), z, pulls, J)


def _components(record: Experiment) -> list[str]:
    return [
        f"{name}{list(index)}"
        for name, x in sorted(record.measurements.items())
        for index in np.ndindex(x.shape[1:])
    ]


__all__ = ["Motion", "Readings", "join_records"]
