"""What many scenarios say together; those that failed are left out."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import ModelError
from ...model.model import unknown


def mean(results: Any, name: str, weights: Any = None) -> Any:
    """Mean of a result and its scatter.

    **Arguments:** `results` of `mbd.sweep`; the `name` of one of them; `weights` of the scenarios,
    shape `(n,)`, where they were drawn from another law than the one that is asked for: ratios of
    the two densities, up to a factor.

    **Returns** a dataset with the dimensions of one scenario's result: `mean`, `deviation` (of the
    results), `standard_error` (of the mean, for scenarios that do not depend on each other).
    """
    values, share = _values(results, name, weights)
    centre = np.tensordot(share, values, 1)
    square = (values - centre) ** 2
    n = 1.0 / np.sum(share**2)  # Of scenarios, where their weights are equal.
    correction = n / (n - 1.0) if n > 1.0 else np.nan  # Nothing is known of one scenario's scatter.
    found = {
        "mean": centre,
        "deviation": np.sqrt(correction * np.tensordot(share, square, 1)),
        "standard_error": np.sqrt(correction * np.tensordot(share**2, square, 1)),
    }
    return _dataset(results, name, found)


def quantiles(results: Any, name: str, shares: Sequence[float], weights: Any = None) -> Any:
    """Values below which given shares of all scenarios lie: bands, where the result is a motion.

    **Arguments:** as for `mean`; `shares` between 0 and 1, such as `(0.05, 0.5, 0.95)`.

    **Returns** a data array with the dimension `quantile` before those of one scenario's result.
    """
    given = np.asarray(shares, dtype=float)
    if given.ndim != 1 or not np.all((given >= 0) & (given <= 1)):
        raise ModelError(f"quantiles: shares are numbers between 0 and 1, got {shares!r}")
    values, share = _values(results, name, weights)
    if weights is None:
        found = np.quantile(values, given, axis=0)
    else:
        found = np.quantile(values, given, axis=0, weights=share, method="inverted_cdf")
    variable = _one(results, name)
    return variable.expand_dims(quantile=given).copy(data=found).rename(name)


def extremes(results: Any, name: str) -> Any:
    """Smallest and largest values, and the scenarios in which they occur.

    **Returns** a dataset with the dimensions of one scenario's result: `minimum`, `maximum`, and
    the numbers of scenarios `lowest` and `highest`.
    """
    values, _ = _values(results, name, None)
    numbers = np.asarray(results["scenario"])[~np.asarray(results["failed"])]
    found = {
        "minimum": values.min(axis=0),
        "maximum": values.max(axis=0),
        "lowest": numbers[values.argmin(axis=0)],
        "highest": numbers[values.argmax(axis=0)],
    }
    return _dataset(results, name, found)


def probability(
    results: Any, event: Callable[[Any], Any], weights: Any = None, failed: bool | None = None
) -> Any:
    """How likely an event is, for example that a bearing is overloaded.

    **Arguments:**

    - `event`: a function of `results` that returns one truth value for each scenario.
    - `weights`: as for `mean`.
    - `failed`: whether a scenario that failed counts as the event; it is left out where this is.

    **Returns** a dataset: `probability` p; its `standard_error`, √(p (1 − p) / n) for n scenarios
    of equal weight that do not depend on each other, zero where the event was always or never
    seen; `lower` and `upper`, the limits of Wilson's interval of 95 %, which hold there too; `n`,
    with weights the number of scenarios of equal weight that say as much, (Σw)² / Σw².
    """
    happened = np.asarray(event(results))
    lost = np.asarray(results["failed"])
    if happened.dtype != bool or happened.shape != lost.shape:
        raise ModelError(
            f"probability: the event must be a truth value for each of {lost.size} scenarios, got "
            f"{happened.dtype} of shape {happened.shape}"
        )
    kept = ~lost if failed is None else np.ones_like(lost)
    happened = happened if failed is None else np.where(lost, failed, happened)
    share = _shares(weights, kept)
    p = float(np.sum(share * happened[kept]) / np.sum(share))  # One where it always happened.
    n = 1.0 / float(np.sum(share**2))
    error = float(np.sqrt(np.sum((share * (happened[kept] - p)) ** 2)))
    z = 1.959963984540054
    middle, width = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = ((middle + sign * width) / (1 + z**2 / n) for sign in (-1.0, 1.0))
    found = {"probability": p, "standard_error": error, "lower": low, "upper": high, "n": n}
    return type(results)(found)


def _values(results: Any, name: str, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Results of the scenarios that did not fail, and weights whose sum is one."""
    if name not in results.data_vars:
        raise ModelError(unknown("unknown result", name, dict.fromkeys(results.data_vars)))
    kept = ~np.asarray(results["failed"])
    return np.asarray(results[name])[kept], _shares(weights, kept)


def _shares(weights: Any, kept: np.ndarray) -> np.ndarray:
    if not kept.any():
        raise ModelError("all scenarios failed; see `reason`")
    given = np.ones(kept.shape) if weights is None else np.asarray(weights, dtype=float)
    if given.shape != kept.shape or not np.all(np.isfinite(given) & (given >= 0)):
        raise ModelError(
            f"weights must be {kept.size} numbers that are finite and not negative, one for each "
            "scenario"
        )
    if not np.any(given[kept] > 0):
        raise ModelError("weights of all scenarios that did not fail are zero")
    return given[kept] / np.sum(given[kept])


def _one(results: Any, name: str) -> Any:
    """The variable of one scenario, without what belongs to that one alone."""
    return results[name].isel(scenario=0).reset_coords(drop=True)


def _dataset(results: Any, name: str, found: dict[str, Any]) -> Any:
    variable = _one(results, name)
    made = {key: variable.copy(data=values) for key, values in found.items()}
    return type(results)(made)
