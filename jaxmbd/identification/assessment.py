"""Evidence for and against a fitted model, as plain numbers: what a certificate states.

Sources: Ljung and Box, "On a measure of lack of fit in time series models" (1978), for the test of
residuals; Wensing, Kim and Slotine, "Linear matrix inequalities for physically consistent inertial
parameter identification" (2018), for pseudo-inertias.
"""

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from jax.tree_util import GetAttrKey

from ..bodies import RigidBody
from ..errors import ModelError
from ..joints import Prismatic, Revolute
from ..model import Model
from .experiment import Experiment
from .fit import Fit, Overlay, Search, outcome, rms_of
from .held import held_overlays, horizon_errors
from .parameters import Parameter, Selected, Subject
from .problem import Problem
from .statistics import autocorrelation, residual_series
from .substeps import IntegrationWarning
from .summary import BoundWarning, RankWarning
from .transforms import Scaled

# Units of the reported numbers of a fit, from the places of their leaves in the model -------------

PLAIN = {
    "mass": "kg",
    "com": "m",
    "inertia": "kg m²",
    "armature": "kg m²",
    "p": "m",
    "g": "m/s²",
    "resistance": "Ω",
    "inductance": "H",
    "torque_constant": "N m/A",
    "gear_ratio": "1",
    "exponent": "1",
    "gain": "1",
    "ratio": "1",
    "delay": "s",
    "period": "s",
    "sample_time": "s",
    "filter_time": "s",
    "rest_length": "m",
    "axial_stiffness": "N",
    "scale": "1",
}
# Units for rotation and for translation, by field.
BY_MOTION = {
    "coefficient": ("N m s/rad", "N s/m"),
    "viscous": ("N m s/rad", "N s/m"),
    "damping": ("N m s/rad", "N s/m"),
    "stiffness": ("N m/rad", "N/m"),
    "torque": ("N m", "N"),
    "coulomb": ("N m", "N"),
    "static": ("N m", "N"),
    "stribeck": ("N m", "N"),
    "offset": ("N m", "N"),
    "limit": ("N m", "N"),
    "quadratic": ("N m s²/rad²", "N s²/m²"),
    "load": ("1", "1"),
    "load_stribeck": ("1", "1"),
    "load_quadratic": ("1/(N m)", "1/N"),
    "transition_torque": ("N m", "N"),
    "stribeck_velocity": ("rad/s", "m/s"),
    "transition_velocity": ("rad/s", "m/s"),
    "damping_velocity": ("rad/s", "m/s"),
    "rest": ("rad", "m"),
    "lower": ("rad", "m"),
    "upper": ("rad", "m"),
    "backlash": ("rad", "m"),
    "yield_twist": ("rad", "m"),
}
UNKNOWN = "SI"


def units_of(selected: Selected) -> list[str]:
    """A unit for each reported number; `"SI"` where the place of the leaf does not determine it."""
    units = []
    for name, p in zip(selected.names, selected.parameters, strict=True):
        labels = p.transform.labels(name, p.get(selected.subject))
        units += [_unit(p, label.removeprefix(name).strip(), selected.subject) for label in labels]
    return units


def _unit(p: Parameter, part: str, subject: Subject) -> str:
    """Unit of one number of a parameter; `part` is its label without the name of the parameter."""
    if isinstance(p.transform, Scaled):
        return "1"
    for start, unit in (("mass", "kg"), ("com ", "m"), ("J", "kg m²")):
        if part.startswith(start):
            return unit
    place = _place(p.get(subject), subject)
    if place is None:
        return UNKNOWN
    fields = [key.name for key in place if isinstance(key, GetAttrKey)]
    field = fields[-1]
    if field in PLAIN:
        return PLAIN[field]
    if field not in BY_MOTION:
        return UNKNOWN
    slides = _slides(place, subject.model)
    return UNKNOWN if slides is None else BY_MOTION[field][int(slides)]


def _place(leaf: Any, subject: Subject) -> tuple[Any, ...] | None:
    """The keys that lead to an array; None if it is none of the leaves."""
    found = jax.tree_util.tree_flatten_with_path(subject)[0]
    return next((place for place, x in found if x is leaf), None)


