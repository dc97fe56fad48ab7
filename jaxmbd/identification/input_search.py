"""Search for the inputs that show parameters best, by differences of sensitivities."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, SimulationError
from ..programs.progress import say
from .experiment import Experiment
from .input_information import (
    Bands,
    Constant,
    Layout,
    Rows,
    excess,
    information,
    motions,
    statistics_of,
    uses,
)
from .residuals import Residuals

# Weights of the mean squared excess over bounds, one after the other. The last one leaves an excess
# far below the part of the bounds that the design keeps free.
WEIGHTS = (1e2, 1e4)
# The cost of inputs whose motion is not finite, or shows nothing of a parameter.
WORST = 1e6
# Steps end where one reduces the logarithm of the mean standard error by less.
TOLERANCE = 1e-4


class Search(NamedTuple):
    """All that the cost of inputs depends on, beside control points.

    `records`: motions with `ControlledSpline` inputs.
    """

    residuals: Residuals
    records: list[Experiment]
    layout: Layout
    known: Constant
    bounds: Bands

    @property
    def n_choices(self) -> int:
        """Number of choices of inputs in one batch: one, and one for each unknown of a record."""
        return 1 + int(self.layout.free.sum())

    def rows(self, x: np.ndarray, weights: Any = 0.0) -> list[Rows]:
        """Motions for choices of inputs, shape `(C, R, n)`."""
        weights = np.broadcast_to(np.asarray(weights, dtype=float), (len(x),))
        return motions(self.residuals, self.layout, x, weights)

    def parts(self, rows: Sequence[Rows]) -> tuple[np.ndarray, np.ndarray]:
        """Information, shape `(C, R, p, p)`, and excess over bounds, shape `(C, R)`."""
        F = np.stack([information(row) for row in rows], axis=1)
        return F, np.stack([excess(row, self.bounds) for row in rows], axis=1)

    def cost(self, F: np.ndarray, beyond: np.ndarray, weight: float) -> np.ndarray:
        """Logarithm of the mean standard error, -log det F / 2p, and the weighted excess.

        `F`, shape `(*batch, p, p)`, and `beyond`, shape `(*batch,)`: sums over records.
        """
        F = F + self.known.J.T @ self.known.J
        finite = np.isfinite(F).all(axis=(-2, -1)) & np.isfinite(beyond)
        sign, logarithm = np.linalg.slogdet(np.where(finite[..., None, None], F, 0.0))
        with np.errstate(invalid="ignore"):  # Of singular matrices.
            value = -0.5 * logarithm / F.shape[-1] + weight * beyond
        fine = finite & (sign > 0)
        return np.where(fine, np.minimum(value, WORST), WORST)

    def gradient(self, x: np.ndarray, weight: float) -> tuple[float, np.ndarray]:
        """Cost and its derivatives at unknowns of shape `(R, n)`.

        By differences of exact sensitivities: a change of a record changes its information only.
        """
        entries = np.flatnonzero(self.layout.free)
        step = float(np.finfo(self.residuals.selected.free()[0].dtype).eps) ** (1 / 3)
        steps = np.where(x[:, entries] > 0, -step, step)  # Into the limits.
        choices = np.repeat(x[None], self.n_choices, axis=0)
        for j, entry in enumerate(entries):
            choices[1 + j, :, entry] += steps[:, j]
        F, beyond = self.parts(self.rows(choices))
        value = float(self.cost(F[0].sum(0), beyond[0].sum(0), weight))
        others = F[0].sum(0) - F[0] + F[1:], beyond[0].sum(0) - beyond[0] + beyond[1:]
        changed = self.cost(*others, weight)  # Shape (entries, R).
        slopes = np.where(changed < WORST, changed - value, 0.0) / steps.T
        gradient = np.zeros_like(x)
        gradient[:, entries] = slopes.T
        return value, gradient


def begun(search: Search, tried: np.ndarray, n_starts: int, weight: float) -> np.ndarray:
    """The best of random inputs, shape `(n_starts, R, n)`.

    **Raises** `SimulationError` if no motion is finite, and `DataError`, with names, if the best
    one does not show all parameters.
    """
    costs, best, least = [], None, np.inf
    for i in range(0, len(tried), search.n_choices):
        rows = search.rows(tried[i : i + search.n_choices])
        F, beyond = search.parts(rows)
        own = search.cost(F.sum(1), beyond.sum(1), weight)
        costs.append(own)
        own = np.where(np.isfinite(F).all(axis=(1, 2, 3)), own, np.inf)
        if own.min() < least:
            least, best = own.min(), (rows, int(np.argmin(own)))
    if best is None:
        raise SimulationError(
            "design_inputs: no motion with random inputs is finite; give smaller limits, other "
            "starting values of the parameters, or more substeps"
        )
    labels = search.residuals.selected.free_labels()
    found, errors = statistics_of(*best, search.known, labels)
    if not np.isfinite(errors).all():
        groups = "; ".join(", ".join(names) for names in found.unseen)
        raise DataError(
            f"design_inputs: no input distinguishes {groups}; fix some of them, measure more "
            "sensors, or design other inputs as well"
        )
    return tried[np.argsort(np.concatenate(costs))[:n_starts]]


def descended(
    search: Search, x: np.ndarray, weights: Sequence[float], n_steps: int, name: str
) -> np.ndarray:
    """Unknowns at the end of the steps of all weights, of the shape of `x`."""
    from scipy.optimize import minimize  # Takes a second to load.

    free, x, number = search.layout.free, x.copy(), itertools.count(1)
    for weight in weights:
        first: list[float] = []

        def cost(y: np.ndarray, weight: float = weight, first: list[float] = first) -> Any:
            at = np.zeros_like(x)
            at[:, free] = y.reshape(len(x), -1)
            value, gradient = search.gradient(at, weight)
            first.append(value)
            say(f"{name}, evaluation {next(number)}")
            # The minimizer compares changes with the size of the cost.
            return value - first[0], gradient[:, free].ravel()

        start = x[:, free].ravel()
        options = {"maxiter": n_steps, "maxfun": 2 * n_steps, "ftol": TOLERANCE, "gtol": 0.0}
        found = minimize(
            cost, start, jac=True, method="L-BFGS-B", bounds=[(-1, 1)] * len(start), options=options
        )
        x[:, free] = found.x.reshape(len(x), -1)
    return x


def best_of(search: Search, ends: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The best end within the bounds, and mean errors of all.

    **Raises** `DataError` if none is within the bounds.
    """
    costs = []
    for x in ends:
        rows = search.rows(np.repeat(x[None], search.n_choices, axis=0))
        F, beyond = search.parts(rows)
        within = all(np.nanmin(m) > 0.0 for m in margins_of(rows, search.bounds).values())
        cost = float(search.cost(F[0].sum(0), beyond[0].sum(0), 0.0))
        costs.append(cost if within and cost < WORST else np.inf)
    if not np.isfinite(costs).any():
        raise DataError(
            f"design_inputs: no start ended within the bounds of {', '.join(search.bounds)}; give "
            "more steps or starts, smaller limits, or wider bounds"
        )
    return ends[int(np.argmin(costs))], np.exp(costs)


def margins_of(rows: Sequence[Rows], bounds: Bands) -> dict[str, np.ndarray]:
    """Smallest distances of the first choice from bounds, as parts of their ranges, by record."""
    found = {name: np.full(len(rows), np.nan) for name in bounds}
    for r, row in enumerate(rows):
        for name, use in uses(row, bounds).items():
            found[name][r] = 0.5 * (1.0 - np.max(use[0]))
    return found
