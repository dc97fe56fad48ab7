"""Least squares over trajectories."""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ...errors import RESULTS, DataError, SimulationError
from ...model import Model
from ...model.arguments import is_count
from . import convergence
from .batches import Batch
from .experiment import Experiment
from .fit import Fit, Overlay, overlays_of, rms_of
from .losses import AbstractLoss, Squares
from .minimizers import AbstractMinimizer, LevenbergMarquardt
from .parameters import Selection
from .prediction import Sensors
from .problem import motions_of, residuals_of, with_substeps
from .records import AbstractRecord, AnyRecord, Comparison, split_experiments
from .residuals import Residuals
from .robust import Robust, robust_of
from .statistics import Statistics, correlation_of, statistics
from .substeps import AS_GOOD, MARGIN, Integration, Limits, Motions

# A fit continues with more substeps at most so many times.
MOST_REFITS = 2


class RankWarning(UserWarning):
    """The data cannot distinguish all parameters."""


def identify(
    model: Model,
    experiments: AnyRecord | Sequence[AnyRecord],
    select: Selection,
    *,
    sensors: Sensors | None = None,
    noise: Mapping[str, float] | None = None,
    loss: AbstractLoss | None = None,
    fit_initial_states: bool = False,
    continuity: Sequence[Any] | None = None,
    formulation: Any = None,
    integrator: Any = None,
    substeps: int | None = None,
    method: AbstractMinimizer | None = None,
    jacobian: str = "forward",
    starts: int = 1,
    spread: float = 0.3,
    seed: int = 0,
    progress: bool = False,
    throw: bool = True,
) -> Fit:
    """Fit parameters of a model to motions, deflections and modes, by least squares.

    **Arguments:**

    - `experiments`: one record or several: an `Experiment` is a motion, of any length, a
      `StaticExperiment` a deflection, and a `ModalExperiment` contains frequencies.
    - `select`: leaves to fit: `{name: parameter}`, or a list of paths. A parameter is a
      `Parameter(where, transform, prior)`, a path such as `"bodies.rod.mass"`, or a function of the
      model. Paths into sensors start with `sensors.`.
    - `sensors`: `{name: f(system, t, state)}` for measurements other than exact readings of the
      joint of the same name.
    - `noise`: `{sensor: standard deviation}` by which residuals are divided. Default: 1. Standard
      errors take the variance of the weighted residuals of motions from the fit. Records of other
      kinds need `noise` for every sensor of the motions, and their own deviations count as known.
    - `loss`: loss of the weighted residuals of motions, if some are outliers: `PseudoHuber()`
      or `Cauchy()`. Default: squares.
    - `fit_initial_states`: whether every record's initial state, including first-order states of
      elements, is fitted too, from its `guess`.
    - `continuity`: standard deviations of coordinates [rad or m] and of velocities, such as
      `(1e-3, 1e-2)`, of the defects between the end of a window and the start of the next; for
      models with first-order states a third one, a number or `{element: deviation}`. Defects then
      count like readings. `experiments` are in the order of time.
    - `formulation`: a formulation. Default: `JointCoordinates()`.
    - `integrator`: an integrator or a diffrax Runge–Kutta method. Default: Tsit5.
    - `substeps`: number of integration steps in each sample interval. Default: the smallest power
      of two with an integration error at the sample times below a hundredth of the standard
      deviation of the readings, from `noise` or from the residuals of the fit; without noise, and
      with small residuals, below 1e-6 of a sensor's largest reading. It is chosen for the starting
      model. If the error at the end of the fit is larger, the fit continues with more substeps.
    - `method`: a minimizer such as `FirstOrder(optax.adam(1e-2))`. Default: `LevenbergMarquardt()`.
    - `jacobian`: `"forward"`, or `"reverse"` if there are more parameters than residuals.
    - `starts`: number of starting points, minimized together; the fit is the best result. The
      first is the model; others differ in their free numbers (logarithms of positive ones) by
      normal deviations of `spread`, drawn with `seed`.
    - `progress`: whether to print every step.
    - `throw`: whether a fit that did not converge raises; if False, read `Fit.result`.

    Model and sensors are converted to the float type of the records. **Warns** by
    `FloatTypeWarning` if floats of the model have different types.

    **Raises** `ModelError` and `DataError` for invalid parameters and records, and
    `SimulationError` if the motion of the starting model is not finite or the fit fails, and
    `EquilibriumError`, naming record and joints, if the starting model has no equilibrium.
    **Warns** by `RankWarning`, with names, if the data cannot distinguish parameters, and by
    `IntegrationWarning`, with experiment and sensor, if the integration error at the end of the fit
    exceeds its limit.

    For example:

        record = mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": angles[0]})
        fit = mbd.identify(model, record, ["forces.bearing.coefficient"])
        print(fit)
    """
    if not is_count(starts):
        raise DataError(f"identify: starts must be a whole number from 1 on, got {starts!r}")
    experiments, records = split_experiments(experiments, "identify")
    residuals = residuals_of(
        model,
        experiments,
        records,
        select,
        sensors=sensors,
        noise=noise,
        loss=loss,
        fit_initial_states=fit_initial_states,
        continuity=continuity,
        formulation=formulation,
        integrator=integrator,
        substeps=substeps,
        jacobian=jacobian,
    )
    residuals = with_substeps(residuals, experiments, noise, None, 3)
    method = LevenbergMarquardt() if method is None else method
    if not isinstance(method, AbstractMinimizer):
        raise DataError(
            "identify: method must be an instance of jaxmbd.minimizers, such as "
            f"LevenbergMarquardt(), got {method!r}"
        )
    firsts = _scattered(residuals.unknowns(), starts, spread, seed)
    end = _minimum(method, residuals, firsts, progress, throw)
    motions, limits, integration = _integration(residuals, experiments, noise, end)
    for _ in range(MOST_REFITS):
        more = _needed(residuals, motions, limits, integration, end)
        if more is None:
            break
        residuals = residuals.stepped(more)
        again = jax.tree.map(lambda x: x[None], end.unknowns)
        end = _joined(end, _minimum(method, residuals, again, progress, throw))
        motions, limits, integration = _integration(residuals, experiments, noise, end)
    if not integration.is_met:
        motions.warn("identify", integration, limits, not residuals.simulator.chooses, 2)
    return _fit(residuals, experiments, records, end, motions, integration)