def _slides(place: tuple[Any, ...], model: Model) -> bool | None:
    """True if a component acts on a translation, False if on a rotation, None if on both."""
    kind, name = (str(getattr(key, "name", getattr(key, "key", ""))) for key in place[1:3])
    if kind != "forces":
        return None
    force: Any = model.forces[name]
    reference = getattr(force, "joint", None)
    if reference is None:  # Springs, cables and contacts between frames.
        return True
    joint = model.joints.get(reference.name)
    return {Prismatic: True, Revolute: False}.get(type(joint))


HORIZONS = (0.1, 0.5, 2.0)  # [s]
MOST_FOLDS = 5
MOST_LAGS = 20


def whiteness(overlays: Sequence[Mapping[str, Overlay]]) -> dict[str, dict[str, float]]:
    """Ljung and Box's test of the residuals of every component of every sensor.

    **Returns** `{component: {"lags", "statistic", "p", "first"}}`: the number of lags, the
    statistic, the probability of a larger one for white residuals, and the autocorrelation at lag
    one. Series of several records count together; pairs of samples are within a record.
    """
    from scipy import stats  # Takes a second to load.

    found = {}
    for name, parts in residual_series(overlays).items():
        n = sum(map(len, parts))
        lags = max(1, min(MOST_LAGS, max(map(len, parts)) // 4))
        rho = autocorrelation(parts, lags)[1:]
        pairs = np.array([sum(max(len(x) - k, 0) for x in parts) for k in range(1, lags + 1)])
        weights = np.divide(1.0, pairs, out=np.zeros(lags), where=pairs > 0)
        statistic = float(n * (n + 2) * np.sum(weights * rho**2))
        p = float(stats.chi2.sf(statistic, lags))
        found[name] = {"lags": lags, "statistic": statistic, "p": p, "first": float(rho[0])}
    return found


def feasibility(model: Model, fitted: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each rigid body: whether some distribution of mass has its inertia.

    - `least`: the least eigenvalue of the pseudo-inertia about the centre of mass by the largest.
      It is positive if and only if the body is possible.
    - `triangle`: the least of J₁ + J₂ - J₃ of the principal moments, by their sum.
    - `fitted`: whether the fit changed it.
    """
    found = {}
    for name, body in model.bodies.items():
        if not isinstance(body, RigidBody):
            continue
        mass, J = float(body.mass), np.asarray(body.symmetric_inertia(), dtype=float)
        moments = np.linalg.eigvalsh(J)
        total = max(float(np.sum(np.abs(moments))), np.finfo(float).tiny)
        second = np.linalg.eigvalsh(0.5 * np.trace(J) * np.eye(3) - J)
        least = float(second[0] / max(float(np.abs(second).max()), np.finfo(float).tiny))
        found[name] = {
            "mass": mass,
            "least": least if mass > 0 else min(least, mass),
            "triangle": float((moments[0] + moments[1] - moments[2]) / total),
            "possible": bool(mass > 0 and second[0] > 0),
            "fitted": name in fitted,
        }
    return found


def cross_validation(fit: Fit) -> dict[str, Any] | None:
    """Errors in records that were left out of fits of the others, in up to five folds.

    Records of a fold are neighbours in the list, since windows of one motion resemble one another.
    Where the fit had initial states among its unknowns, those of the records left out are fitted,
    with parameters held. Deflections and modes are part of all fits.

    **Returns** None with fewer than two motions; else `{"folds", "converged", "rms", "ratio",
    "largest_shift"}`: whether all fits ended with exact motions, errors by sensor, by those of the
    fit to all records, and the largest change of a parameter in its standard errors.
    """
    motions, others = fit.problem.records("cross_validation")
    if len(motions) < 2:
        return None
    folds = np.array_split(np.arange(len(motions)), min(MOST_FOLDS, len(motions)))
    left_out, shifts, converged = [], [], True
    for fold in folds:
        # All fits have the same records, and all predictions equally many: they share programs.
        kept = [_without_readings(x) if i in fold else x for i, x in enumerate(motions)]
        again = refit(fit, [*kept, *others])
        exact = _integration_share(again) <= THRESHOLDS["integration_share"]
        converged = converged and exact and outcome(again.result) == "converged"
        as_many = np.resize(fold, len(folds[0]))
        left_out += held_overlays(again, [motions[i] for i in as_many])[: len(fold)]
        with np.errstate(invalid="ignore", divide="ignore"):
            moved = np.abs(again.values - fit.values) / fit.standard_errors
        shifts.append(float(np.max(moved, initial=0.0, where=np.isfinite(moved))))
    rms = rms_of(left_out)
    return {
        "folds": len(folds),
        "converged": converged,
        "rms": rms,
        "ratio": {n: x / max(fit.rms[n], _resolution(fit, n)) for n, x in rms.items()},
        "largest_shift": max(shifts),
    }


def _without_readings(record: Experiment) -> Experiment:
    """A record none of whose samples count."""
    none = {name: np.zeros(x.shape, dtype=bool) for name, x in record.measurements.items()}
    return record.with_(valid=none)


def _resolution(fit: Fit, sensor: str) -> float:
    """The error of a sensor below which fits are exact: of integration, or of minimization."""
    largest = _largest_reading(fit, sensor)
    return max(fit.integration_error.get(sensor, 0.0), 1e-5 * largest, 1e-300)


def _largest_reading(fit: Fit, sensor: str) -> float:
    readings = (x[sensor].measured for x in fit.overlays if sensor in x)
    return max(float(np.nanmax(np.abs(x), initial=0.0)) for x in readings)


def refit(fit: Fit, experiments: Sequence[Any]) -> Fit:
    """The same problem with other records, from the fitted model, without warnings.

    It starts at the starting model if the fit ended at a bound, where transforms have no numbers.
    """

    changed = dataclasses.replace(fit.problem, experiments=list(experiments), substeps=fit.substeps)
    if not fit.bounds:
        warm = dataclasses.replace(changed, model=fit.model, sensors=fit.sensors)
        with suppress(ModelError):
            return fitted_again(warm, fit.search._replace(starts=1))
    return fitted_again(changed, fit.search)


def fitted_again(problem: Problem, search: Search) -> Fit:
    """A fit with given options; it neither warns nor raises if it fails."""
    from .identify import identify  # `identify` makes fits.

    with warnings.catch_warnings():
        for kind in (RankWarning, BoundWarning, IntegrationWarning):
            warnings.simplefilter("ignore", kind)
        return identify(
            problem,
            method=search.method,
            starts=search.starts,
            spread=search.spread,
            seed=search.seed,
            throw=False,
            progress=False,
        )


def parameters(fit: Fit) -> list[dict[str, Any]]:
    """Estimate, start, unit, errors, 95 % intervals and warnings of every reported number."""

    selected = fit.problem.residuals("certificate").selected
    at_bound = {name: str(bound) for bound in fit.bounds for name in bound.parameters}
    plain, robust = fit.intervals(), fit.intervals(robust=True)
    rows = []
    for k, (label, unit) in enumerate(zip(fit.labels, units_of(selected), strict=True)):
        warned = [f"at {at_bound[label]}"] if label in at_bound else []
        for group in fit.unseen:
            names = {name.partition(" #")[0] for name in group}
            if any(label == name or label.startswith(f"{name} ") for name in names):
                warned.append(f"not distinguished from {', '.join(group)}")
        if label not in at_bound and not np.isfinite(fit.standard_errors[k]):
            warned.append("the data do not determine it")
        elif plain[k, 0] < 0 < plain[k, 1]:
            warned.append("its interval contains zero")
        rows.append(
            {
                "name": label,
                "unit": unit,
                "start": float(fit.started_from[k]),
                "estimate": float(fit.values[k]),
                "standard_error": float(fit.standard_errors[k]),
                "robust_error": float(fit.robust_errors[k]),
                "interval": [float(x) for x in plain[k]],
                "robust_interval": [float(x) for x in robust[k]],
                "warnings": warned,
            }
        )
    return rows


# Checks and the verdict ---------------------------------------------------------------------------

THRESHOLDS: dict[str, float] = {
    "cross_validation_ratio": 1.5,
    "integration_share": 0.1,
    "relative_error": 0.25,
    "whiteness_p": 0.01,
}


def checks(
    fit: Fit, evidence: Mapping[str, Any], thresholds: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """Each requirement with its value in words; required ones decide, others warn."""

    def check(name: str, passed: Any, found: str, required: bool = True) -> dict[str, Any]:
        return {"name": name, "passed": bool(passed), "found": found, "required": required}

    state = outcome(fit.result)
    yield check("the fit converged", state == "converged" or bool(fit.bounds), state)
    groups = "; ".join(", ".join(names) for names in fit.unseen)
    yield check("the data distinguish all parameters", not groups, groups or "all")
    edges = "; ".join(map(str, fit.bounds))
    yield check("no parameter is at an edge", not edges, edges or "none")
    bodies = [name for name, x in evidence["feasibility"].items() if not x["possible"]]
    yield check("all bodies are possible", not bodies, ", ".join(bodies) or "all")
    share = _integration_share(fit)
    limit = thresholds["integration_share"]
    words = f"at most {share:.2g} of the residual"
    yield check(f"integration errors are below {limit:g} of residuals", share <= limit, words)
    yield from _prediction_checks(check, evidence, thresholds)
    values = evidence["parameters"]
    errors = [max(x["standard_error"], x["robust_error"]) for x in values]
    relative = [e / max(abs(x["estimate"]), 1e-300) for x, e in zip(values, errors, strict=True)]
    limit = thresholds["relative_error"]
    wide = [x["name"] for x, e in zip(values, relative, strict=True) if not e <= limit]
    name = f"standard errors are below {limit:g} of the estimates"
    yield check(name, not wide, ", ".join(wide) or "all", False)


def _integration_share(fit: Fit) -> float:
    """Largest integration error of a sensor, in residuals or in 1e-5 of its largest reading."""
    shares = [0.0]
    for name, error in fit.integration_error.items():
        largest = _largest_reading(fit, name)
        shares.append(float(error / max(fit.rms[name], 1e-5 * largest, 1e-300)))
    return max(shares)


def _prediction_checks(
    check: Any, evidence: Mapping[str, Any], thresholds: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    crossed, limit = evidence["cross_validation"], thresholds["cross_validation_ratio"]
    name = f"errors in records left out are below {limit:g} times those of the fit"
    if crossed is None:
        yield check(name, False, "fewer than two motions: none can be left out", required=False)
    else:
        found = ", ".join(f"{n} {x:.3g}" for n, x in crossed["ratio"].items())
        good = crossed["converged"] and all(x <= limit for x in crossed["ratio"].values())
        yield check(name, good, found + ("" if crossed["converged"] else ", a fold did not end"))
    least = thresholds["whiteness_p"]
    colored = [n for n, x in evidence["whiteness"].items() if x["p"] < least]
    words = f"correlated: {', '.join(colored)}; use robust errors" if colored else "white"
    yield check(f"residuals are white (p > {least:g})", not colored, words, required=False)


def assess(
    fit: Fit, validation: Sequence[Experiment], thresholds: Mapping[str, float]
) -> dict[str, Any]:
    """All evidence about a fit: everything in a certificate that follows from data and model."""
    motions, _ = fit.problem.records("certificate")
    start = fit.problem.model.bodies
    changed = [n for n, x in fit.model.bodies.items() if _differs(x, start[n])]
    evidence: dict[str, Any] = {
        "parameters": parameters(fit),
        "rms": dict(fit.rms),
        "comparisons": {x.name: x.rms for x in fit.comparisons},
        "degrees_of_freedom": float(fit.degrees_of_freedom),
        "substeps": fit.substeps,
        "result": outcome(fit.result),
        "horizons": horizon_errors(fit, validation or motions, HORIZONS) if motions else None,
        "whiteness": whiteness(fit.overlays),
        "cross_validation": cross_validation(fit),
        "validation": rms_of(held_overlays(fit, validation)) if len(validation) else None,
        "feasibility": feasibility(fit.model, changed),
    }
    made = list(checks(fit, evidence, thresholds))
    return evidence | {"checks": made, "verdict": verdict(made)}


def verdict(made: Sequence[Mapping[str, Any]]) -> str:
    """`"accepted"`, `"accepted with warnings"`, or `"rejected"` if a required check failed."""
    failed = [x for x in made if not x["passed"]]
    if any(x["required"] for x in failed):
        return "rejected"
    return "accepted with warnings" if failed else "accepted"


def _differs(body: Any, start: Any) -> bool:
    return any(
        not np.array_equal(np.asarray(getattr(body, f.name)), np.asarray(getattr(start, f.name)))
        for f in dataclasses.fields(body)
    )
