"""Comparison of several fits to the same records: which model the evidence favours, and why.

Sources: Akaike, "A new look at the statistical model identification" (1974); Schwarz, "Estimating
the dimension of a model" (1978); Burnham and Anderson, "Model selection and multimodel inference"
(2002).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from .assessment import cross_validation, whiteness
from .fit import Fit, outcome

# Errors in records left out that differ by less than this part are equally good.
EQUAL_ERRORS = 0.02
# Information criteria that differ by less are equally good (Burnham and Anderson 2002).
EQUAL_CRITERIA = 2.0


class Candidate(NamedTuple):
    """One of the compared models.

    - `name`; `n_parameters`: number of reported numbers.
    - `rms`: `{sensor: root mean square residual}` of the fit.
    - `left_out`: `{sensor: root mean square error}` in records that were left out of fits of the
      others; None for one record.
    - `error`: errors in records left out by those of the best model, root mean square of the
      sensors; of residuals without `left_out`.
    - `aic`, `bic`: information criteria, less those of the best model. Readings count as
      independent of one another.
    - `whiteness`: least probability by Ljung and Box's test of its residuals.
    - `problems`: in words, what is wrong with the fit; such a model ranks behind all others.
    - `reason`: in words, why it has its place.
    """

    name: str
    n_parameters: int
    rms: dict[str, float]
    left_out: dict[str, float] | None
    error: float
    aic: float
    bic: float
    whiteness: float
    problems: tuple[str, ...]
    reason: str


class ModelComparison(NamedTuple):
    """The result of `compare_models`: `candidates`, best first; `print` a table with reasons."""

    candidates: tuple[Candidate, ...]

    @property
    def names(self) -> list[str]:
        """Names of the models, best first."""
        return [x.name for x in self.candidates]

    def __str__(self) -> str:
        width = max(len("model"), *(len(x.name) for x in self.candidates))
        heads = ("numbers", "error", "dAIC", "dBIC", "white p")
        lines = [f"{'model':<{width}}  " + "  ".join(f"{head:>9}" for head in heads)]
        for x in self.candidates:
            numbers = (x.error, x.aic, x.bic, x.whiteness)
            row = "  ".join(f"{number:9.3g}" for number in numbers)
            lines.append(f"{x.name:<{width}}  {x.n_parameters:9d}  {row}")
        lines += [f"{i}. {x.name}: {x.reason}" for i, x in enumerate(self.candidates, start=1)]
        return "\n".join(lines)

    def plot(self) -> Any:
        """Errors and information criteria of all models, as bars. Needs the extra `viz`.

        **Returns** a `matplotlib.figure.Figure` outside of pyplot.
        """
        from ..viz.fit_report import plot_comparison

        return plot_comparison(self)


def compare_models(
    fits: Mapping[str, Fit] | Sequence[Fit], *, cross_validate: bool = True
) -> ModelComparison:
    """Rank fits of several models to the same records, with reasons.

    Models are ranked by their errors in records that were left out of fits of the others; where
    these differ by less than 2 % of the best, by the Bayesian information criterion, and then by
    the number of parameters. Fits that did not converge, that ended at a bound, or that have
    parameters that the data cannot distinguish, rank behind all others. The ranking and the
    information criteria hold for these records: motions that they lack may favour another model.

    **Arguments:**

    - `fits`: `{name: fit}`, or a list of fits, which are named `"model 1"` and so on.
    - `cross_validate`: whether to fit each model to parts of the records, up to five times. If
      not, or with one record, models are ranked by the Bayesian information criterion alone.

    **Raises** `DataError` for fewer than two fits, and for fits of different readings.

    For example:

        record = mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": angles[0]})
        other = model.with_(forces={"bearing": mbd.forces.CoulombFriction("hinge", 0.05)})
        fits = {
            "viscous": mbd.identify(model, record, ["forces.bearing.coefficient"]),
            "dry": mbd.identify(other, record, ["forces.bearing.torque"]),
        }
        print(mbd.compare_models(fits))
    """
    named = _named(fits)
    _check_same(named)
    crossed = {
        name: cross_validation(fit) if cross_validate else None for name, fit in named.items()
    }
    left_out = {name: None if x is None else x["rms"] for name, x in crossed.items()}
    errors = _errors({name: left_out[name] or fit.rms for name, fit in named.items()})
    criteria = {name: _criteria(fit) for name, fit in named.items()}
    best = np.min([*criteria.values()], axis=0)
    made = []
    for name, fit in named.items():
        problems = _problems(fit)
        x = crossed[name]
        if x is not None and not x["converged"]:
            problems.append("a fit to a part of the records did not converge")
        aic, bic = (float(x) for x in criteria[name] - best)
        p = min((x["p"] for x in whiteness(fit.overlays).values()), default=float("nan"))
        made.append(
            Candidate(
                name,
                len(fit.labels),
                dict(fit.rms),
                left_out[name],
                errors[name],
                aic,
                bic,
                p,
                tuple(problems),
                "",
            )
        )
    return ModelComparison(tuple(_ranked(made)))


def _named(fits: Any) -> dict[str, Fit]:
    if isinstance(fits, Fit) or not isinstance(fits, Mapping | Sequence):
        raise DataError("compare_models needs {name: fit}, or a list of fits")
    if isinstance(fits, Mapping):
        named = {str(name): fit for name, fit in fits.items()}
    else:
        named = {f"model {i}": fit for i, fit in enumerate(fits, start=1)}
    for name, fit in named.items():
        if not isinstance(fit, Fit):
            raise DataError(f"compare_models: {name!r} is a {type(fit).__name__}, not a Fit")
    if len(named) < 2:
        raise DataError(f"compare_models needs two fits or more, got {len(named)}")
    return named


def _check_same(named: Mapping[str, Fit]) -> None:
    """**Raises** `DataError` unless all fits are of the same readings."""
    (first, reference), *others = named.items()
    for name, fit in others:
        same = len(fit.overlays) == len(reference.overlays) and all(
            a.keys() == b.keys() and all(np.array_equal(a[k].measured, b[k].measured) for k in a)
            for a, b in zip(fit.overlays, reference.overlays, strict=True)
        )
        if not same or not reference.overlays:
            raise DataError(
                f"compare_models: {name!r} and {first!r} must be fits of the same motions, with "
                "the same sensors"
            )


def _errors(rms: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Root mean square over the sensors of errors by the least of all models."""
    sensors = next(iter(rms.values()))
    tiny = np.finfo(float).tiny
    least = {s: max(min(of[s] for of in rms.values()), tiny) for s in sensors}
    ratios = {name: [of[s] / least[s] for s in sensors] for name, of in rms.items()}
    return {name: float(np.sqrt(np.mean(np.square(x)))) for name, x in ratios.items()}


