"""Statistics of the results of a sweep, without failed scenarios."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from ..model.model import unknown
from .distributions import design_of, indices, resampled

# Assumed error of results, in units of round-off.
ROUND_OFF = 1e3


def mean(results: Any, name: str, weights: Any = None) -> Any:
    """Mean, standard deviation and standard error of a result.

    **Arguments:** `results` of `mbd.sweep`; `name` of one result; `weights` of the scenarios, shape
    `(n,)`, if they were drawn from another distribution than the required one: ratios of the
    required density and the other, up to a factor.

    **Returns** a dataset with the dimensions of one scenario's result: `mean`, `deviation` (of the
    results), `standard_error` (of the mean, for independent scenarios).
    """
    values, share = _values(results, name, weights)
    centre = np.tensordot(share, values, 1)
    square = (values - centre) ** 2
    n = 1.0 / np.sum(share**2)  # The number of scenarios, if their weights are equal.
    correction = n / (n - 1.0) if n > 1.0 else np.nan  # One scenario has no standard deviation.
    statistics = {
        "mean": centre,
        "deviation": np.sqrt(correction * np.tensordot(share, square, 1)),
        "standard_error": np.sqrt(correction * np.tensordot(share**2, square, 1)),
    }
    return _dataset(results, name, statistics)


def quantiles(results: Any, name: str, shares: Sequence[float], weights: Any = None) -> Any:
    """Quantiles of a result over all scenarios; bands, if the result is a motion.

    **Arguments:** as for `mean`; `shares` between 0 and 1, such as `(0.05, 0.5, 0.95)`.

    **Returns** a data array with the dimension `quantile` before those of one scenario's result.
    """
    given = np.asarray(shares, dtype=float)
    if given.ndim != 1 or not np.all((given >= 0) & (given <= 1)):
        raise ModelError(f"quantiles: shares must be numbers between 0 and 1, got {shares!r}")
    values, share = _values(results, name, weights)
    if weights is None:
        numbers = np.quantile(values, given, axis=0)
    else:
        numbers = np.quantile(values, given, axis=0, weights=share, method="inverted_cdf")
    variable = _one(results, name)
    return variable.expand_dims(quantile=given).copy(data=numbers).rename(name)


def extremes(results: Any, name: str) -> Any:
    """Smallest and largest values, and numbers of their scenarios.

    **Returns** a dataset with the dimensions of one scenario's result: `minimum`, `maximum`, and
    the numbers of scenarios `lowest` and `highest`.
    """
    values, _ = _values(results, name, None)
    numbers = np.asarray(results["scenario"])[~np.asarray(results["failed"])]
    statistics = {
        "minimum": values.min(axis=0),
        "maximum": values.max(axis=0),
        "lowest": numbers[values.argmin(axis=0)],
        "highest": numbers[values.argmax(axis=0)],
    }
    return _dataset(results, name, statistics)


def probability(
    results: Any, event: Callable[[Any], Any], weights: Any = None, failed: bool | None = None
) -> Any:
    """Probability of an event, for example that a bearing is overloaded.

    **Arguments:**

    - `event`: a function of `results` that returns one truth value for each scenario.
    - `weights`: as for `mean`.
    - `failed`: whether failed scenarios count as the event. Default: None, they are left out.

    **Returns** a dataset: `probability` p; its `standard_error`, √(p (1 − p) / n) for n independent
    scenarios of equal weight, zero if the event occurred always or never; `lower` and `upper`,
    limits of Wilson's 95 % interval, which are valid then too; `n`, with weights the equivalent
    number of scenarios of equal weight, (Σw)² / Σw².
    """
    happened = np.asarray(event(results))
    lost = np.asarray(results["failed"])
    if happened.dtype != bool or happened.shape != lost.shape:
        raise ModelError(
            f"probability: the event must be a truth value for each of {lost.size} scenarios, got "
            f"{happened.dtype} of shape {happened.shape}"
        )
    counted = ~lost if failed is None else np.ones_like(lost)
    happened = happened if failed is None else np.where(lost, failed, happened)
    share = _shares(weights, counted)
    p = float(np.sum(share * happened[counted]) / np.sum(share))  # Exactly one if always.
    n = 1.0 / float(np.sum(share**2))
    error = float(np.sqrt(np.sum((share * (happened[counted] - p)) ** 2)))
    z = 1.959963984540054
    middle, width = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = ((middle + sign * width) / (1 + z**2 / n) for sign in (-1.0, 1.0))
    statistics = {"probability": p, "standard_error": error, "lower": low, "upper": high, "n": n}
    return type(results)(statistics)


def sobol_indices(
    results: Any, name: str, *, level: float = 0.95, resamples: int = 999, seed: int = 0
) -> Any:
    """Sobol's indices: shares of a result's variance due to each independent uncertain number.

    The first-order index V(E(y | p)) / V(y) is the share that would vanish if p were known; the
    total index E(V(y | all but p)) / V(y) is the share that would remain if all but p were known.
    They are computed by `scipy.stats.sobol_indices`, after Saltelli et al. (2010). Estimates of
    small indices may be negative.

    **Arguments:**

    - `results`: results of `mbd.sweep` for all scenarios of `mbd.distributions.saltelli`.
    - `name`: name of a result: a number, or for example a trajectory, with indices over time.
    - `level`, `resamples`, `seed`: level of the intervals, which are percentiles of bootstrap
      samples; number and seed of these. Bootstrap assumes independent scenarios; the estimates of
      `saltelli` scatter less.

    **Returns** a dataset with the dimension `parameter` before those of one scenario's result:
    `first_order` and `total`, each with `_lower` and `_upper`. NaN if the result does not vary
    beyond round-off, such as at the start of a trajectory.

    **Raises** `ModelError` if scenarios are not such a design, or if a scenario failed: an estimate
    without it would be for other distributions.
    """
    values, _ = _values(results, name, None)
    if not 0 < level < 1 or resamples < 1:
        raise ModelError(
            f"sobol_indices: level must be between 0 and 1, resamples one or more, got {level} and "
            f"{resamples}"
        )
    design = design_of(results)
    lost = np.asarray(results["failed"])
    if lost.any():
        first = int(np.argmax(lost))
        raise ModelError(
            f"sobol_indices: {lost.sum()} of {lost.size} scenarios failed, first scenario {first}: "
            f"{results['reason'].values[first]}; indices need all of them, so narrow the "
            "distributions, or let the function return something finite"
        )
    f = values.reshape(-1, design.n, int(np.prod(values.shape[1:]))).astype(float)
    eps = np.finfo(values.dtype if values.dtype.kind == "f" else float).eps
    varies = np.ptp(f, axis=(0, 1)) > ROUND_OFF * eps * np.max(np.abs(f), axis=(0, 1))
    estimates = np.full((3, 2, len(design.labels), f.shape[2]), np.nan)
    if varies.any():
        f = f[:, :, varies]
        estimates[0][..., varies] = indices(f)
        tails = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
        ends = np.quantile(resampled(f, resamples, seed), tails, axis=2)
        estimates[1:][..., varies] = ends
    variable = _one(results, name).expand_dims(parameter=design.labels)
    variables = {}
    for kind, key in enumerate(("first_order", "total")):
        for estimate, end in zip(estimates[:, kind], ("", "_lower", "_upper"), strict=True):
            variables[key + end] = variable.copy(data=estimate.reshape(variable.shape))
    return type(results)(variables)


def _values(results: Any, name: str, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Results of successful scenarios, and weights whose sum is one."""
    if name not in results.data_vars:
        raise ModelError(unknown("unknown result", name, dict.fromkeys(results.data_vars)))
    counted = ~np.asarray(results["failed"])
    return np.asarray(results[name])[counted], _shares(weights, counted)


def _shares(weights: Any, counted: np.ndarray) -> np.ndarray:
    if not counted.any():
        raise ModelError("all scenarios failed; `reason` in the results says why")
    given = np.ones(counted.shape) if weights is None else np.asarray(weights, dtype=float)
    if given.shape != counted.shape or not np.all(np.isfinite(given) & (given >= 0)):
        raise ModelError(
            f"weights must be {counted.size} numbers that are finite and not negative, one for "
            "each scenario"
        )
    if not np.any(given[counted] > 0):
        raise ModelError("weights of all scenarios that did not fail are zero")
    return given[counted] / np.sum(given[counted])


def _one(results: Any, name: str) -> Any:
    """The variable of one scenario, without its scenario coordinates."""
    return results[name].isel(scenario=0).reset_coords(drop=True)


def _dataset(results: Any, name: str, statistics: dict[str, Any]) -> Any:
    variable = _one(results, name)
    return type(results)({key: variable.copy(data=x) for key, x in statistics.items()})
