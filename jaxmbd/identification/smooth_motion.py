"""Velocities and accelerations from measured positions, by smoothing splines."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..model.values import as_count, as_leaf, require_concrete

DEGREE = 7  # Accelerations are then splines of degree 5.
GROWTH = 1.1  # Ratio of successive numbers of intervals.


class SmoothMotion(eqx.Module):
    """Smoothed positions with derivatives, the result of `smooth_motion`.

    - `ts`: times, shape `(n,)`; `q`, `v`, `vdot`: shape `(n, k)`.
    - `noise`: standard deviation of the positions' noise, shape `(k,)`.
    - `q_error`, `v_error`, `vdot_error`: standard deviations by this noise, shape `(n, k)`.
    - `intervals`: number of intervals of the spline of each position.
    """

    ts: Float[np.ndarray, "n"]
    q: Float[np.ndarray, "n k"]
    v: Float[np.ndarray, "n k"]
    vdot: Float[np.ndarray, "n k"]
    noise: Float[np.ndarray, "k"]
    q_error: Float[np.ndarray, "n k"]
    v_error: Float[np.ndarray, "n k"]
    vdot_error: Float[np.ndarray, "n k"]
    intervals: tuple[int, ...] = eqx.field(static=True)


def smooth_motion(ts: Any, positions: Any, intervals: int | None = None) -> SmoothMotion:
    """Smooth measured positions, and differentiate them twice.

    Each position is fitted by a spline of degree 7 with equal intervals. Generalized
    cross-validation chooses their number: as many as the noise allows, whatever the sampling rate.
    Nothing is resampled or delayed.

    **Arguments:**

    - `ts`: increasing times, shape `(n,)` [s]; `positions`: shape `(n,)` or `(n, k)`; angles
      without jumps by a turn; NaN is missing.
    - `intervals`: a number of intervals for all positions. Default: by cross-validation.

    Source: Craven & Wahba (1978), "Smoothing noisy data with spline functions", for the choice.

    **Raises** `DataError` for times that do not increase, for other shapes, and if there are too
    few measured positions.

    For example:

        motion = mbd.smooth_motion(ts, angles)
        motion.v, motion.vdot, motion.noise
    """
    require_concrete("smooth_motion", (ts, positions))
    times = np.asarray(as_leaf(ts, None, "smooth_motion: ts"), dtype=float)
    q = np.asarray(as_leaf(positions, None, "smooth_motion: positions"), dtype=float)
    if times.ndim != 1 or len(times) < 2 or not np.all(np.diff(times) > 0):
        raise DataError("smooth_motion: ts must be times that increase, shape (n,)")
    q = q[:, None] if q.ndim == 1 else q
    if q.ndim != 2 or len(q) != len(times):
        raise DataError(f"smooth_motion: positions have shape {q.shape}, needed is (n, k)")
    if intervals is not None:
        intervals = as_count(intervals, "smooth_motion: intervals")
    fits = [_fitted(times, column, k, intervals) for k, column in enumerate(q.T)]
    parts = [np.stack(x, axis=-1) for x in zip(*(fit[0] for fit in fits), strict=True)]
    errors = [np.stack(x, axis=-1) for x in zip(*(fit[1] for fit in fits), strict=True)]
    noise = np.array([fit[2] for fit in fits])
    q, v, vdot = parts
    q_error, v_error, vdot_error = errors
    intervals_of = tuple(fit[3] for fit in fits)
    return SmoothMotion(times, q, v, vdot, noise, q_error, v_error, vdot_error, intervals_of)


def _fitted(
    ts: np.ndarray, x: np.ndarray, number: int, given: int | None
) -> tuple[list[np.ndarray], list[np.ndarray], float, int]:
    """Position, velocity, acceleration, their errors, the noise and the number of intervals."""
    measured = np.isfinite(x)
    n = int(measured.sum())
    if n < 2 * (DEGREE + 1):
        raise DataError(
            f"smooth_motion: position {number} has {n} measured values, {2 * (DEGREE + 1)} needed"
        )
    most = max(1, n // 2 - DEGREE)
    counts = np.unique(np.geomspace(1, most, 2 + int(np.log(most) / np.log(GROWTH))).astype(int))
    if given is not None:
        counts = np.array([given])
    middle = x[measured].mean()
    own = ts[measured], x[measured] - middle
    found = [spline for m in counts if (spline := _spline(*own, int(m))) is not None]
    if not found:
        raise DataError(
            f"smooth_motion: position {number} has too few measured values for "
            f"{given or 1} intervals"
        )
    best = min(found, key=lambda spline: spline.score)
    q, v, vdot = best.values(ts)
    return [q + middle, v, vdot], best.errors(ts), best.noise, best.intervals


class _Spline(NamedTuple):
    """A spline with equal intervals, by least squares; `factor` is that of its normal equations."""

    knots: np.ndarray
    intervals: int
    coefficients: np.ndarray
    factor: np.ndarray
    noise: float
    score: float

    def values(self, ts: np.ndarray) -> list[np.ndarray]:
        """Values, first and second derivatives."""
        return [_basis(self.knots, ts, d) @ self.coefficients for d in range(3)]

    def errors(self, ts: np.ndarray) -> list[np.ndarray]:
        """Standard deviations of values and derivatives by the noise."""
        from scipy.linalg import solve_banded

        found, lower = [], _transposed(self.factor)
        for d in range(3):
            A = _basis(self.knots, ts, d).T.toarray()
            whitened = solve_banded((DEGREE, 0), lower, A)
            found.append(self.noise * np.linalg.norm(whitened, axis=0))
        return found


def _spline(ts: np.ndarray, x: np.ndarray, intervals: int) -> _Spline | None:
    """The spline that is nearest to x; None if the times do not determine it."""
    from scipy.linalg import cho_solve_banded, cholesky_banded

    inner = np.linspace(ts[0], ts[-1], intervals + 1)
    knots = np.concatenate([[ts[0]] * DEGREE, inner, [ts[-1]] * DEGREE])
    A = _basis(knots, ts)
    size = A.shape[1]
    band = np.zeros((DEGREE + 1, size))
    normal = A.T @ A
    for k in range(DEGREE + 1):
        band[DEGREE - k, k:] = normal.diagonal(k)
    try:
        factor = cholesky_banded(band)
    except np.linalg.LinAlgError:
        return None
    coefficients = cho_solve_banded((factor, False), A.T @ x)
    # Refined once, against the squared condition number of the normal equations.
    coefficients += cho_solve_banded((factor, False), A.T @ (x - A @ coefficients))
    left = float(np.sum((x - A @ coefficients) ** 2))
    free = len(ts) - size
    score = len(ts) * left / free**2 if free > 0 else np.inf
    noise = float(np.sqrt(left / max(free, 1)))
    return _Spline(knots, intervals, coefficients, factor, noise, score)


def _basis(knots: np.ndarray, ts: np.ndarray, derivative: int = 0) -> Any:
    """The sparse matrix of values of the basis functions, or of their derivatives."""
    from scipy.interpolate import BSpline
    from scipy.sparse import diags_array

    matrix: Any = None
    offsets: Any = (0, 1)
    for k in range(DEGREE, DEGREE - derivative, -1):
        # Coefficients of the derivative: differences, divided by distances of knots.
        size = len(knots) - k - 1
        factor = k / (knots[k + 1 : k + size] - knots[1:size])
        step = diags_array([-factor, factor], offsets=offsets, shape=(size - 1, size))
        matrix = step if matrix is None else step @ matrix
        knots = knots[1:-1]
    values: Any = BSpline.design_matrix(
        np.clip(ts, knots[0], knots[-1]), knots, DEGREE - derivative
    )
    return (values if matrix is None else values @ matrix).tocsr()


def _transposed(band: np.ndarray) -> np.ndarray:
    """The lower band of the transpose of an upper one."""
    result = np.zeros_like(band)
    for k in range(len(band)):
        row = band[len(band) - 1 - k]
        result[k, : row.size - k] = row[k:]
    return result
