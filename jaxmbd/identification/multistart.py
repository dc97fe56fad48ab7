"""Minimization of the residuals of a fit from one or more starting points."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from ..errors import SimulationError
from ..model.values import as_jax
from ..motion.results import RESULTS
from .batches import row
from .minimizers import AbstractMinimizer, Ends
from .problem import readings_at
from .residuals import Residuals, by_batch, linearize, n_others


class End(NamedTuple):
    """End of a minimization: unknowns, number of steps, result, and costs of every start.

    `best` is the number of the best start.
    """

    unknowns: Any
    n_steps: int
    result: RESULTS
    costs: list[np.ndarray]
    best: int


def minimum(method: AbstractMinimizer, residuals: Residuals, starts: Any, throw: bool) -> End:
    """The best end from starting points along a leading axis.

    **Raises** `SimulationError` if the motion of the first one is not finite and, with `throw`,
    if the minimization fails.
    """
    first = linearize(residuals, row(starts, 0))
    _check_start(residuals, row(starts, 0), np.asarray(first.r))
    end = _best(method.minimize(residuals, starts, first))
    if throw and end.result != RESULTS.successful:
        raise SimulationError(
            f"identify: stopped after {end.n_steps} steps: {RESULTS[end.result]}; pass throw=False "
            "to look at the fit so far"
        )
    return end


def joined(first: End, second: End) -> End:
    """Two minimizations as one; the second started at the end of the first."""
    costs = list(first.costs)
    costs[first.best] = np.concatenate([costs[first.best], *second.costs])
    return End(second.unknowns, first.n_steps + second.n_steps, second.result, costs, first.best)


def scattered(start: Any, n: int, spread: float, seed: int) -> Any:
    """Starting points along a leading axis; parameters of all but the first are perturbed."""
    rng = np.random.default_rng(seed)
    theta, corrections = start

    def moved(x: Array, spread: float) -> Array:
        change = spread * rng.normal(size=(n, *x.shape))
        change[0] = 0.0
        return as_jax(np.asarray(x) + change.astype(x.dtype))

    return tuple(moved(x, spread) for x in theta), [moved(x, 0.0) for x in corrections]


def _best(ends: Ends) -> End:
    """The end of least cost."""
    best = int(np.argmin(np.where(np.isfinite(ends.last), ends.last, np.inf)))
    unknowns, n_steps = row(ends.unknowns, best), int(ends.n_steps[best])
    return End(unknowns, n_steps, ends.results[best], ends.costs, best)


def _check_start(residuals: Residuals, unknowns: Any, r: np.ndarray) -> None:
    for batch, rows in zip(residuals.batches, by_batch(residuals, r), strict=True):
        lost = ~np.isfinite(rows).all(axis=1)
        if lost.any():
            readings_at(residuals, unknowns, residuals.simulator.substeps)  # An error says more.
            raise SimulationError(
                f"identify: the starting model's motion in {batch.called(int(np.argmax(lost)))} is "
                "not finite; use more substeps or better starting values"
            )
    others = r[sum(x.size for x in by_batch(residuals, r)) :][: n_others(residuals)]
    if not np.isfinite(others).all():
        raise SimulationError(
            "identify: predictions of the starting model for static or modal records are not finite"
        )
