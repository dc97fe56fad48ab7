"""Standard errors that allow for residuals which are correlated over time.

To first order, a reported number is off by Σ z, where z is what the noise at one instant moves it
by. Its variance is the sum of the products z(s) z(t), weighted by 1 - h/B where s and t are h < B
apart (Newey & West 1987): the mean, over all places of a window of length B, of the square of what
the readings inside sum to. This is the sandwich estimator whose clusters are such windows, and
that of whole records where they are much shorter than B.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .experiment import Experiment
from .motions import Motion, Readings, join_records
from .statistics import autocorrelation

# Of the autocorrelations of white noise 95 % are within so many of their standard deviations.
BAND = 1.96
# So many lags, at least, must be within the band before longer ones are taken for noise.
FEWEST_LAGS = 5
# Windows that make intervals right are longer than those that make the mean square error of a
# variance least (Sun, Phillips & Jin 2008). Twice as long was measured to lose little.
LONGER = 2.0
# B gives way where a number would have fewer degrees of freedom.
FEWEST_DEGREES = 4.0
# Of the noise at least this share is taken to be left in the residuals.
LEAST_LEFT = 0.1


class Robust(NamedTuple):
    """Variances of the reported numbers and their degrees of freedom, shape `(k,)`; B [s]."""

    variances: np.ndarray
    degrees: np.ndarray
    bandwidth: float


def robust_of(
    experiments: Sequence[Experiment],
    r: Sequence[Float[np.ndarray, "_n _c"]],
    J: Sequence[Float[np.ndarray, "_n _c u"]],
    bends: Sequence[Float[np.ndarray, "_n _c"]],
    others: Float[np.ndarray, "g u"],
    directions: Float[np.ndarray, "u s"],
    D: Float[np.ndarray, "k u"],
) -> Robust:
    """Variances of the numbers whose derivatives by the unknowns are `D`.

    **Arguments:** records, and of each one weighted residuals and their Jacobian, by the components
    of its sensors; `bends`, second derivatives of their loss in units of the squared first one of
    its root, one for squares; `others`, the Jacobian of gaps and priors, whose variance is one;
    `directions`, of the unknowns that the data see.
    """
    J = [x @ directions for x in J]
    G, E = others @ directions, D @ directions
    gram = G.T @ G + sum(_product(x, np.ones(x.shape[:2])) for x in J)
    # With other losses than squares JᵀJ is not the second derivative of what is minimized.
    hessian = G.T @ G + sum(_product(x, w) for x, w in zip(J, bends, strict=True))
    influence = np.linalg.solve(hessian, E.T)
    orthonormal = np.linalg.inv(np.linalg.cholesky(gram)).T
    readings = [Readings(a, x @ influence, x @ orthonormal) for a, x in zip(r, J, strict=True)]
    found = robust_variances(join_records(experiments, readings))
    variances = found.variances + np.sum((G @ influence) ** 2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = found.degrees * (variances / found.variances) ** 2
    return Robust(variances, np.where(np.isnan(degrees), np.inf, degrees), found.bandwidth)


def _product(
    J: Float[np.ndarray, "n c s"], weights: Float[np.ndarray, "n c"]
) -> Float[np.ndarray, "s s"]:
    flat = J.reshape(weights.size, J.shape[2])
    return (weights.reshape(-1, 1) * flat).T @ flat


def robust_variances(motions: Sequence[Motion]) -> Robust:
    """Variances of reported numbers by the readings, corrected for there being few of them.

    Derivatives by the unknowns are in units in which the columns of all motions together are
    orthonormal. Residuals are smaller than the noise, since the fit has followed it: the sum is
    divided by the share that would be left of white noise. Degrees of freedom are those of a χ²
    variable of the same mean and variance, less one, after Bell & McCaffrey (2002). For the mean
    of m whole records of one length these are the usual m / (m - 1) and m - 1; for the mean of one
    long record, intervals are those of Kiefer & Vogelsang (2005) to a few per cent.
    """
    step = float(np.median(np.concatenate([np.diff(m.ts) for m in motions])))
    B = max(_bandwidth(motions, step), step)
    degrees = _degrees(motions, B)
    while step < B and np.min(degrees) < FEWEST_DEGREES:
        B = max(0.8 * B, step)
        degrees = _degrees(motions, B)
    total, white, lost = (
        np.sum([f(m) for m in motions], axis=0)
        for f in (
            lambda m: _windowed(m.ts, m.z, B),
            lambda m: np.sum(m.pulls**2, axis=(0, 1)),
            lambda m: _lost(m, B),
        )
    )
    # Where nothing pulls at a number its variance is zero with any correction.
    left = np.maximum(1.0 - lost / np.where(white > 0, white, 1.0), LEAST_LEFT)
    return Robust(total / left, np.maximum(degrees, 1.0), B)


def _windowed(
    ts: Float[np.ndarray, "n"], z: Float[np.ndarray, "n k"], B: float
) -> Float[np.ndarray, "k"]:
    """Σ z(s) z(t) max(0, 1 - abs(s - t)/B), by the sums inside of a window at all its places."""
    places = np.sort(np.concatenate([ts - B, ts]))  # Where a reading enters, or leaves.
    middle, share = 0.5 * (places[1:] + places[:-1]), np.diff(places) / B
    before = np.concatenate([np.zeros((1, z.shape[1])), np.cumsum(z, axis=0)])
    inside = before[np.searchsorted(ts, middle + B)] - before[np.searchsorted(ts, middle)]
    return share @ inside**2


def _lost(motion: Motion, B: float) -> Float[np.ndarray, "k"]:
    """What the fit takes from `_windowed` where noise is white, of variance one."""
    found = []
    for pulls in np.moveaxis(motion.pulls, 2, 0):
        along = np.einsum("nc,ncu->nu", pulls, motion.J)
        found.append(np.sum(_windowed(motion.ts, along, B)))
    return np.array(found)


def _degrees(motions: Sequence[Motion], B: float) -> Float[np.ndarray, "k"]:
    """2 (mean)² / variance of `_windowed` where noise is white, less one."""
    mean, squares = np.zeros(()), np.zeros(())
    for m in motions:
        a = np.sum(m.pulls**2, axis=1)
        # Σ a(s) a(t) (1 - (t - s)/B)² over s < t, by sums of powers of s/B: no loop over pairs.
        x = np.expand_dims((m.ts - m.ts[0]) / B, 1)
        first = np.searchsorted(m.ts, m.ts - B, side="right")
        before = [np.concatenate([0.0 * a[:1], np.cumsum(a * x**p, axis=0)]) for p in range(3)]
        a0, a1, a2 = (y[:-1] - y[first] for y in before)
        earlier = (1.0 - x) ** 2 * a0 + 2.0 * (1.0 - x) * a1 + a2
        mean = mean + np.sum(a, axis=0)
        squares = squares + np.sum(a * (a + 2.0 * earlier), axis=0)
    return np.where(mean > 0, mean**2 / np.where(mean > 0, squares, 1.0) - 1.0, np.inf)


def _bandwidth(motions: Sequence[Motion], step: float) -> float:
    """B that suits the component that is correlated longest, as if all of them were.

    For a correlation that falls like exp(-h/τ), (3/2 τ² n)^(1/3) samples make the mean square error
    of the variance least (Andrews 1991).
    """
    series: dict[str, list[np.ndarray]] = {}
    for m in motions:
        for name, x in m.series.items():
            series.setdefault(name, []).append(x)
    n = sum(len(m.ts) for m in motions)
    tau = max(map(correlation_lags, series.values()))
    return step * LONGER * (1.5 * tau**2 * n) ** (1 / 3)


def correlation_lags(series: Sequence[np.ndarray]) -> float:
    """For how many samples residuals of one sensor stay correlated: Σ h ρ(h) / (1/2 + Σ ρ(h)).

    ρ are the sizes of autocorrelations, up to the lag after which they stay within the band of
    white noise (Bartlett's) for as long again. 2ρ / (1 - ρ²) for an autoregression of order one.
    """
    rho = np.abs(autocorrelation(series, max(map(len, series)) // 2))[1:]
    squares = np.concatenate([[0.0], np.cumsum(rho**2)[:-1]])
    within = rho <= BAND * np.sqrt((1.0 + 2.0 * squares) / sum(map(len, series)))
    outside = np.concatenate([[0], np.cumsum(~within)])
    # Autocorrelations that swing about zero pass through the band on their way: hence as long.
    ends = np.minimum(2 * np.arange(len(outside)) + FEWEST_LAGS, len(rho))
    m = int(np.argmax(outside[ends] == outside))
    h = np.arange(1, m + 1)
    return float(np.sum(h * rho[:m]) / (0.5 + np.sum(rho[:m])))


__all__ = ["Robust", "correlation_lags", "robust_of", "robust_variances"]
