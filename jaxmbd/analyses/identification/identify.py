"""Least squares over trajectories."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from diffrax import RESULTS
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ...errors import DataError, SimulationError
from ...model import Model
from .batches import Batch, batch_experiments
from .experiment import Experiment
from .methods import AbstractMethod, LevenbergMarquardt
from .parameters import Selection, select_parameters
from .prediction import Sensors, check_sensors, make_simulator
from .residuals import Residuals
from .statistics import Statistics, correlation_of, statistics


class Fit(eqx.Module):
    """What `identify` found; `print` it for a table.

    - `model`: the fitted model.
    - `labels`, `values`, `standard_errors`: of the reported numbers, shape `(k,)`; a standard error
      is infinite where the data cannot tell the number from others.
    - `correlation`: of the reported numbers, shape `(k, k)`.
    - `rms`: root mean square residual of every sensor, in its own unit.
    - `initial_states`: corrections to every record's initial state, shape `(2 nv,)` each, where
      they were fitted.
    - `unseen`: groups of names that the data cannot tell apart.
    - `n_steps`, `result`: of the optimizer.
    """

    model: Model
    labels: list[str]
    values: np.ndarray
    standard_errors: np.ndarray
    correlation: np.ndarray
    rms: dict[str, float]
    initial_states: list[np.ndarray]
    unseen: list[list[str]]
    n_steps: int
    result: RESULTS
    started_from: np.ndarray

    def __getitem__(self, label: str) -> float:
        return float(self.values[self._row(label)])

    def standard_error(self, label: str) -> float:
        """Standard error of one reported number."""
        return float(self.standard_errors[self._row(label)])

    def _row(self, label: str) -> int:
        if label not in self.labels:
            raise KeyError(f"no parameter {label!r}; there are {', '.join(self.labels)}")
        return self.labels.index(label)

    def __str__(self) -> str:
        width = max(len(label) for label in self.labels)
        lines = [f"{'parameter':<{width}}  {'start':>12}  {'estimate':>12}  {'std. error':>12}"]
        rows = zip(self.labels, self.started_from, self.values, self.standard_errors, strict=True)
        lines += [f"{n:<{width}}  {s:12.6g}  {x:12.6g}  {e:12.2g}" for n, s, x, e in rows]
        lines += [f"rms residual of {name}: {value:.4g}" for name, value in self.rms.items()]
        lines += [f"not told apart by the data: {', '.join(names)}" for names in self.unseen]
        lines.append(f"{self.n_steps} steps: {_said(self.result)}")
        return "\n".join(lines)


def _said(result: RESULTS) -> str:
    return "converged" if result == RESULTS.successful else RESULTS[result]


class RankWarning(UserWarning):
    """The data cannot tell all parameters apart."""


def identify(
    model: Model,
    experiments: Experiment | Sequence[Experiment],
    select: Selection,
    *,
    sensors: Sensors | None = None,
    noise: Mapping[str, float] | None = None,
    fit_initial_states: bool = False,
    formulation: Any = None,
    integrator: Any = None,
    substeps: int = 1,
    method: AbstractMethod | None = None,
    jacobian: str = "forward",
    progress: bool = False,
    throw: bool = True,
) -> Fit:
    """Fit parameters of a model to measured motion, by least squares over trajectories.

    **Arguments:**

    - `experiments`: one `Experiment` or several, of any lengths. Those of one length are simulated
      together.
    - `select`: which leaves vary: `{name: parameter}`, or a list of paths. A parameter is a
      `Parameter(where, transform)`, a path such as `"bodies.rod.mass"`, or a function of the model.
    - `sensors`: `{name: f(system, t, state)}` for measurements that are not named after a joint.
    - `noise`: `{sensor: standard deviation}` by which residuals are divided; 1 where left out. With
      all of them given and right, a residual has variance one; standard errors take the variance
      from the residuals in any case.
    - `fit_initial_states`: whether every record's initial state is fitted too, from its `guess`.
    - `formulation`: `JointCoordinates()` where it is left out.
    - `integrator`, `substeps`: steps of the integrator between samples.
    - `method`: `LevenbergMarquardt()` where it is left out, or `FirstOrder(optax.adam(1e-2))`.
    - `jacobian`: `"forward"`, or `"reverse"` where there are more parameters than residuals.
    - `progress`: whether to print every step.
    - `throw`: whether a fit that did not converge raises; otherwise read `Fit.result`.

    **Raises** `ModelError` and `DataError` for parameters and records that make no sense, and
    `SimulationError` where the motion of the starting model is not finite or the fit fails. Warns
    `RankWarning`, with names, where the data cannot tell parameters apart.
    """
    experiments = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    if not experiments:
        raise DataError("identify: there are no experiments")
    if jacobian not in ("forward", "reverse"):
        raise DataError(f"identify: jacobian is 'forward' or 'reverse', got {jacobian!r}")
    selected = select_parameters(model, select)
    simulator = make_simulator(formulation, sensors, integrator, substeps)
    batches = batch_experiments(experiments)
    check_sensors(simulator, model, batches)
    residuals = Residuals(
        selected,
        simulator,
        batches,
        _noise(noise or {}, experiments),
        fit_initial_states,
        jacobian == "reverse",
    )
    start = residuals.unknowns()
    r, J, _ = _linearize(residuals, start)
    _check_start(residuals, np.asarray(r))
    method = LevenbergMarquardt() if method is None else method
    influence = jnp.linalg.norm(J, axis=0)
    unknowns, n_steps, result = _minimize(method, residuals, influence, progress)
    result = RESULTS.promote(result)
    if throw and result != RESULTS.successful:
        raise SimulationError(
            f"identify: stopped after {int(n_steps)} steps: {RESULTS[result]}; pass "
            "throw=False to look at the fit so far"
        )
    return _fit(residuals, unknowns, int(n_steps), result)


def _noise(given: Mapping[str, float], experiments: Sequence[Experiment]) -> dict[str, Array]:
    names = sorted({name for e in experiments for name in e.measurements})
    for name, value in given.items():
        if name not in names:
            raise DataError(f"identify: noise of {name!r}, which no experiment measures")
        if not value > 0:
            raise DataError(f"identify: noise of {name!r} must be positive, got {value}")
    dtype = experiments[0].ts.dtype
    return {name: jnp.asarray(given.get(name, 1.0), dtype=dtype) for name in names}


def _by_record(residuals: Residuals, r: np.ndarray) -> list[np.ndarray]:
    """The flat residuals by batch, a row a record."""
    widths = [_width(batch) * len(batch.rows) for batch in residuals.batches]
    parts = np.split(r, np.cumsum(widths)[:-1])
    return [x.reshape(len(b.rows), -1) for x, b in zip(parts, residuals.batches, strict=True)]


def _width(batch: Batch) -> int:
    return sum(int(np.prod(x.shape[1:])) for x in batch.experiments.measurements.values())


def _check_start(residuals: Residuals, r: np.ndarray) -> None:
    for batch, rows in zip(residuals.batches, _by_record(residuals, r), strict=True):
        lost = ~np.isfinite(rows).all(axis=1)
        if lost.any():
            raise SimulationError(
                f"identify: the starting model's motion in experiment "
                f"{batch.rows[int(np.argmax(lost))]} is not finite; use more substeps or better "
                "starting values"
            )


@eqx.filter_jit
def _minimize(method: AbstractMethod, residuals: Residuals, influence: Array, verbose: bool) -> Any:
    return method.minimize(residuals, influence, verbose)


@eqx.filter_jit
def _linearize(residuals: Residuals, unknowns: Any) -> tuple[Array, Array, Array]:
    """Residuals, dense Jacobian, and derivative of the reported numbers by the free ones."""
    flat, unravel = ravel_pytree(unknowns)
    J = jax.jacfwd(lambda x: residuals.flat(unravel(x)))(flat)
    free, unravel_free = ravel_pytree(unknowns[0])
    D = jax.jacfwd(lambda x: residuals.selected.report(unravel_free(x)))(free)
    return residuals.flat(unknowns), J, D


def _fit(residuals: Residuals, unknowns: Any, n_steps: int, result: RESULTS) -> Fit:
    selected, (theta, starts) = residuals.selected, unknowns
    r, J, D = (np.asarray(x) for x in _linearize(residuals, unknowns))
    labels = selected.free_labels()
    labels += ["an initial state"] * (J.shape[1] - len(labels))
    degrees = max(_n_readings(residuals) - J.shape[1], 1)
    found = statistics(J, labels, float(r @ r) / degrees)
    errors, correlation = _reported(found, D)
    if found.unseen:
        groups = "; ".join(", ".join(names) for names in found.unseen)
        warnings.warn(
            f"identify: the data do not tell apart: {groups}. Their values are one choice of many; "
            "fix some of them, or add records that move differently",
            RankWarning,
            stacklevel=3,
        )
    return Fit(
        model=selected.apply(theta),
        labels=selected.labels(),
        values=np.asarray(selected.report(theta)),
        standard_errors=errors,
        correlation=correlation,
        rms=_rms(residuals, r),
        initial_states=_in_order(residuals, starts),
        unseen=found.unseen,
        n_steps=n_steps,
        result=result,
        started_from=np.asarray(selected.report(selected.free())),
    )


def _reported(found: Statistics, D: Float[np.ndarray, "k p"]) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors and correlations of the reported numbers, by the delta method."""
    p = D.shape[1]
    covariance = found.covariance[:p, :p]
    blind = ~np.isfinite(np.diagonal(covariance))
    visible = D @ np.where(np.isfinite(covariance), covariance, 0.0) @ D.T
    hidden = np.any(D[:, blind] != 0, axis=1)
    visible[hidden, hidden] = np.inf
    return np.sqrt(np.diagonal(visible)), correlation_of(visible)


