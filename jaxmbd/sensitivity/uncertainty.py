"""Linear propagation of uncertainty, from parameters to results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DataError, ModelError
from ..identification.fit import Fit

# Largest asymmetry and negative eigenvalue of a covariance by rounding, by its variances.
TOLERANCE = 1e-9
# Largest difference of a fit's value and the linearization's, in standard errors.
OFF = 1e-2


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The result of `Sensitivities.propagate`; `print` it for a table of scalar results.

    - `labels`, `covariance`: of the parameters, shape `(k, k)`.
    - `outputs`: `{name: array}`, the results.
    - `deviations`: `{name: array}`, standard deviations of the results.
    - `shares`: `{name: array}`, the part of a result's variance due to each parameter, with a
      leading axis of length k; NaN if the variance is zero. None if parameters are correlated: the
      variance is then not a sum of such parts.
    """

    labels: tuple[str, ...]
    covariance: np.ndarray
    outputs: dict[str, np.ndarray]
    deviations: dict[str, np.ndarray]
    shares: dict[str, np.ndarray] | None

    def __str__(self) -> str:
        numbers = [name for name, y in self.outputs.items() if y.ndim == 0]
        arrays = [f"{name} {y.shape}" for name, y in self.outputs.items() if y.ndim]
        wide = max(map(len, [*numbers, "result"]))
        parts = self.labels if self.shares is not None else ()
        heads = [f"{label:>{max(len(label), 6)}}" for label in parts]
        lines = ["  ".join([f"{'result':<{wide}}  {'value':>12}  {'std. dev.':>12}", *heads])]
        for name in numbers:
            row = f"{name:<{wide}}  {self.outputs[name]:12.6g}  {self.deviations[name]:12.2g}"
            shares = [] if self.shares is None else self.shares[name]
            cells = [f"{s:{len(head)}.1%}" for s, head in zip(shares, heads, strict=True)]
            lines.append("  ".join([row, *cells]))
        lines = lines if numbers else []
        lines += [f"in deviations only: {', '.join(arrays)}"] * bool(arrays)
        return "\n".join(lines)


def propagated(
    labels: tuple[str, ...],
    covariance: Float[np.ndarray, "k k"],
    outputs: dict[str, np.ndarray],
    slopes: dict[str, np.ndarray],
) -> Uncertainty:
    """Variances diag(S C Sᵀ) of results with slopes S."""
    variances = np.diagonal(covariance)
    uncorrelated = not np.any(covariance - np.diag(variances))
    deviations, shares = {}, {}
    for name, dy in slopes.items():
        S = dy.reshape(len(labels), -1).astype(float)
        variance = np.maximum(np.einsum("kn,kl,ln->n", S, covariance, S, optimize=True), 0.0)
        deviations[name] = np.sqrt(variance).reshape(dy.shape[1:])
        with np.errstate(invalid="ignore", divide="ignore"):
            shares[name] = (variances[:, None] * S**2 / variance).reshape(dy.shape)
    return Uncertainty(labels, covariance, outputs, deviations, shares if uncorrelated else None)


def covariance_of(
    given: Any, labels: tuple[str, ...], values: Float[np.ndarray, "k"], ignore: tuple[str, ...]
) -> Float[np.ndarray, "k k"]:
    """The covariance of parameters; `given` as for `Sensitivities.propagate`."""
    if isinstance(given, Fit):
        return _of_fit(given, labels, values, ignore)
    if ignore:
        raise ModelError("propagate: ignore is for labels of a Fit")
    if isinstance(given, Mapping):
        deviations = by_label(given, labels, "deviations")
        _refuse(labels, deviations < 0, "deviations must not be negative")
        return np.diag(deviations**2)
    C = np.asarray(given, dtype=float)
    if C.shape != (len(labels), len(labels)):
        raise ModelError(
            f"propagate: a covariance of {', '.join(labels)} has shape {(len(labels),) * 2}, got "
            f"{C.shape}; give deviations as a dict"
        )
    _refuse(labels, ~np.isfinite(np.abs(C).max(axis=1)), "the covariance must be finite")
    variances = np.diagonal(C)
    _refuse(labels, variances < 0, "variances must not be negative")
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    unit = C / np.outer(scale, scale)
    if np.abs(unit - unit.T).max() > TOLERANCE or np.linalg.eigvalsh(unit)[0] < -TOLERANCE:
        raise ModelError(
            "propagate: a covariance is symmetric, and no combination of the parameters has a "
            "negative variance"
        )
    return C


def by_label(
    given: Mapping[str, float], labels: Sequence[str], what: str
) -> Float[np.ndarray, "k"]:
    """Numbers in the order of the labels; **raises** `ModelError` unless there is one for each."""
    missing, other = set(labels) - set(given), set(given) - set(labels)
    if missing or other:
        wrong = [f"no {', '.join(sorted(missing))}"] * bool(missing)
        wrong += [f"unknown {', '.join(sorted(map(str, other)))}"] * bool(other)
        raise ModelError(f"sensitivities: {what} are for {', '.join(labels)}: {'; '.join(wrong)}")
    numbers = np.array([float(given[label]) for label in labels])
    _refuse(labels, ~np.isfinite(numbers), f"{what} must be finite")
    return numbers


def _of_fit(
    fit: Fit, labels: tuple[str, ...], values: Float[np.ndarray, "k"], ignore: tuple[str, ...]
) -> Float[np.ndarray, "k k"]:
    missing = [label for label in labels if label not in fit.labels]
    if missing:
        raise ModelError(f"propagate: the fit has no {', '.join(missing)}, only {fit.labels}")
    others = [n for n in fit.labels if n not in labels and n not in ignore]
    if others:
        raise ModelError(
            f"propagate: the fit also has {', '.join(others)}; select them, too, or ignore them if "
            "no result depends on them"
        )
    rows = [fit.labels.index(label) for label in labels]
    deviations, fitted = fit.standard_errors[rows], fit.values[rows]
    unseen = [n for n, x in zip(labels, deviations, strict=True) if not np.isfinite(x)]
    if unseen:
        raise DataError(
            f"propagate: the fit's data cannot distinguish {', '.join(unseen)} from others, so "
            "that they have no standard error; fix some of them, or give a covariance"
        )
    tolerance = OFF * deviations + np.sqrt(np.finfo(values.dtype).eps) * np.abs(fitted)
    for label, ours, its, differs in zip(
        labels, values, fitted, np.abs(values - fitted) > tolerance, strict=True
    ):
        if differs:
            raise ModelError(
                f"propagate: {label!r} is {ours:.6g} here and {its:.6g} in the fit; take "
                "sensitivities at fit.model, and not by a factor (Scaled), which is one at "
                "fit.model"
            )
    return fit.covariance[np.ix_(rows, rows)]


def _refuse(labels: Sequence[str], wrong: np.ndarray, message: str) -> None:
    named = [label for label, bad in zip(labels, wrong, strict=True) if bad]
    if named:
        raise ModelError(f"sensitivities: {message}: {', '.join(named)}")
