"""Parts of flat residuals: readings by batch and by record, defects, and other records."""

from collections.abc import Sequence

import numpy as np

from .batches import Batch
from .experiment import Experiment
from .residuals import Residuals


def by_batch(residuals: Residuals, flat: np.ndarray) -> list[np.ndarray]:
    """Rows of flat residuals, or of their Jacobian, by batch, along two axes: records, readings."""
    widths = [_width(batch) * len(batch.rows) for batch in residuals.batches]
    parts = np.split(flat, np.cumsum(widths))[:-1]  # Others come last.
    return [
        x.reshape(len(b.rows), -1, *x.shape[1:])
        for x, b in zip(parts, residuals.batches, strict=True)
    ]


def by_record(
    residuals: Residuals, experiments: Sequence[Experiment], flat: np.ndarray
) -> list[np.ndarray]:
    """Rows of flat residuals by record, along two axes: its times, components of its sensors."""
    by_record: dict[int, np.ndarray] = {}
    for batch, rows in zip(residuals.batches, by_batch(residuals, flat), strict=True):
        n = batch.experiments.ts.shape[1]
        shapes = [x.shape[2:] for _, x in sorted(batch.experiments.measurements.items())]
        ends = np.cumsum([n * int(np.prod(shape)) for shape in shapes])[:-1]
        for i, readings in zip(batch.rows, rows, strict=True):
            sensors = [x.reshape(n, -1, *x.shape[1:]) for x in np.split(readings, ends)]
            by_record[i] = np.concatenate(sensors, axis=1)[: experiments[i].ts.shape[0]]
    return [by_record[i] for i in sorted(by_record)]


def defects_of(residuals: Residuals, r: np.ndarray) -> np.ndarray:
    """Defects between windows, one per row, from the flat residuals after those of records."""
    if residuals.continuity is None:
        return np.zeros((0, 0))
    n = len(residuals.continuity.later)
    width = residuals.unknowns()[1][0].shape[1]
    return r[: n * width].reshape(n, width)


def _width(batch: Batch) -> int:
    return sum(int(np.prod(x.shape[1:])) for x in batch.experiments.measurements.values())


def n_others(residuals: Residuals) -> int:
    """Number of residuals of records that are not motions."""
    return sum(stack.records.measured.size for stack in residuals.stacks)


def n_readings(residuals: Residuals) -> int:
    """Number of readings that count, without padding."""
    return sum(
        int(np.sum(valid))
        for batch in residuals.batches
        for valid in batch.experiments.valid.values()
    )
