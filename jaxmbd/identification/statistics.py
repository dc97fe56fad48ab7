"""Standard errors, correlations and identifiability from the Jacobian at the solution."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Singular values of the column-scaled Jacobian below this share of the largest count as zero.
RANK_TOLERANCE = 1e-6
# Smallest share of a parameter in an unseen direction with which it is named.
NAMED_SHARE = 0.1


class ByLabel:
    """Results that are read like a dict by `labels`, by their own `__getitem__`."""

    labels: list[str]

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    # No subclass of `Mapping`, whose `values` is a method: these results have an array `values`.
    __contains__ = Mapping.__contains__
    keys, items, get = Mapping.keys, Mapping.items, Mapping.get


@dataclass(frozen=True)
class Statistics:
    """Linearized statistics of the unknowns (parameters and initial states).

    - `rank`: number of directions that the data determine.
    - `covariance`: of the unknowns; infinite variance if the data do not determine them.
    - `directions`: directions that the data determine, shape `(n_unknowns, rank)`, in units in
      which the Jacobian's columns are orthonormal.
    - `unseen`: for each other direction, the labels of its unknowns.
    - `singular_values`: of J with columns of length one, largest first.
    - `undetermined`: the directions that the data do not determine, shape `(n_unknowns, m)`, by
      unknowns in units of `scale`, in which the Jacobian's columns have length one.
    """

    rank: int
    n_unknowns: int
    covariance: np.ndarray
    directions: np.ndarray
    unseen: list[list[str]]
    singular_values: np.ndarray
    undetermined: np.ndarray
    scale: np.ndarray

    def share_undetermined(self, rows: np.ndarray) -> np.ndarray:
        """The share of numbers with derivatives `rows` that the data do not determine."""
        scaled = rows / self.scale[: rows.shape[1]]
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        scaled = scaled / np.where(lengths > 0, lengths, 1.0)
        return np.abs(scaled @ self.undetermined[: rows.shape[1]]).max(axis=1, initial=0.0)


def statistics(
    J: np.ndarray, labels: list[str], variance: float, held: np.ndarray | None = None
) -> Statistics:
    """Linearized statistics of least squares: covariance `variance · (JᵀJ)⁻¹`.

    **Arguments:** `J`, shape `(n_residuals, n_unknowns)`; `labels` of the unknowns; `variance` of a
    residual; `held`: rows `a`, shape `(m, n_unknowns)`, if the statistics are conditional on
    constant values of `a · unknowns`.
    """
    J = np.asarray(J, dtype=float)
    # Columns are scaled first, since squares of small numbers underflow.
    largest = np.abs(J).max(axis=0, initial=0.0)
    largest = np.where(largest > 0, largest, 1.0)
    norms = largest * np.linalg.norm(J / largest, axis=0)
    scale = np.where(norms > 0, norms, 1.0)
    tangents = _tangents(held, scale)
    # The triangular factor has the same values; left singular vectors of J would fill the memory.
    R = np.linalg.qr((J / scale) @ tangents, mode="r")
    _, sigma, Vt = np.linalg.svd(R, full_matrices=True)
    sigma = np.concatenate([sigma, np.zeros(Vt.shape[0] - sigma.size)])
    seen = sigma > RANK_TOLERANCE * max(sigma.max(initial=0.0), np.finfo(float).tiny)
    V = tangents @ Vt.T
    directions = V[:, seen] / sigma[seen] / scale[:, None]
    covariance = variance * directions @ directions.T
    undetermined = np.any(np.abs(V[:, ~seen]) > NAMED_SHARE, axis=1)
    covariance[undetermined, undetermined] = np.inf
    unseen = [
        [label for label, share in zip(labels, direction, strict=True) if abs(share) > NAMED_SHARE]
        for direction in V[:, ~seen].T
    ]
    rank, n = int(seen.sum()), J.shape[1]
    return Statistics(rank, n, covariance, directions, unseen, sigma, V[:, ~seen], scale)


def _tangents(held: np.ndarray | None, scale: np.ndarray) -> np.ndarray:
    """Orthonormal directions of the scaled unknowns in which rows `held` do not change."""
    if held is None or not len(held):
        return np.eye(len(scale))
    rows = held / scale
    rows = rows / np.abs(rows).max(axis=1, keepdims=True)
    _, sigma, Wt = np.linalg.svd(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return Wt[int(np.sum(sigma > RANK_TOLERANCE * sigma.max())) :].T


def correlation_of(covariance: np.ndarray) -> np.ndarray:
    """Correlations; NaN if a variance is infinite."""
    deviation = np.sqrt(np.diagonal(covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(
            np.eye(len(deviation), dtype=bool), 1.0, covariance / np.outer(deviation, deviation)
        )


def autocorrelation(residuals: Sequence[np.ndarray], n_lags: int) -> np.ndarray:
    """Autocorrelation of several series of one sensor, shape `(n_lags + 1,)`, one at lag zero."""
    mean = np.mean(np.concatenate(residuals))
    products = np.zeros(n_lags + 1)
    for series in residuals:
        spectrum = np.abs(np.fft.rfft(series - mean, 2 * len(series))) ** 2
        lagged = np.fft.irfft(spectrum, 2 * len(series))[: min(n_lags + 1, len(series))]
        products[: len(lagged)] += lagged
    return products / products[0] if products[0] > 0 else products


def residual_series(overlays: Sequence[Mapping[str, Any]]) -> dict[str, list[np.ndarray]]:
    """Residuals of every component of every sensor, one series for each record."""
    series: dict[str, list[np.ndarray]] = {}
    for record in overlays:
        for name, (_, measured, predicted) in record.items():
            flat = np.reshape(predicted - measured, (len(measured), -1))
            for k, column in enumerate(flat.T):
                key = name if flat.shape[1] == 1 else f"{name}[{k}]"
                series.setdefault(key, []).append(column[~np.isnan(column)])
    return series