class End(NamedTuple):
    """End of a minimization: unknowns, number of steps, result, and costs of every start.

    `best` is the number of the best start.
    """

    unknowns: Any
    n_steps: int
    result: RESULTS
    costs: list[np.ndarray]
    best: int


def _minimum(
    method: AbstractMinimizer, residuals: Residuals, starts: Any, progress: bool, throw: bool
) -> End:
    """The best end from starting points along a leading axis.

    **Raises** `SimulationError` if the motion of the first one is not finite and, with `throw`,
    if the minimization fails.
    """
    r, J, _ = _linearize(residuals, jax.tree.map(lambda x: x[0], starts))
    _check_start(residuals, np.asarray(r))
    influence = jnp.linalg.norm(J, axis=0)
    keys = convergence.open_logs(jax.tree.leaves(starts)[0].shape[0])
    ends = _minimize(method, residuals, starts, influence, jnp.asarray(keys), progress)
    costs = convergence.close_logs(keys)
    end = _best(ends, costs)
    if throw and end.result != RESULTS.successful:
        raise SimulationError(
            f"identify: stopped after {end.n_steps} steps: {RESULTS[end.result]}; pass throw=False "
            "to look at the fit so far"
        )
    return end


def _integration(
    residuals: Residuals,
    experiments: Sequence[Experiment],
    noise: Mapping[str, float] | None,
    end: End,
) -> tuple[Motions, Limits, Integration]:
    """Motions at the end of a minimization, limits of their integration error, and the error."""
    motions = motions_of(residuals, experiments, end.unknowns)
    limits = Limits(noise or {}, rms_of(_overlays(residuals, motions)))
    return motions, limits, motions.measured(residuals.simulator.substeps, limits)


def _overlays(residuals: Residuals, motions: Motions) -> list[dict[str, Overlay]]:
    readings = motions.run(residuals.simulator.substeps)
    return overlays_of(motions.nearest, motions.experiments, readings)


def _needed(
    residuals: Residuals, motions: Motions, limits: Limits, integration: Integration, end: End
) -> int | None:
    """The number of substeps with which to continue a fit; None if it is finished."""
    more = 2 * integration.substeps
    done = integration.is_met or end.result != RESULTS.successful
    if done or not residuals.simulator.chooses or more > motions.most:
        return None
    better = motions.chosen(limits._replace(margin=MARGIN), more)
    return better.substeps if better.excess / MARGIN < integration.excess / AS_GOOD else None


