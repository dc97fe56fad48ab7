"""Standard errors, correlations and identifiability from the Jacobian at the solution."""

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
    - `unseen`: for each direction without effect, the labels of what moves along it.
    - `singular_values`: of J with columns of length one, largest first.
    """

    rank: int
    n_unknowns: int
    covariance: np.ndarray
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
    within = (V[:, seen] / sigma[seen]) @ (V[:, seen] / sigma[seen]).T
    covariance = variance * within / np.outer(scale, scale)
    blind = np.any(np.abs(V[:, ~seen]) > NAMED_SHARE, axis=1)
    covariance[blind, blind] = np.inf
    unseen = [
        [label for label, share in zip(labels, direction, strict=True) if abs(share) > NAMED_SHARE]
        for direction in V[:, ~seen].T
    ]
    return Statistics(int(seen.sum()), J.shape[1], covariance, unseen, sigma)


def correlation_of(covariance: np.ndarray) -> np.ndarray:
    """Correlations; NaN with what the data do not see."""
    deviation = np.sqrt(np.diagonal(covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(
            np.eye(len(deviation), dtype=bool), 1.0, covariance / np.outer(deviation, deviation)
        )