def _n_readings(residuals: Residuals) -> int:
    """Number of readings, those that only pad a record not counted."""
    return sum(
        int(batch.kept.sum()) * int(np.prod(x.shape[2:]))
        for batch in residuals.batches
        for x in batch.experiments.measurements.values()
    )


def _rms(residuals: Residuals, r: np.ndarray) -> dict[str, float]:
    squares: dict[str, float] = {}
    counts: dict[str, int] = {}
    for batch, rows in zip(residuals.batches, _by_record(residuals, r), strict=True):
        measured = sorted(batch.experiments.measurements.items())
        ends = np.cumsum([int(np.prod(x.shape[1:])) for _, x in measured])
        for (name, x), part in zip(measured, np.split(rows, ends[:-1], axis=1), strict=True):
            scale = float(residuals.noise[name])
            squares[name] = squares.get(name, 0.0) + float(np.sum((part * scale) ** 2))
            width = int(np.prod(x.shape[2:]))
            counts[name] = counts.get(name, 0) + int(batch.kept.sum()) * width
    return {name: float(np.sqrt(squares[name] / counts[name])) for name in sorted(squares)}


def _in_order(residuals: Residuals, starts: list[Array]) -> list[np.ndarray]:
    found = {
        row: np.asarray(start[i])
        for batch, start in zip(residuals.batches, starts, strict=True)
        for i, row in enumerate(batch.rows)
    }
    return [found[row] for row in sorted(found)]


__all__ = ["Fit", "RankWarning", "identify"]