def _joined(first: End, second: End) -> End:
    """Two minimizations as one; the second started at the end of the first."""
    costs = list(first.costs)
    costs[first.best] = np.concatenate([costs[first.best], *second.costs])
    return End(second.unknowns, first.n_steps + second.n_steps, second.result, costs, first.best)


def _scattered(start: Any, n: int, spread: float, seed: int) -> Any:
    """Starting points along a leading axis; parameters of all but the first are perturbed."""
    rng = np.random.default_rng(seed)
    theta, corrections = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), start)

    def moved(x: Array) -> Array:
        change = spread * rng.normal(size=x.shape)
        change[0] = 0.0
        return x + jnp.asarray(change, dtype=x.dtype)

    return tuple(map(moved, theta)), corrections


def _best(ends: tuple[Any, Array, Any, Array], logs: list[np.ndarray]) -> End:
    """The end of least cost; `ends` are from `_minimize`, `logs` the costs of all steps."""
    unknowns, n_steps, result, costs = ends
    best = int(np.argmin(np.where(np.isfinite(costs), costs, np.inf)))
    unknowns, result = jax.tree.map(lambda x: x[best], (unknowns, result))
    return End(unknowns, int(n_steps[best]), RESULTS.promote(result), logs, best)


def _by_batch(residuals: Residuals, flat: np.ndarray) -> list[np.ndarray]:
    """Rows of flat residuals, or of their Jacobian, by batch, along two axes: records, readings."""
    widths = [_width(batch) * len(batch.rows) for batch in residuals.batches]
    parts = np.split(flat, np.cumsum(widths))[:-1]  # Others come last.
    return [
        x.reshape(len(b.rows), -1, *x.shape[1:])
        for x, b in zip(parts, residuals.batches, strict=True)
    ]


def _by_record(
    residuals: Residuals, experiments: Sequence[Experiment], flat: np.ndarray
) -> list[np.ndarray]:
    """Rows of flat residuals by record, along two axes: its times, components of its sensors."""
    by_record: dict[int, np.ndarray] = {}
    for batch, rows in zip(residuals.batches, _by_batch(residuals, flat), strict=True):
        n = batch.is_reading.shape[1]
        shapes = [x.shape[2:] for _, x in sorted(batch.experiments.measurements.items())]
        ends = np.cumsum([n * int(np.prod(shape)) for shape in shapes])[:-1]
        for i, readings in zip(batch.rows, rows, strict=True):
            sensors = [x.reshape(n, -1, *x.shape[1:]) for x in np.split(readings, ends)]
            by_record[i] = np.concatenate(sensors, axis=1)[: experiments[i].ts.shape[0]]
    return [by_record[i] for i in sorted(by_record)]


def _defects(residuals: Residuals, r: np.ndarray) -> np.ndarray:
    """Defects between windows, one per row, from the flat residuals after those of records."""
    if residuals.continuity is None:
        return np.zeros((0, 0))
    n = len(residuals.continuity.later)
    width = residuals.unknowns()[1][0].shape[1]
    return r[: n * width].reshape(n, width)


def _width(batch: Batch) -> int:
    return sum(int(np.prod(x.shape[1:])) for x in batch.experiments.measurements.values())


def _check_start(residuals: Residuals, r: np.ndarray) -> None:
    for batch, rows in zip(residuals.batches, _by_batch(residuals, r), strict=True):
        lost = ~np.isfinite(rows).all(axis=1)
        if lost.any():
            raise SimulationError(
                f"identify: the starting model's motion in {batch.called(int(np.argmax(lost)))} is "
                "not finite; use more substeps or better starting values"
            )
    others = r[sum(x.size for x in _by_batch(residuals, r)) :][: _n_others(residuals)]
    if not np.isfinite(others).all():
        raise SimulationError(
            "identify: predictions of the starting model for static or modal records are not finite"
        )