def _criteria(fit: Fit) -> np.ndarray:
    """Akaike's and Schwarz's criteria, for normal residuals of unknown variance by sensor.

    -2 log L = Σ n log(rms²) up to a constant, and for deflections and modes, whose deviations are
    known, the sum of squares in deviations. Initial states and variances count as parameters.
    """
    sizes = {
        name: sum(x[name].measured.size for x in fit.overlays if name in x) for name in fit.rms
    }
    n = sum(sizes.values()) + sum(x.measured.size for x in fit.comparisons)
    deviance = sum(sizes[s] * np.log(max(fit.rms[s], np.finfo(float).tiny) ** 2) for s in fit.rms)
    deviance += sum(x.measured.size * x.rms**2 for x in fit.comparisons)
    starts = sum(x.size for x in fit.initial_states)
    k = len(fit.singular_values) if starts else len(fit.labels)
    k += len(fit.rms)
    return np.array([deviance + 2.0 * k, deviance + np.log(n) * k])


def _problems(fit: Fit) -> list[str]:
    state = outcome(fit.result)
    found = [] if state == "converged" or fit.bounds else [f"the fit did not converge: {state}"]
    found += [f"not distinguished by the data: {', '.join(names)}" for names in fit.unseen]
    return found + [f"at {bound}" for bound in fit.bounds]


def _ranked(made: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, best first, with reasons."""
    crossed = all(x.left_out is not None for x in made)
    good = [x for x in made if not x.problems]
    limit = min((x.error for x in good), default=np.inf) * (1.0 + EQUAL_ERRORS)

    def key(x: Candidate) -> tuple[Any, ...]:
        behind = crossed and x.error > limit
        near = EQUAL_CRITERIA * np.floor(x.bic / EQUAL_CRITERIA)
        return bool(x.problems), behind, x.error if behind else 0.0, near, x.n_parameters

    order = sorted(made, key=key)
    return [x._replace(reason=_reason(x, order[0], crossed, limit)) for x in order]


def _reason(x: Candidate, first: Candidate, crossed: bool, limit: float) -> str:
    white = "" if x.whiteness > 0.01 else "; its residuals are not white"
    if x.problems:
        return "; ".join(x.problems) + white
    if not crossed:
        why = "least" if x is first else f"{x.bic:.3g} above the least"
        return f"Bayesian criterion {why}; no records were left out{white}"
    if x.error > limit:
        more = 100.0 * (x.error / (limit / (1.0 + EQUAL_ERRORS)) - 1.0)
        return f"errors in records left out are {more:.3g} % above the least{white}"
    why = "errors in records left out are the least, within 2 %"
    if x is first:
        return f"{why}, and no such model has a lower Bayesian criterion by more than 2{white}"
    return f"{why}, but the Bayesian criterion is {x.bic - first.bic:.3g} above the first{white}"
