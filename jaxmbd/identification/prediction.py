"""Predicted readings of sensors."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array, Float, Int, PyTree

import scalarjit
from scalarjit import native_or_traced
from scalarjit.switch import generates
from scalarjit.with_room import with_room

from ..errors import AssemblyError, DataError, ModelError
from ..forces import AbstractElement
from ..formulations import formulate
from ..integrators.abstract import AbstractIntegrator
from ..integrators.explicit import as_integrator
from ..model import Model
from ..model.values import all_concrete, as_instance, as_jax, as_mapping, on_host
from ..motion.assemble import assemble
from ..programs import stored, with_progress
from ..programs.tracing import nan_for_errors, with_name
from ..sensors import Calibrated, JointPosition, nearest_reading
from ..system import constraints
from ..system.abstract import AbstractSystem, State
from ..system.joint_states import joint_states
from .batches import Batch, batch_experiments
from .experiment import Experiment
from .substeps import Limits, Motions, primal, warn_traced

# Motions with their derivatives in several directions, by the variational equations ---------------
# A step is linearized once for all directions, and the linear step is a loop over directions inside
# the loop over steps. JAX's forward mode would batch all operations over the directions instead,
# and generated code would repeat the motion for each of them.

# System and initial state as a function of some numbers, shape `(k,)`.
Begin = Callable[[Array], tuple[AbstractSystem, State]]


def states_with_slopes(
    begin: Begin,
    numbers: Float[Array, "k"],
    ts: Float[Array, "n"],
    integrator: AbstractIntegrator,
    substeps: int,
) -> tuple[State, State] | None:
    """States at all times, and their derivatives by the numbers with a leading axis of length k.

    None if no code is generated for the motion.
    """
    rests: list[Any] = []

    def begun(x: Array) -> tuple[PyTree, State]:
        system, state = begin(x)
        floats, rest = eqx.partition(system, eqx.is_inexact_array)
        rests.append(rest)
        return floats, state

    (floats, start), push = jax.linearize(begun, numbers)
    floats_of, start_of = jax.vmap(with_name(push))(jnp.eye(numbers.size, dtype=numbers.dtype))
    moves, _ = _depends(begun, numbers)
    moved, still = eqx.partition(floats, moves)
    # All arrays are arguments, as code cannot be generated around values that are being traced.
    others, static = eqx.partition((rests[0], integrator), eqx.is_array)

    def run(still: Any, others: Any, moved: Any, moved_of: Any, start: Any, start_of: Any, ts: Any):
        rest, method = eqx.combine(others, static)

        def step(carry: tuple[State, State], ends: tuple[Array, Array]) -> tuple[Any, None]:
            state, slopes = carry

            def move(moved: PyTree, state: State) -> State:
                system = eqx.combine(moved, still, rest)
                return method.advance(system, *ends, state, None)[0]

            # Generated code within would repeat the motion for its derivative.
            with scalarjit.as_part():
                state, push = jax.linearize(move, moved, state)
            return (state, jax.lax.map(lambda x: push(*x), (moved_of, slopes))), None

        def interval(carry: tuple[State, State], ends: tuple[Array, Array]) -> tuple[Any, Any]:
            t0, t1 = ends
            if substeps == 1:  # The program is smaller without a loop.
                carry, _ = step(carry, ends)
            else:
                parts = t0 + (t1 - t0) / substeps * jnp.arange(substeps + 1, dtype=ts.dtype)
                carry, _ = jax.lax.scan(step, carry, (parts[:-1], parts[1:]))
            return carry, carry

        return jax.lax.scan(interval, (start, start_of), (ts[:-1], ts[1:]))[1]

    args = still, others, moved, eqx.filter(floats_of, moves), start, start_of, ts
    function = scalarjit.native_of(run, *args)
    if function is None:
        return None
    states, slopes = function(*args)
    slopes = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), slopes)
    join = lambda a, b, axis: jnp.concatenate([jnp.expand_dims(a, axis), b], axis)  # noqa: E731
    return (
        jax.tree.map(lambda a, b: join(a, b, 0), start, states),
        jax.tree.map(lambda a, b: join(a, b, 1), start_of, slopes),
    )


def _depends(fn: Callable[..., Any], *args: Array) -> Any:
    """For each array of the result, whether it is computed from the arguments."""
    program, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    computed = set(program.jaxpr.invars)
    for equation in program.jaxpr.eqns:
        if any(not isinstance(x, Literal) and x in computed for x in equation.invars):
            computed.update(equation.outvars)
    flags = [not isinstance(x, Literal) and x in computed for x in program.jaxpr.outvars]
    return jax.tree.unflatten(jax.tree.structure(shapes), flags)


Sensors = Mapping[str, Callable[..., Array]]


class Simulator(eqx.Module):
    """Options for simulating records: formulation, sensors, integrator and substeps.

    `chooses` is whether the number of substeps is chosen from the integration error.
    """

    formulation: Any
    sensors: dict[str, Callable[..., Array]]
    integrator: AbstractIntegrator
    substeps: int = eqx.field(static=True)
    chooses: bool = eqx.field(static=True)

    def stepped(self, substeps: int) -> "Simulator":
        """A copy with another number of substeps."""
        return Simulator(self.formulation, self.sensors, self.integrator, substeps, self.chooses)

    def nearest(self, model: Model, name: str, reading: Any, measured: Any) -> Any:
        """The reading nearest to `measured` of all readings equivalent to `reading`."""
        sensor = self.sensors.get(name, JointPosition(name))
        return nearest_reading(sensor, model, as_jax(reading), as_jax(measured))

    @property
    def order(self) -> int:
        """Order of the integrator, one if it has none."""
        return self.integrator.order(None) or 1

    def system(
        self,
        model: Model,
        forces: Mapping[str, AbstractElement],
        dtype: Any,
        inputs: Mapping[str, Any] | None = None,
    ) -> AbstractSystem:
        """The system of a model with forces and inputs of a record."""
        own = model.with_(forces=forces)
        return formulate(own.replace(inputs) if inputs else own, self.formulation, dtype)

    def system_of(self, model: Model, record: Experiment) -> AbstractSystem:
        """The system of a record, with its own forces and inputs."""
        return self.system(model, record.forces, record.ts.dtype, record.inputs)

    def start(self, model: Model, experiment: Experiment) -> tuple[AbstractSystem, State]:
        """The system of a record, with its own forces and inputs, and its initial state."""
        system = self.system_of(model, experiment)
        self.integrator.check(system)
        at, guess = experiment.ts[0], self._joint_guess(model, experiment.guess)
        return system, assemble(system, guess, experiment.rates, at, states=experiment.states)

    def _joint_guess(self, model: Model, guess: Mapping[str, Any]) -> dict[str, Any]:
        """Joint coordinates from a guess, which may have readings of calibrated sensors of joints.

        **Raises** `DataError` if a joint has two values.
        """
        found: dict[str, Any] = {}
        for name, value in guess.items():
            sensor = None if name in model.joints else self.sensors.get(name)
            if isinstance(sensor, Calibrated) and isinstance(sensor.sensor, JointPosition):
                name, value = sensor.sensor.joint, sensor.actual(value)
            if not isinstance(name, str) or name in found:
                raise DataError(f"guess: {name!r} needs one value of one joint")
            found[name] = value
        return found

    def readings(
        self, system: AbstractSystem, states: State, experiment: Experiment
    ) -> dict[str, Float[Array, "n *k"]]:
        """Readings of the record's sensors at its times, from the states at these times."""
        ts = experiment.ts.astype(system.mechanism.dtype)

        def read(name: str) -> Array:
            sensor = self.sensors.get(name, JointPosition(name))
            return jax.vmap(lambda t, y: sensor(system, t, y))(ts, states)

        return {name: read(name) for name in experiment.measurements}

    def states(
        self,
        system: AbstractSystem,
        state: State,
        experiment: Experiment,
        substeps: Int[Array, ""] | None = None,
    ) -> State:
        """States at the record's times, from an initial state.

        With traced `substeps`, one program serves all numbers of substeps but has no reverse-mode
        derivatives. Default: the static number of the simulator.
        """
        ts = experiment.ts.astype(system.mechanism.dtype)
        n = self.substeps if substeps is None else substeps
        count = jnp.asarray(n, dtype=ts.dtype)
        memory = self.integrator.start(system, ts[0], (ts[1] - ts[0]) / count, state)
        # All arrays are arguments, as code cannot be generated around values that are being traced.
        arrays, rest = eqx.partition((system, count, n, self.integrator), eqx.is_array)

        def step(
            carry: tuple[State, PyTree], interval: tuple[Array, Array], arrays: PyTree
        ) -> tuple[tuple[State, PyTree], State]:
            system, count, n, method = eqx.combine(arrays, rest)
            start, stop = interval
            h = (stop - start) / count

            def substep(i: Int[Array, ""], carry: tuple[State, PyTree]) -> tuple[State, PyTree]:
                k = jnp.asarray(i, h.dtype)  # Without `jit`, i is a number of Python.
                return method.advance(system, start + k * h, start + (k + 1) * h, *carry)

            if isinstance(n, int) and n == 1:  # The program is smaller without a loop.
                carry = method.advance(system, start, stop, *carry)
            else:
                carry = jax.lax.fori_loop(0, n, substep, carry)
            return carry, carry[0]

        def run(arrays: PyTree, state: State, memory: PyTree, ts: Array) -> State:
            move = functools.partial(step, arrays=arrays)
            return jax.lax.scan(move, (state, memory), (ts[:-1], ts[1:]))[1]

        args = arrays, state, memory, ts
        if self.integrator.for_fixed_steps().explicit:
            run = native_or_traced(run, *args)
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state, run(*args))

    def states_with_slopes(
        self,
        begin: Begin,
        numbers: Float[Array, "k"],
        experiment: Experiment,
    ) -> tuple[State, State] | None:
        """States at the record's times, and their derivatives by numbers with a leading axis k.

        `begin`: function from the numbers to the system and its initial state. None unless code is
        generated for the motion.
        """
        if not (generates() and self.integrator.for_fixed_steps().explicit):
            return None
        return states_with_slopes(begin, numbers, experiment.ts, self.integrator, self.substeps)

    def at_start(self, model: Model, experiment: Experiment) -> dict[str, Float[Array, "n *k"]]:
        """As `predict` if the mechanism stayed where it starts: the same shapes, and no motion."""
        system, state = self.start(model, experiment)
        n = experiment.ts.shape[0]
        states = jax.tree.map(lambda x: jnp.broadcast_to(x[None], (n, *x.shape)), state)
        return self.readings(system, states, experiment)

    def predict(
        self, model: Model, experiment: Experiment, substeps: Int[Array, ""] | None = None
    ) -> dict[str, Float[Array, "n *k"]]:
        """Readings of the record's sensors at its times, from its own start; see `states`."""
        system, state = self.start(model, experiment)
        return self.readings(system, self.states(system, state, experiment, substeps), experiment)


