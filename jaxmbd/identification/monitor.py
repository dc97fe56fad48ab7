"""Recursive estimation of states and parameters, by an extended Kalman filter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..errors import DataError, ModelError
from ..model import Model
from ..model.values import as_mapping, is_positive, require_concrete
from ..programs import stored, with_progress
from ..sensors import JointPosition, nearest_reading
from ..system import constraints
from ..system.abstract import State
from .experiment import Experiment, nearest_in_periods
from .problem import Options, Problem, as_problem
from .residuals import Residuals
from .statistics import ByLabel


@dataclass(frozen=True, eq=False, repr=False)
class Monitor(ByLabel):
    """Estimates along a record, the result of `monitor`.

    - `ts`: times of the record, shape `(n,)` [s].
    - `labels`: of the parameters; `values`, `standard_errors`: after the readings at each time,
      shape `(n, k)`.
    - `states`: estimated states, with a leading axis of length n.
    - `innovations`: `{sensor: reading minus prediction}` before each reading, in the standard
      deviations that the filter expects, of the shape of the readings; NaN where there is none. If
      model and noise are right they are white, of deviation one.
    """

    ts: np.ndarray
    labels: list[str]
    values: np.ndarray
    standard_errors: np.ndarray
    states: State
    innovations: dict[str, np.ndarray]

    def __getitem__(self, label: str) -> np.ndarray:
        """Estimates of one parameter, shape `(n,)`."""
        if label not in self.labels:
            raise KeyError(f"no parameter {label!r}; there are {', '.join(self.labels)}")
        return self.values[:, self.labels.index(label)]

    def __repr__(self) -> str:
        lines = [f"{len(self.ts)} times from {self.ts[0]:g} s to {self.ts[-1]:g} s"]
        for k, label in enumerate(self.labels):
            first, last = self.values[0, k], self.values[-1, k]
            lines.append(f"{label}: {first:.6g} to {last:.6g} ± {self.standard_errors[-1, k]:.2g}")
        for name, x in self.innovations.items():
            rms = np.sqrt(np.nanmean(x**2))
            lines.append(f"innovations of {name}: rms {rms:.3g} deviations")
        return "\n".join(lines)


@with_progress
def monitor(
    model: Model | Problem,
    experiments: Experiment | None = None,
    select: Any = None,
    *,
    deviations: Mapping[str, float],
    drift: Mapping[str, float] | None = None,
    start: Sequence[float] = (1e-3, 1e-2),
    disturbance: float = 0.0,
    **options: Unpack[Options],
) -> Monitor:
    """Estimate states and parameters recursively along a record, to watch parameters that change.

    An extended Kalman filter (Jazwinski 1970) whose unknowns are increments of q, v and z and the
    free numbers of the parameters. Its Jacobians are those of the integration steps and sensors.
    Readings that do not count (see `Experiment`) are skipped.

    **Arguments:** those of a `Problem`, or a problem, with one motion as record; `noise` of every
    sensor is needed, `loss`, `continuity` and `fit_initial_states` have no effect. Besides:

    - `deviations`: `{parameter: standard deviation at the start}` of each selected parameter, in
      its unit.
    - `drift`: `{parameter: standard deviation of its change in one second}`, a random walk.
      Default: parameters are constant.
    - `start`: standard deviations of the initial coordinates [rad or m], velocities, and
      first-order states, if there are some.
    - `disturbance`: standard deviation of the change of each velocity in one second by forces that
      the model does not have.
    - `substeps`: as for `identify`.

    **Raises** `DataError` for several records, and for missing or invalid deviations; `ModelError`
    for coordinates with constraints.

    For example:

        result = mbd.monitor(
            model,
            mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": angles[0]}),
            {"friction": "forces.bearing.coefficient"},
            noise={"hinge": 1e-3},
            deviations={"friction": 0.05},
            drift={"friction": 0.01},
        )
        friction = result["friction"]
    """
    problem = as_problem("monitor", model, experiments, select, options)
    require_concrete("monitor", (problem.model, problem.experiments))
    motions, others = problem.records("monitor")
    if len(motions) != 1 or others:
        raise DataError("monitor: experiments must be one Experiment")
    noise = as_mapping(problem.noise, "monitor: noise", "{sensor: standard deviation}", DataError)
    for name in motions[0].measurements:
        if name not in noise:
            raise DataError(f"monitor: give the noise of {name!r}")
    residuals = problem.with_substeps("monitor")
    filter_ = _filter(residuals, deviations, drift, start, disturbance)
    run = _run(residuals, filter_)
    record = motions[0]
    counts = {name: record.counts(name) for name in record.measurements}
    innovations = {
        name: np.where(counts[name], np.asarray(run.innovations[name]), np.nan) for name in counts
    }
    return Monitor(
        np.asarray(record.ts),
        residuals.selected.labels(),
        np.asarray(run.values),
        np.asarray(run.errors),
        run.states,
        innovations,
    )


class Filter(eqx.Module):
    """Variances of the filter, of increments of q, v, z and free numbers, shape `(m,)`.

    - `initial`: at the start; `rates`: growth in one second.
    """

    initial: Float[Array, "m"]
    rates: Float[Array, "m"]


def _filter(
    residuals: Residuals, deviations: Any, drift: Any, start: Any, disturbance: Any
) -> Filter:
    """**Raises** `DataError` for missing or invalid deviations."""
    selected = residuals.selected
    system, _ = residuals.simulator.start(selected.subject.model, residuals.batches[0].record(0))
    if constraints.n_constraints(system):
        raise ModelError("monitor: use JointCoordinates on an open tree, without constraints")
    sizes = [system.nv, system.nv, system.nz]
    given = list(start) if isinstance(start, Sequence) and not isinstance(start, str) else []
    needed = 3 if system.nz else 2
    if len(given) < needed or not all(is_positive(x) for x in given):
        raise DataError(
            "monitor: start must be positive deviations of coordinates, of velocities and, if the "
            f"model has some, of first-order states, got {start!r:.60}"
        )
    if not is_positive(disturbance) and disturbance != 0:
        raise DataError(f"monitor: disturbance must be a number from 0 on, got {disturbance!r:.60}")
    states = np.repeat([*given[:needed], 0.0][:3], sizes)
    pushes = np.repeat([0.0, float(disturbance), 0.0], sizes)
    initial = _of_free(residuals, deviations, "deviations", required=True)
    rates = _of_free(residuals, drift, "drift", required=False)
    dtype = residuals.batches[0].experiments.ts.dtype
    return Filter(
        jnp.asarray(np.concatenate([states, initial]) ** 2, dtype),
        jnp.asarray(np.concatenate([pushes, rates]) ** 2, dtype),
    )


def _of_free(residuals: Residuals, given: Any, argument: str, required: bool) -> np.ndarray:
    """Deviations of free numbers, from those of parameters in their units."""
    form = "{parameter: standard deviation}"
    named = as_mapping(given, f"monitor: {argument}", form, DataError)
    selected, found = residuals.selected, []
    for name in named:
        if name not in selected.names:
            known = ", ".join(selected.names)
            raise DataError(f"monitor: {argument} of {name!r}, which is not selected: {known}")
    for name, p, x in zip(selected.names, selected.parameters, selected.free(), strict=True):
        if name not in named and required:
            raise DataError(f"monitor: give the deviation of {name!r} at the start")
        value = named.get(name, 0.0)
        if not is_positive(value) and (required or value != 0):
            raise DataError(f"monitor: {argument} of {name!r} must be positive, got {value!r:.60}")
        # The transform of one number: its slope converts the deviation.
        if x.size != 1:
            raise DataError(f"monitor: parameter {name!r} must be one number, it has {x.size}")
        value_of = lambda y, p=p: jnp.sum(  # noqa: E731
            p.transform.to_value(y, p.get(selected.subject))
        )
        slope = jax.grad(value_of)(x)
        found.append(float(value) / abs(float(jnp.ravel(slope)[0])))
    return np.array(found)


class Run(NamedTuple):
    """Results of a filter at all times; see `Monitor`."""

    values: Float[Array, "n k"]
    errors: Float[Array, "n k"]
    states: State
    innovations: dict[str, Float[Array, "n *c"]]


class Recursion(eqx.Module):
    """One record with a filter: prediction and update of θ, state and covariance P."""

    residuals: Residuals
    experiment: Experiment
    filter_: Filter
    n_parameters: int = eqx.field(static=True)

    @property
    def n_state(self) -> int:
        """Number of increments of q, v and z."""
        return self.filter_.initial.size - self.n_parameters

    def of_free(self, theta: Array) -> Any:
        """Free numbers by parameter, from a vector."""
        return ravel_pytree(self.residuals.selected.free())[1](theta)

    def system(self, theta: Array) -> Any:
        """The system of the record at free numbers."""
        _, model = self.residuals.fitted(self.of_free(theta))
        return self.residuals.simulator.system_of(model, self.experiment)

    def advance(self, theta: Array, state: State, t0: Array, t1: Array) -> State:
        """The state at t1."""
        simulator = self.residuals.simulator
        system, h = self.system(theta), (t1 - t0) / simulator.substeps
        memory = simulator.integrator.start(system, t0, h, state)
        for k in range(simulator.substeps):
            ends = t0 + k * h, t0 + (k + 1) * h
            state, memory = simulator.integrator.advance(system, *ends, state, memory)
        return state

    def predict(self, theta: Array, state: State, P: Array, t0: Array, t1: Array) -> Any:
        """State and covariance at t1, before its readings."""
        system, n = self.system(theta), self.n_state
        after = self.advance(theta, state, t0, t1)

        def of(x: Array) -> State:
            return self.advance(theta + x[n:], system.displaced(state, x[:n]), t0, t1)

        slopes = jax.jacfwd(of)(jnp.zeros_like(self.filter_.initial))
        increments = jax.vmap(lambda dq: system.velocities(after.q, dq), 1, 1)(slopes.q)
        own = jnp.concatenate([increments, slopes.v, slopes.z])
        F = jnp.concatenate([own, jnp.eye(theta.size, P.shape[0], n, P.dtype)])
        return after, F @ P @ F.T + jnp.diag(self.filter_.rates) * (t1 - t0)

    def differences(
        self, theta: Array, state: State, t: Array, measured: Any, counts: Any
    ) -> dict[str, Array]:
        """Measured less predicted readings in deviations; zero for those that do not count."""
        subject, _ = self.residuals.possible(self.of_free(theta))
        system, found = self.system(theta), {}
        for name, value in measured.items():
            sensor = subject.sensors.get(name, JointPosition(name))
            reading = sensor(system, t, state)
            # A missing reading may be NaN, whose derivatives would not be zero.
            value = jnp.where(counts[name], value, jax.lax.stop_gradient(reading))
            nearest = nearest_reading(sensor, subject.model, reading, value)
            if name in self.experiment.periods:
                nearest = nearest_in_periods(nearest, value, self.experiment.periods[name])
            difference = (value - nearest) / self.residuals.noise[name]
            found[name] = jnp.where(counts[name], difference, 0.0)
        return found

    def update(
        self, theta: Array, state: State, P: Array, t: Array, measured: Any, counts: Any
    ) -> Any:
        """Free numbers, state and covariance after the readings at t; scaled innovations."""
        system, n = self.system(theta), self.n_state

        def of(x: Array) -> tuple[Array, Any]:
            moved = system.displaced(state, x[:n])
            found = self.differences(theta + x[n:], moved, t, measured, counts)
            return ravel_pytree(found)[0], found

        minus_H, differences = jax.jacfwd(of, has_aux=True)(jnp.zeros_like(self.filter_.initial))
        r, unflatten = ravel_pytree(differences)
        H = -minus_H
        S = H @ P @ H.T + jnp.eye(r.size, dtype=r.dtype)
        K = jnp.linalg.solve(S, H @ P).T
        change, rest = K @ r, jnp.eye(P.shape[0], dtype=P.dtype) - K @ H
        P = rest @ P @ rest.T + K @ K.T  # Joseph's form stays symmetric and positive.
        innovations = unflatten(r / jnp.sqrt(jnp.diagonal(S)))
        return theta + change[n:], system.displaced(state, change[:n]), P, innovations


@stored
def _run(residuals: Residuals, filter_: Filter) -> Run:
    """The filter along the record."""
    experiment = residuals.batches[0].record(0)
    theta, unravel = ravel_pytree(residuals.selected.free())
    _, state = residuals.simulator.start(residuals.selected.subject.model, experiment)
    recursion = Recursion(residuals, experiment, filter_, theta.size)

    def step(carry: Any, row: Any) -> Any:
        theta, state, P, t0 = carry
        state, P = recursion.predict(theta, state, P, t0, row[0])
        theta, state, P, innovations = recursion.update(theta, state, P, *row)
        return (theta, state, P, row[0]), (theta, state, P, innovations)

    counts = {
        name: experiment.valid.get(name, jnp.ones(x.shape, dtype=bool))
        for name, x in experiment.measurements.items()
    }
    rows = experiment.ts, experiment.measurements, counts
    first, later = (jax.tree.map(lambda x, s=s: x[s], rows) for s in (0, slice(1, None)))
    begin = recursion.update(theta, state, jnp.diag(filter_.initial), *first)
    _, after = jax.lax.scan(step, (*begin[:3], first[0]), later)
    join = lambda a, b: jnp.concatenate([a[None], b])  # noqa: E731
    theta, states, P, innovations = jax.tree.map(join, begin, after)
    report = lambda x: residuals.selected.report(unravel(x))  # noqa: E731
    D, n = jax.vmap(jax.jacfwd(report))(theta), recursion.n_state
    variances = jnp.einsum("nkp,npq,nkq->nk", D, P[:, n:, n:], D)
    return Run(jax.vmap(report)(theta), jnp.sqrt(variances), states, innovations)
