"""Problems of identification, which `identify`, `misfit` and `log_posterior` take."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from scalarjit.with_room import with_room

from ..errors import DataError, ModelError
from ..model import Model
from ..model.model import in_float_type, in_one_float_type
from ..model.values import all_concrete, as_jax, as_mapping, described, is_concrete
from ..programs import stored
from ..programs.tracing import nan_for_errors
from .batches import batch_experiments
from .continuity import join_windows
from .experiment import Experiment
from .losses import AbstractLoss, Squares
from .parameters import Selection, Subject, select_parameters
from .prediction import Sensors, by_record, check_sensors, check_starts, make_simulator
from .records import AbstractRecord, AnyRecord, split_experiments, stack_records
from .residuals import Residuals
from .substeps import MARGIN, Limits, Motions, primal, warn_traced


class Options(TypedDict, total=False):
    """Options of a `Problem`."""

    sensors: Sensors | None
    noise: Mapping[str, float] | None
    loss: AbstractLoss | None
    fit_initial_states: bool
    continuity: Sequence[Any] | None
    formulation: Any
    integrator: Any
    substeps: int | None
    jacobian: str


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """A model, records of its motion, and what to fit: the question to which a fit is the answer.

    `identify`, `misfit` and `log_posterior` take a problem, or its arguments in its place.

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
      model. If the error at the end of a fit is larger, the fit continues with more substeps.
    - `jacobian`: `"forward"`, or `"reverse"` if there are more parameters than residuals.

    Model and sensors are converted to the float type of the records.

    For example:

        record = mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": angles[0]})
        problem = mbd.Problem(model, record, ["forces.bearing.coefficient"], noise={"hinge": 1e-3})
        fit, density = mbd.identify(problem), mbd.log_posterior(problem)
    """

    model: Model
    experiments: AnyRecord | Sequence[AnyRecord]
    select: Selection
    sensors: Sensors | None = None
    noise: Mapping[str, float] | None = None
    loss: AbstractLoss | None = None
    fit_initial_states: bool = False
    continuity: Sequence[Any] | None = None
    formulation: Any = None
    integrator: Any = None
    substeps: int | None = None
    jacobian: str = "forward"

    def records(self, caller: str) -> tuple[list[Experiment], list[AbstractRecord]]:
        """Motions, and records of other kinds; errors name `caller`."""
        return split_experiments(self.experiments, caller)

    def residuals(self, caller: str, needs_parameters: bool = True) -> Residuals:
        """The residuals, from checked arguments; one substep where none are given."""
        experiments, records = self.records(caller)
        if self.jacobian not in ("forward", "reverse"):
            raise DataError(
                f"{caller}: jacobian must be 'forward' or 'reverse', got {self.jacobian!r}"
            )
        if self.continuity is not None and not self.fit_initial_states:
            raise DataError(f"{caller}: continuity needs fit_initial_states=True")
        if self.continuity is not None and not experiments:
            raise DataError(f"{caller}: continuity needs windows of a motion")
        if self.loss is not None and not isinstance(self.loss, AbstractLoss):
            raise DataError(
                f"{caller}: loss must be an instance of jaxmbd.losses, such as PseudoHuber(), got "
                f"{described(self.loss)}"
            )
        noise = as_mapping(
            self.noise, f"{caller}: noise", "{sensor: standard deviation}", DataError
        )
        dtype = jnp.result_type(float)
        model = in_float_type(in_one_float_type(self.model, caller=caller), dtype)
        sensors = in_float_type(self.sensors, dtype)
        simulator = make_simulator(self.formulation, sensors, self.integrator, self.substeps)
        subject = Subject(model, simulator.sensors)
        selected = select_parameters(subject, self.select, needs_parameters=needs_parameters)
        batches = batch_experiments(experiments)
        check_sensors(simulator, model, batches)
        windows = self.continuity
        return Residuals(
            selected,
            simulator,
            batches,
            _noise(noise, experiments, records),
            Squares() if self.loss is None else self.loss,
            self.fit_initial_states,
            self.jacobian == "reverse",
            None if windows is None else join_windows(windows, experiments, batches),
            stack_records(records, simulator, model, noise),
        )

    def with_substeps(self, caller: str, warns: bool = True) -> Residuals:
        """The residuals, with enough substeps for the motions at the start; given ones stay.

        **Warns** by `IntegrationWarning` if no number is enough, with `warns`.
        """
        residuals, (experiments, _) = self.residuals(caller), self.records(caller)
        if not residuals.simulator.chooses or not experiments:
            return residuals
        primals = primal((residuals, experiments, self.noise or {}))
        if not all_concrete(primals):
            warn_traced(caller)
            return residuals
        at_start, records, deviations = primals
        motions = motions_of(at_start, records, at_start.unknowns())
        limits = Limits(deviations)
        chosen = motions.chosen(limits._replace(margin=MARGIN)).substeps
        integration = motions.measured(chosen, limits)
        if warns and not integration.is_met:
            motions.warn(caller, integration, limits, False)
        return residuals.stepped(chosen)


def as_problem(caller: str, model: Any, experiments: Any, select: Any, options: Options) -> Problem:
    """The problem of these arguments; a problem is one already.

    **Raises** `DataError` for arguments beside a problem, and without records or parameters.
    """
    if isinstance(model, Problem):
        given = {"experiments": experiments, "select": select} | dict(options)
        beside = sorted(name for name, value in given.items() if value is not None)
        if beside:
            raise DataError(
                f"{caller}: a Problem has its own {beside[0]}; change it by "
                f"dataclasses.replace(problem, {beside[0]}=...)"
            )
        return model
    if not isinstance(model, Model):
        raise ModelError(f"{caller} needs a Model, got {described(model)}")
    if experiments is None or select is None:
        raise DataError(f"{caller} needs a Problem, or a model, experiments and what to select")
    return Problem(model, experiments, select, **options)


def motions_of(residuals: Residuals, experiments: Sequence[Experiment], unknowns: Any) -> Motions:
    """Motions of the records at given unknowns, for any number of substeps."""

    @functools.cache
    def run(n: int) -> list[dict[str, Array]]:
        return by_record(experiments, residuals.batches, readings_at(residuals, unknowns, n))

    subject = residuals.selected.apply(unknowns[0])
    simulator = eqx.tree_at(lambda s: s.sensors, residuals.simulator, subject.sensors)
    nearest = functools.partial(simulator.nearest, subject.model)
    return Motions(run, simulator.order, experiments, nearest)


def readings_at(residuals: Residuals, unknowns: Any, substeps: int) -> list[Mapping[str, Array]]:
    """Readings of all batches. **Raises** `AssemblyError` without a start near the guess."""
    readings = _readings(residuals.stepped(1), unknowns, as_jax(np.int32(substeps)))
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(readings)):
        check_starts(*residuals.fitted(unknowns[0]), residuals.batches, readings)
    return readings


@stored
@with_room
def _readings(
    residuals: Residuals, unknowns: Any, substeps: Int[Array, ""]
) -> list[Mapping[str, Array]]:
    theta, starts = unknowns
    each = jax.vmap(residuals.motion_of_one, in_axes=(None, 0, 0, None))
    with nan_for_errors():
        return [
            each(theta, start, batch.experiments, substeps)[0]
            for batch, start in zip(residuals.batches, starts, strict=True)
        ]


def _noise(
    given: Mapping[str, float],
    experiments: Sequence[Experiment],
    records: Sequence[AbstractRecord],
) -> dict[str, Array]:
    """Standard deviations of the readings of motions. Default: one.

    **Raises** `DataError` for invalid deviations, and for missing ones with other records, whose
    residuals are in deviations.
    """
    names = sorted({name for e in experiments for name in e.measurements})
    known = {*names, *(name for record in records for name in record.sensors())}
    for name in names if records else []:
        if name not in given:
            raise DataError(
                f"identify: give the noise of {name!r}: with {records[0].name!r}, readings of "
                "motions need a standard deviation, too"
            )
    for name, value in given.items():
        if name not in known:
            raise DataError(f"identify: noise of {name!r}, which no experiment measures")
        if isinstance(value, str) or np.ndim(value) != 0 or (is_concrete(value) and not value > 0):
            raise DataError(f"identify: noise of {name!r} must be positive, got {value}")
    dtype = jnp.result_type(float)
    return {name: jnp.asarray(given.get(name, 1.0), dtype=dtype) for name in names}