class Prediction(eqx.Module, Mapping[str, Array]):
    """Predicted readings of a record's sensors: a mapping `{sensor: readings}`.

    - `readings`: by sensor, shape `(n,)` or `(n, k)`.
    - `substeps`: number of integration steps in each sample interval.
    - `integration_error`: `{sensor: estimated largest error at sample times}` in all records of the
      call, in the sensor's own unit; None if the model or a record is traced.
    """

    readings: dict[str, Float[Array, "n *k"]]
    substeps: int = eqx.field(static=True)
    integration_error: dict[str, float] | None

    def __getitem__(self, name: str) -> Array:
        return self.readings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.readings)

    def __len__(self) -> int:
        return len(self.readings)


def motions_only(experiments: Any, caller: str) -> list[Experiment]:
    """**Raises** `DataError` without experiments, and for records that are not motions."""
    single = isinstance(experiments, eqx.Module)
    records: list[Any] = [experiments] if single else list(experiments)
    if not records:
        raise DataError(f"{caller}: there are no experiments")
    for i, x in enumerate(records):
        if not isinstance(x, Experiment):
            raise DataError(
                f"{caller}: experiment {i} is a {type(x).__name__}, which has no motion; call "
                "`equilibrium` or `linearize` with the model instead"
            )
    return records


