"""A fitted model on records with parameters held: initial states from readings, and predictions."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from scalarjit.with_room import with_room

from ..formulations import formulate
from ..model import Model
from ..programs import stored
from ..system import constraints
from ..system.joint_states import joint_states
from .batches import as_one
from .experiment import Experiment
from .fit import Fit, Overlay, overlays_of
from .minimizers import LevenbergMarquardt
from .multistart import minimum
from .parameters import Parameter
from .prediction import Simulator
from .problem import motions_of
from .residuals import Confinement, Residuals


def can_fit_starts(fit: Fit) -> bool:
    """True if initial states have independent coordinates, so that they can be fitted."""
    return not constraints.n_constraints(formulate(fit.model, fit.simulator.formulation))


def held_residuals(fit: Fit, records: Sequence[Experiment], starts: bool) -> Residuals:
    """Residuals of the fitted model on records, with no parameter that can change.

    `starts`: whether initial states are unknowns.
    """
    leaves = jax.tree.leaves(fit.model)
    row = next(i for i, x in enumerate(leaves) if eqx.is_inexact_array(x))
    problem = dataclasses.replace(
        fit.problem,
        model=fit.model,
        sensors=fit.sensors,
        experiments=list(records),
        select={"none": Parameter(lambda model: jax.tree.leaves(model)[row])},
        continuity=None,
        fit_initial_states=starts,
        substeps=fit.substeps,
        noise=_known_noise(fit, records),
    )
    residuals = problem.residuals("identify")
    anchor, _ = ravel_pytree(residuals.unknowns()[0])
    held = Confinement(anchor, jnp.zeros((anchor.size, anchor.size), anchor.dtype))
    return eqx.tree_at(lambda x: x.confinement, residuals, held, is_leaf=lambda x: x is None)


def _known_noise(fit: Fit, records: Sequence[Experiment]) -> dict[str, float]:
    """Weights of the sensors of records: their noise, or their residuals in the fit."""
    given = fit.problem.noise or {}
    names = {name for record in records for name in record.measurements}
    weights = {name: given.get(name, fit.rms.get(name, 1.0)) for name in names}
    return {name: float(x) if x > 0 else 1.0 for name, x in weights.items()}


def fitted_starts(residuals: Residuals) -> Any:
    """The unknowns of `held_residuals` with the initial states that fit the readings best."""
    firsts = as_one(residuals.unknowns())
    return minimum(LevenbergMarquardt(), residuals, firsts, throw=False).unknowns


def held_overlays(fit: Fit, records: Sequence[Experiment]) -> list[dict[str, Overlay]]:
    """Measured and predicted readings of records, with initial states as in the fit.

    If the fit had initial states among its unknowns, those of the records are fitted too, to their
    own readings; the parameters are not.
    """
    if not fit.problem.fit_initial_states:
        return fit.overlay(records)
    residuals = held_residuals(fit, records, starts=True)
    return _overlays(fit, residuals, records, fitted_starts(residuals))


def _overlays(
    fit: Fit, residuals: Residuals, records: Sequence[Experiment], unknowns: Any
) -> list[dict[str, Overlay]]:
    readings = motions_of(residuals, records, unknowns).run(fit.substeps)
    nearest = functools.partial(fit.simulator.nearest, fit.model)
    return overlays_of(nearest, records, readings)


# Errors of predictions over horizons -------------------------------------------------------------

MOST_WINDOWS = 24
# Readings before the start of a prediction from which its initial state follows: this share of a
# record, at most so many seconds, and at least so many readings for each unknown.
SHARE_BEFORE, LONGEST_BEFORE, READINGS_FOR_EACH = 0.25, 0.5, 3


def horizon_errors(
    fit: Fit, records: Sequence[Experiment], horizons: Sequence[float]
) -> dict[str, Any] | None:
    """Errors of predictions one step and so many seconds after the last reading that they use.

    The initial state of a prediction follows from the readings before it, with parameters held; the
    readings after it are compared with the prediction. For mechanisms whose initial states cannot
    be fitted, predictions start with the records, from their `guess`.

    **Returns** `{"before": seconds, "windows": number, "errors": {sensor: {horizon: rms}}}`. A
    horizon that no record reaches is None. All is None if records are too short.
    """
    fits = can_fit_starts(fit)
    before = [_rows_before(fit, record) if fits else 1 for record in records]
    cuts = list(_cuts(records, before, max(horizons)))
    if not cuts:
        return None
    if fits:
        motions = {i: _motion(fit, records[i]) for i in sorted({i for i, *_ in cuts})}
        starts = [_start(fit, records[i], motions[i], a, n) for i, a, _, n in cuts]
        parts = [(records[i], start) for (i, *_), start in zip(cuts, starts, strict=True)]
        spans = [(a, b, n) for _, a, b, n in cuts]
        long = [x.part(a, b, *y) for (x, y), (a, b, _) in zip(parts, spans, strict=True)]
        short = [x.part(a, a + n, *y) for (x, y), (a, _, n) in zip(parts, spans, strict=True)]
        unknowns = fitted_starts(held_residuals(fit, short, starts=True))
    else:
        long = [records[i] for i, *_ in cuts]
        unknowns = held_residuals(fit, long, starts=False).unknowns()
    overlays = _overlays(fit, held_residuals(fit, long, starts=fits), long, unknowns)
    found: dict[str, dict[str, list[np.ndarray]]] = {}
    for overlay, record, (*_, n) in zip(overlays, long, cuts, strict=True):
        last = float(record.ts[n - 1])
        for name, x in overlay.items():
            of = found.setdefault(name, {"one step": [], **{f"{h:g} s": [] for h in horizons}})
            error = np.reshape(x.predicted - x.measured, (len(x.ts), -1))
            for key, row in _rows_at(x.ts, last, horizons).items():
                of[key].append(error[row])
    seconds = [float(records[i].ts[n - 1] - records[i].ts[0]) for i, n in enumerate(before)]
    return {
        "before": max(seconds),
        "windows": len(cuts),
        "errors": {
            name: {key: _rms(rows) for key, rows in of.items()}
            for name, of in sorted(found.items())
        },
    }


def _rms(rows: list[np.ndarray]) -> float | None:
    errors = np.concatenate(rows) if rows else np.zeros(0)
    errors = errors[np.isfinite(errors)]
    return float(np.sqrt(np.mean(errors**2))) if errors.size else None


def _rows_at(ts: np.ndarray, last: float, horizons: Sequence[float]) -> dict[str, int]:
    """Rows of a sensor one step and so many seconds after a time, as far as readings reach."""
    after = np.flatnonzero(ts > last)
    if not after.size:
        return {}
    rows, step = {"one step": int(after[0])}, float(np.median(np.diff(ts))) if len(ts) > 1 else 0.0
    for h in horizons:
        row = int(np.argmin(np.abs(ts - (last + h))))
        if ts[row] > last and abs(ts[row] - last - h) <= step:
            rows[f"{h:g} s"] = row
    return rows


def _rows_before(fit: Fit, record: Experiment) -> int:
    """Number of readings from which the initial state of a prediction follows."""
    system = fit.simulator.system_of(fit.model, record)
    channels = sum(int(np.prod(x.shape[1:])) for x in record.measurements.values())
    least = -(-READINGS_FOR_EACH * (2 * system.nv + system.nz) // channels)
    n, step = record.ts.shape[0], float(np.median(np.diff(np.asarray(record.ts))))
    usual = int(min(SHARE_BEFORE * n, LONGEST_BEFORE / step))
    return int(np.clip(max(usual, least), 2, max(n - 1, 2)))


def _cuts(records: Sequence[Experiment], before: Sequence[int], reach: float) -> Any:
    """Record, first and last row, and number of rows before the prediction, of every window."""
    share = max(1, MOST_WINDOWS // len(records))
    few = np.linspace(0, len(records) - 1, min(len(records), MOST_WINDOWS)).round().astype(int)
    for i in few.tolist():
        ts, n = np.asarray(records[i].ts), before[i]
        ahead = int(np.searchsorted(ts - ts[n - 1], reach * (1 + 1e-9), side="right")) - n
        length = n + max(ahead, 1)
        starts = np.linspace(0, len(ts) - length, min(share, len(ts) - length + 1))
        for a in sorted({*starts.round().astype(int).tolist()}):
            yield i, a, a + length, n


Starts = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def _start(fit: Fit, record: Experiment, motion: Starts, row: int, n: int) -> Starts:
    """Joint values, velocities and states of elements at a row: from readings, or the model's.

    The parabola through the next `n` readings of a joint with one coordinate gives its value and
    its velocity; others are those of `motion`.
    """
    guess, rates, states = ({k: x[row] for k, x in of.items()} for of in motion)
    ts = np.asarray(record.ts)[row : row + n]
    for name in _measured_joints(fit, record):
        there = record.counts(name)[row : row + n]
        if there.sum() < 2:
            continue
        near = np.asarray(record.measurements[name])[row : row + n][there]
        if name in record.periods:
            near = np.unwrap(near, period=float(record.periods[name]))
        degree = min(2, len(near) - 1)
        of_time = np.polynomial.Polynomial.fit((ts - ts[0])[there], near, degree)
        guess[name], rates[name] = of_time(0.0), of_time.deriv()(0.0)
    return guess, rates, states


def _measured_joints(fit: Fit, record: Experiment) -> list[str]:
    """Joints with one coordinate whose own readings a record has."""
    own = set(record.measurements) & set(fit.model.joints) - set(fit.simulator.sensors)
    return sorted(name for name in own if record.measurements[name].ndim == 1)


def _motion(fit: Fit, record: Experiment) -> Starts:
    """Motion of the fitted model from the start of a record; empty if readings determine all."""
    simulator = fit.simulator.stepped(fit.substeps)
    system = simulator.system_of(fit.model, record)
    whole = [name for name in _measured_joints(fit, record) if record.counts(name).all()]
    if len(whole) == system.nv and not system.nz:
        return {}, {}, {}
    of, z = _moved(simulator, fit.model, record)
    moving = {name: x for name, x in of.items() if x.q.size}
    places = system.mechanism.state_places
    return (
        {name: np.asarray(x.q) for name, x in moving.items()},
        {name: np.asarray(x.v) for name, x in moving.items()},
        {name: np.asarray(z)[:, i : i + k] for name, (i, k) in places.items()},
    )


@stored
@with_room
def _moved(simulator: Simulator, model: Model, record: Experiment) -> tuple[Any, Array]:
    """States of joints and of elements at the times of a record."""
    system, state = simulator.start(model, record)
    states = simulator.states(system, state, record)
    return jax.vmap(lambda t, y: joint_states(system, t, y))(record.ts, states), states.z