def _minimized(
    method: AbstractMinimizer,
    residuals: Residuals,
    starts: Any,
    influence: Array,
    keys: Array,
    verbose: bool,
) -> Any:
    """Unknowns, numbers of steps, results and costs, one row per start."""

    def one(start: Any, key: Array) -> Any:
        return method.minimize(residuals, start, influence, key, verbose)

    if keys.shape[0] > 1:
        ends = eqx.filter_vmap(one)(starts, keys)
        return *ends, eqx.filter_vmap(residuals.cost)(ends[0])
    # A single end needs no cost, whose program would be another third.
    end = jax.tree.map(lambda x: x[None], one(*jax.tree.map(lambda x: x[0], (starts, keys))))
    return *end, jnp.zeros(1)


def _linearized(residuals: Residuals, unknowns: Any) -> tuple[Array, Array, Array]:
    """Residuals, dense Jacobian, and derivative of the reported numbers by the free numbers."""
    flat, unravel = ravel_pytree(unknowns)

    def evaluate(x: Array) -> tuple[Array, Array]:
        r = residuals.flat(unravel(x))
        return r, r

    J, r = jax.jacfwd(evaluate, has_aux=True)(flat)
    free, unravel_free = ravel_pytree(unknowns[0])
    D = jax.jacfwd(lambda x: residuals.selected.report(unravel_free(x)))(free)
    return r, J, D


# Without motions a fit takes milliseconds, but XLA takes minutes to optimize its programs.
QUICKLY = {"xla_backend_optimization_level": 0}


@functools.cache
def _program(function: Callable[..., Any], optimized: bool) -> Callable[..., Any]:
    """The compiled function; compiled in a fraction of the time if it is not optimized."""
    options: dict[str, Any] = {} if optimized else {"compiler_options": QUICKLY}
    return eqx.filter_jit(function, **options)


def _linearize(residuals: Residuals, *rest: Any) -> tuple[Array, Array, Array]:
    return _program(_linearized, bool(residuals.batches))(residuals, *rest)


def _minimize(method: AbstractMinimizer, residuals: Residuals, *rest: Any) -> Any:
    return _program(_minimized, bool(residuals.batches))(method, residuals, *rest)


def _fit(
    residuals: Residuals,
    experiments: Sequence[Experiment],
    records: Sequence[AbstractRecord],
    end: End,
    motions: Motions,
    integration: Integration,
) -> Fit:
    unknowns = end.unknowns
    selected, (theta, starts) = residuals.selected, unknowns
    r, J, D = (np.asarray(x) for x in _linearize(residuals, unknowns))
    labels = selected.free_labels()
    labels += ["an initial state"] * (J.shape[1] - len(labels))
    n = sum(x.size for x in _by_batch(residuals, r))
    defects = _defects(residuals, r[n + _n_others(residuals) :])
    linear, degrees = _linear(residuals, r, J, labels, defects.size)
    errors, correlation = _reported(linear, D)
    robust = _robust(residuals, experiments, unknowns, linear, r, J, D, J[n:])
    if linear.unseen:
        groups = "; ".join(", ".join(names) for names in linear.unseen)
        warnings.warn(
            f"identify: the data do not tell apart: {groups}. Their values are one choice of many; "
            "fix some of them, or add records that move differently",
            RankWarning,
            stacklevel=3,
        )
    subject = selected.apply(theta)
    simulator = eqx.tree_at(lambda s: s.sensors, residuals.simulator, subject.sensors)
    overlays = _overlays(residuals, motions)
    return Fit(
        model=subject.model,
        sensors=subject.sensors,
        labels=selected.labels(),
        values=np.asarray(selected.report(theta)),
        standard_errors=errors,
        correlation=correlation,
        robust_errors=np.where(np.isfinite(errors), np.sqrt(robust.variances), np.inf),
        robust_degrees=robust.degrees,
        bandwidth=robust.bandwidth,
        degrees_of_freedom=degrees,
        rms=rms_of(overlays),
        initial_states=_in_order(residuals, starts),
        defects=defects,
        unseen=linear.unseen,
        singular_values=linear.singular_values,
        overlays=overlays,
        comparisons=_comparisons(residuals, records, r[n:]),
        costs=end.costs,
        n_steps=end.n_steps,
        result=end.result,
        substeps=integration.substeps,
        integration_error=integration.errors,
        started_from=np.asarray(selected.report(selected.free())),
        simulator=simulator,
    )


