"""Standard errors, correlations and identifiability from the Jacobian at the solution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Singular values of the column-scaled Jacobian below this share of the largest count as zero.
RANK_TOLERANCE = 1e-6
# Parameters with a smaller share in a direction that the data cannot see are not named.
NAMED_SHARE = 0.1


@dataclass(frozen=True)
class Statistics:
    """What the Jacobian says about the estimates.

    - `rank`: number of directions, among the parameters and initial states, that the data see.
    - `covariance`: of the free numbers; infinite variance where the data do not see them.
    - `directions`: of the free numbers that the data see, shape `(n_unknowns, rank)`, in units in
      which the Jacobian's columns are orthonormal.
    - `unseen`: for each direction without effect, the labels of what moves along it.
    - `singular_values`: of J with columns of length one, largest first.
    """

    rank: int
    n_unknowns: int
    covariance: np.ndarray
    directions: np.ndarray
    unseen: list[list[str]]
    singular_values: np.ndarray


def statistics(J: np.ndarray, labels: list[str], variance: float) -> Statistics:
    """Linearized statistics of least squares: covariance `variance · (JᵀJ)⁻¹`.

    **Arguments:** `J`, shape `(n_residuals, n_unknowns)`; `labels` of the unknowns; `variance` of a
    residual.
    """
    norms = np.linalg.norm(J, axis=0)
    scale = np.where(norms > 0, norms, 1.0)
    # The triangular factor has the same; the left singular vectors of J would fill the memory.
    _, sigma, Vt = np.linalg.svd(np.linalg.qr(J / scale, mode="r"), full_matrices=True)
    sigma = np.concatenate([sigma, np.zeros(Vt.shape[0] - sigma.size)])
    seen = sigma > RANK_TOLERANCE * max(sigma.max(initial=0.0), np.finfo(float).tiny)
    V = Vt.T
    directions = V[:, seen] / sigma[seen] / scale[:, None]
    covariance = variance * directions @ directions.T
    blind = np.any(np.abs(V[:, ~seen]) > NAMED_SHARE, axis=1)
    covariance[blind, blind] = np.inf
    unseen = [
        [label for label, share in zip(labels, direction, strict=True) if abs(share) > NAMED_SHARE]
        for direction in V[:, ~seen].T
    ]
    return Statistics(int(seen.sum()), J.shape[1], covariance, directions, unseen, sigma)


def correlation_of(covariance: np.ndarray) -> np.ndarray:
    """Correlations; NaN with what the data do not see."""
    deviation = np.sqrt(np.diagonal(covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(
            np.eye(len(deviation), dtype=bool), 1.0, covariance / np.outer(deviation, deviation)
        )


def autocorrelation(residuals: Sequence[np.ndarray], n_lags: int) -> np.ndarray:
    """Of several series of one sensor, shape `(n_lags + 1,)`, one at lag zero."""
    mean = np.mean(np.concatenate(residuals))
    products = np.zeros(n_lags + 1)
    for series in residuals:
        spectrum = np.abs(np.fft.rfft(series - mean, 2 * len(series))) ** 2
        found = np.fft.irfft(spectrum, 2 * len(series))[: min(n_lags + 1, len(series))]
        products[: len(found)] += found
    return products / products[0] if products[0] > 0 else products