def make_simulator(
    formulation: Any,
    sensors: Sensors | None,
    integrator: Any,
    substeps: int | None,
) -> Simulator:
    """A simulator from the options of `identify` and `predict`."""
    if substeps is not None and (not isinstance(substeps, int) or substeps < 1):
        raise DataError(f"substeps must be one or more, and a whole number, got {substeps!r}")
    if not isinstance(sensors or {}, Mapping):
        raise DataError(f"sensors must be a dict {{name: sensor}}, got a {type(sensors).__name__}")
    for name, sensor in (sensors or {}).items():
        if isinstance(sensor, type) or not callable(sensor):
            raise DataError(
                f"sensor {name!r} must be an instance of jaxmbd.sensors or a function (system, t, "
                f"state), got {sensor!r:.60}"
            )
    return Simulator(
        formulation,
        dict(sensors or {}),
        as_integrator(integrator),
        1 if substeps is None else substeps,
        chooses=substeps is None,
    )


def check_sensors(simulator: Simulator, model: Model, batches: Sequence[Batch]) -> None:
    """**Raises** `DataError` for a measurement without sensor, or of another shape."""
    for batch in batches:
        name, first = batch.called(0), batch.record(0)
        for key in first.measurements:
            if key not in simulator.sensors and key not in model.joints:
                known = ", ".join(sorted([*simulator.sensors, *model.joints]))
                raise DataError(
                    f"{name}: no sensor {key!r}; measurements are named after a joint, or after "
                    f"one of `sensors`: {known}"
                )
        try:
            shapes = jax.eval_shape(lambda e, s=simulator: s.at_start(model, e), first)
        except (ModelError, DataError) as error:
            raise type(error)(f"{name}: {error}") from error
        for key, values in first.measurements.items():
            if shapes[key].shape != values.shape:
                raise DataError(
                    f"{name}: {key!r} has shape {values.shape}, the sensor reads "
                    f"{shapes[key].shape}"
                )