def _linear(
    residuals: Residuals, r: np.ndarray, J: np.ndarray, labels: list[str], n_defects: int
) -> tuple[Statistics, float]:
    """Statistics of the unknowns, and degrees of freedom of the variance of the readings.

    The variance of readings is estimated; that of other records, defects and priors is one. The
    shares in which other records determine the unknowns are no loss of degrees of freedom.
    """
    n, m = sum(x.size for x in _by_batch(residuals, r)), _n_others(residuals)
    if n == 0:
        return statistics(J, labels, 1.0), np.inf
    least = _n_readings(residuals) + n_defects - J.shape[1]

    def of(degrees: float) -> Statistics:
        deviation = np.ones(len(r))
        deviation[:n] = np.sqrt(r[:n] @ r[:n] / degrees)
        return statistics(J / np.maximum(deviation, np.finfo(float).tiny)[:, None], labels, 1.0)

    degrees = float(max(least, 1))
    linear = of(degrees)
    if m:
        shares = float(np.sum((J[n : n + m] @ linear.directions) ** 2))
        degrees = max(least + shares, 1.0)
        linear = of(degrees)
    return linear, degrees


def _n_others(residuals: Residuals) -> int:
    """Number of residuals of records that are not motions."""
    return sum(stack.records.measured.size for stack in residuals.stacks)


def _comparisons(
    residuals: Residuals, records: Sequence[AbstractRecord], r: np.ndarray
) -> list[Comparison]:
    """Measured and predicted numbers of the records that are not motions, in their order.

    `r`: their residuals, stack by stack.
    """
    by_row: dict[int, Comparison] = {}
    for stack in residuals.stacks:
        measured, deviations = map(np.asarray, (stack.records.measured, stack.records.deviations))
        own, r = np.split(r, [measured.size])
        predicted = measured + own.reshape(measured.shape) * deviations
        for i, row in enumerate(stack.rows):
            record, values = records[row], (measured[i], predicted[i], deviations[i])
            by_row[row] = Comparison(record.name, record.labels(), *values)
    return [by_row[row] for row in sorted(by_row)]


def _reported(linear: Statistics, D: Float[np.ndarray, "k p"]) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors and correlations of the reported numbers, by the delta method."""
    p = D.shape[1]
    covariance = linear.covariance[:p, :p]
    unseen = ~np.isfinite(np.diagonal(covariance))
    reported = D @ np.where(np.isfinite(covariance), covariance, 0.0) @ D.T
    undetermined = np.any(D[:, unseen] != 0, axis=1)
    reported[undetermined, undetermined] = np.inf
    return np.sqrt(np.diagonal(reported)), correlation_of(reported)


def _robust(
    residuals: Residuals,
    experiments: Sequence[Experiment],
    unknowns: Any,
    linear: Statistics,
    r: np.ndarray,
    J: np.ndarray,
    D: np.ndarray,
    others: np.ndarray,
) -> Robust:
    """Variances that allow for correlated residuals; `others` are rows of other residuals."""
    # `bends` of squares are one: they need no simulation.
    squares = isinstance(residuals.loss, Squares)
    bends = np.ones_like(r) if squares else np.asarray(_bends(residuals, unknowns))
    of_unknowns = np.concatenate([D, np.zeros((len(D), J.shape[1] - D.shape[1]))], axis=1)
    of_r, of_J, of_loss = (_by_record(residuals, experiments, x) for x in (r, J, bends))
    return robust_of(experiments, of_r, of_J, of_loss, others, linear.directions, of_unknowns)


@eqx.filter_jit
def _bends(residuals: Residuals, unknowns: Any) -> Array:
    """`AbstractLoss.bends` of every residual."""
    plain = eqx.tree_at(lambda x: x.loss, residuals, Squares()).plain(unknowns)
    return residuals.loss.bends(plain)


def _n_readings(residuals: Residuals) -> int:
    """Number of readings, without padding."""
    return sum(
        int(batch.is_reading.sum()) * int(np.prod(x.shape[2:]))
        for batch in residuals.batches
        for x in batch.experiments.measurements.values()
    )


def _in_order(residuals: Residuals, starts: list[Array]) -> list[np.ndarray]:
    by_record = {
        row: np.asarray(start[i])
        for batch, start in zip(residuals.batches, starts, strict=True)
        for i, row in enumerate(batch.rows)
    }
    return [by_record[row] for row in sorted(by_record)]


__all__ = ["RankWarning", "identify"]