@with_progress
def predict(
    model: Model,
    experiments: Any,
    guess: Mapping[str, Any] | None = None,
    rates: Mapping[str, Any] | None = None,
    *,
    states: Mapping[str, Any] | None = None,
    formulation: Any = None,
    sensors: Sensors | None = None,
    integrator: Any = None,
    substeps: int | None = None,
    noise: Mapping[str, float] | None = None,
) -> Any:
    """Predict readings of sensors, from initial states and inputs of records, or at given times.

    **Arguments:** `experiments`: one or more records, whose sensors are read; or times `ts`, shape
    `(n,)` [s], at which all joints with coordinates and all `sensors` are read. The motion then
    starts at `ts[0]` from `guess`, `rates` and `states`, as for `assemble`; records have their own.
    The other arguments are as for `identify`. The limit of the integration error is 1e-6 of the
    largest reading of a sensor in all records, or a hundredth of its `noise`, if that is given.

    **Returns** a `Prediction` for one experiment, or for times: a mapping `{sensor: readings}` with
    readings of shape `(n,)` or `(n, k)`; a list of them for a sequence of experiments.

    **Warns** by `IntegrationWarning` if the integration error exceeds its limit, and, without
    `substeps`, under a transformation such as `jax.jit`: substeps cannot be chosen, and the default
    is one.

    **Raises** `DataError` for invalid records or times, and for an initial state given with
    records; `ModelError` for an invalid initial state.

    For example:

        record = mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": 0.3})
        angle = mbd.predict(model, record)["hinge"]
    """
    as_instance(model, Model, "predict: model", "a Model")
    noise = as_mapping(noise, "predict: noise", "{sensor: standard deviation}", DataError)
    simulator = make_simulator(formulation, sensors, integrator, substeps)
    for name in noise or {}:
        if name not in {*model.joints, *simulator.sensors}:
            raise DataError(f"predict: noise of {name!r}, which is neither a joint nor a sensor")
    start = {"guess": guess, "rates": rates, "states": states}
    if _are_records(experiments):
        given = [name for name, x in start.items() if x is not None]
        if given:
            raise DataError(f"predict: records have their own {', '.join(given)}; omit the others")
    else:
        experiments = _unmeasured(simulator, model, experiments, **start)
    return predicted(simulator, model, experiments, noise)


def _are_records(experiments: Any) -> bool:
    """True if the argument is a record or a sequence of them, and not times."""
    if isinstance(experiments, eqx.Module):
        return True
    return isinstance(experiments, list | tuple) and (
        not experiments or any(isinstance(x, eqx.Module) for x in experiments)
    )


def _unmeasured(simulator: Simulator, model: Model, ts: Any, **start: Any) -> Experiment:
    """A record of all joints with coordinates and all sensors, without readings.

    Zeros of the shapes of the readings are in their place; predictions do not depend on them.
    """
    moving = [name for name, joint in model.joints.items() if joint.sizes()[0] > 0]
    names = dict.fromkeys([*moving, *simulator.sensors])
    if not names:
        raise DataError("predict: no joint has coordinates; give sensors")
    zeros = jnp.zeros(jnp.shape(ts))
    record = Experiment(ts, dict.fromkeys(names, zeros), name="predict", **start)
    shapes = jax.eval_shape(lambda e: simulator.at_start(model, e), record)
    readings = {name: jnp.zeros(shapes[name].shape, shapes[name].dtype) for name in names}
    return Experiment(ts, readings, name="predict", **start)


def predicted(
    simulator: Simulator,
    model: Model,
    experiments: Any,
    noise: Mapping[str, float] | None = None,
    residuals: Mapping[str, float] | None = None,
) -> Any:
    """Predictions of a simulator.

    Integration errors are compared with the noise of sensors, or with the residuals of a fit.
    """
    several = not isinstance(experiments, Experiment)
    records = motions_only(experiments, "predict")
    batches = batch_experiments(records)
    check_sensors(simulator, model, batches)
    errors, limits = None, Limits(noise or {}, residuals or {})
    primals, any_number = primal((model, batches)), simulator.stepped(1)

    @functools.cache
    def run(n: int) -> list[dict[str, Array]]:
        model, batches = primals
        readings = [
            _predict_or_nan(any_number, model, batch, as_jax(np.int32(n))) for batch in batches
        ]
        check_starts(simulator, model, batches, readings)
        return by_record(records, batches, readings)

    if all_concrete(primals):
        nearest = functools.partial(simulator.nearest, model)
        motions = Motions(run, simulator.order, records, nearest)
        if simulator.chooses:
            integration = motions.chosen(limits)
        else:
            integration = motions.measured(simulator.substeps, limits)
        if not integration.is_met:
            motions.warn("predict", integration, limits, not simulator.chooses)
        errors, simulator = integration.errors, simulator.stepped(integration.substeps)
    elif simulator.chooses:
        warn_traced("predict")
    if all_concrete((model, batches)):
        readings = run(simulator.substeps)
    else:  # Static substeps can be differentiated in both modes.
        by_batch = [_predict(simulator, model, batch, None) for batch in batches]
        readings = by_record(records, batches, by_batch)
    predictions = [Prediction(x, simulator.substeps, errors) for x in readings]
    return predictions if several else predictions[0]


def check_starts(
    simulator: Simulator,
    model: Model,
    batches: Sequence[Batch],
    readings: Sequence[Mapping[str, Array]],
) -> None:
    """**Raises** `AssemblyError` if readings are NaN as joints do not close from a guess."""
    for batch, read in zip(batches, readings, strict=True):
        of_first = [np.asarray(x)[:, 0].reshape(len(batch.rows), -1) for x in read.values()]
        lost = ~np.isfinite(np.concatenate(of_first, axis=1)).all(axis=1)
        for i in np.flatnonzero(lost).tolist():
            try:  # With a search from far away.
                system, state = simulator.start(model, batch.record(i))
            except AssemblyError as error:
                raise AssemblyError(f"{batch.called(i)}: {error}") from error
            if constraints.n_constraints(system):
                found = joint_states(system, batch.record(i).ts[0], state).items()
                near = {name: np.round(x.q, 4).tolist() for name, x in found if x.q.size}
                raise AssemblyError(
                    f"{batch.called(i)}: the joints close only far from the guess; pass the guess "
                    f"{near}"
                )


def by_record(
    records: Sequence[Experiment],
    batches: Sequence[Batch],
    readings: Sequence[Mapping[str, Array]],
) -> list[dict[str, Array]]:
    """Readings of batches in the order of records, without padding."""
    ordered: list[dict[str, Array]] = [{} for _ in records]
    for batch, values in zip(batches, readings, strict=True):
        for i, row in enumerate(batch.rows):
            n = records[row].ts.shape[0]
            ordered[row] = {name: as_jax(on_host(x)[i, :n]) for name, x in values.items()}
    return ordered


@stored
@with_room
def _predict(
    simulator: Simulator, model: Model, batch: Batch, substeps: Int[Array, ""] | None
) -> dict[str, Array]:
    return jax.vmap(lambda e: simulator.predict(model, e, substeps))(batch.experiments)


@stored
@with_room
def _predict_or_nan(
    simulator: Simulator, model: Model, batch: Batch, substeps: Int[Array, ""]
) -> dict[str, Array]:
    with nan_for_errors():
        return jax.vmap(lambda e: simulator.predict(model, e, substeps))(batch.experiments)
