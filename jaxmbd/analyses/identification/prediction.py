"""What a model says a record's sensors read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...errors import DataError
from ...formulations import JointCoordinates, formulate
from ...integrators.abstract import AbstractIntegrator
from ...integrators.explicit import as_integrator
from ...model import Model
from ...system.abstract import AbstractSystem, State
from ..assemble import assemble
from .batches import Batch, batch_experiments
from .experiment import Experiment
from .sensors import JointPosition

Sensors = Mapping[str, Callable[..., Array]]


class Simulator(eqx.Module):
    """How records are simulated: formulation, sensors, and steps within each sampling interval."""

    formulation: Any
    sensors: dict[str, Callable[..., Array]]
    integrator: AbstractIntegrator
    substeps: int = eqx.field(static=True)

    def start(self, model: Model, experiment: Experiment) -> tuple[AbstractSystem, State]:
        """The system of a record, with its own forces, and its initial state."""
        forces = {**model.forces, **experiment.forces}
        parts = model.frames, model.couplings, model.drivers
        own = Model(model.bodies, model.joints, forces, *parts)
        system = formulate(own, self.formulation, experiment.ts.dtype)
        return system, assemble(system, experiment.guess, experiment.rates)

    def readings(
        self, system: AbstractSystem, states: State, experiment: Experiment
    ) -> dict[str, Float[Array, "n *k"]]:
        """Readings of the record's sensors at its times, from the states there."""
        ts = experiment.ts.astype(system.mechanism.dtype)

        def read(name: str) -> Array:
            sensor = self.sensors.get(name, JointPosition(name))
            return jax.vmap(lambda t, y: sensor(system, t, y))(ts, states)

        return {name: read(name) for name in experiment.measurements}

    def states(self, system: AbstractSystem, state: State, experiment: Experiment) -> State:
        """States at the record's times, from a given initial one."""
        ts = experiment.ts.astype(system.mechanism.dtype)
        terms, advance = self.integrator.terms(system), self.integrator.advance
        memory = self.integrator.start(terms, ts[0], (ts[1] - ts[0]) / self.substeps, state, system)

        def step(
            carry: tuple[State, PyTree], interval: tuple[Array, Array]
        ) -> tuple[tuple[State, PyTree], State]:
            start, stop = interval
            h = (stop - start) / self.substeps

            for n in range(self.substeps):
                carry = advance(terms, start + n * h, start + (n + 1) * h, *carry, system)
            return carry, carry[0]

        _, later = jax.lax.scan(step, (state, memory), (ts[:-1], ts[1:]))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state, later)

    def predict(self, model: Model, experiment: Experiment) -> dict[str, Float[Array, "n *k"]]:
        """Readings of the record's sensors at its times, from its own start."""
        system, state = self.start(model, experiment)
        return self.readings(system, self.states(system, state, experiment), experiment)


def make_simulator(
    formulation: Any,
    sensors: Sensors | None,
    integrator: Any,
    substeps: int,
) -> Simulator:
    """A simulator from the options of `identify` and `predict`."""
    if substeps < 1:
        raise DataError(f"substeps must be one or more, got {substeps}")
    formulation = JointCoordinates() if formulation is None else formulation
    return Simulator(formulation, dict(sensors or {}), as_integrator(integrator), substeps)


def check_sensors(simulator: Simulator, model: Model, batches: Sequence[Batch]) -> None:
    """**Raises** `DataError` for a measurement without sensor or of another shape than it reads."""
    for batch in batches:
        name, first = f"experiment {batch.rows[0]}", batch.record(0)
        for key in first.measurements:
            if key not in simulator.sensors and key not in model.joints:
                known = ", ".join(sorted([*simulator.sensors, *model.joints]))
                raise DataError(
                    f"{name}: no sensor {key!r}; measurements are named after a joint, or after "
                    f"one of `sensors`: {known}"
                )
        shapes = jax.eval_shape(lambda e: simulator.predict(model, e), first)
        for key, values in first.measurements.items():
            if shapes[key].shape != values.shape:
                raise DataError(
                    f"{name}: {key!r} has shape {values.shape}, the sensor reads "
                    f"{shapes[key].shape}"
                )


def predict(
    model: Model,
    experiments: Experiment | Sequence[Experiment],
    *,
    formulation: Any = None,
    sensors: Sensors | None = None,
    integrator: Any = None,
    substeps: int = 1,
) -> Any:
    """What the records' sensors would read, from their starts and inputs.

    **Arguments:** as for `identify`.

    **Returns** `{sensor: readings}`, readings of shape `(n,)` or `(n, k)`, for one experiment; a
    list of these for a sequence of experiments.
    """
    simulator = make_simulator(formulation, sensors, integrator, substeps)
    return predicted(simulator, model, experiments)


def predicted(
    simulator: Simulator, model: Model, experiments: Experiment | Sequence[Experiment]
) -> Any:
    """What `predict` returns, by a simulator."""
    several = not isinstance(experiments, Experiment)
    records = list(experiments) if several else [experiments]
    if not records:
        raise DataError("predict: there are no experiments")
    batches = batch_experiments(records)
    check_sensors(simulator, model, batches)
    found: list[dict[str, Array]] = [{} for _ in records]
    for batch in batches:
        readings = _predict(simulator, model, batch)
        for i, row in enumerate(batch.rows):
            n = records[row].ts.shape[0]
            found[row] = {name: x[i, :n] for name, x in readings.items()}
    return found if several else found[0]


@eqx.filter_jit
def _predict(simulator: Simulator, model: Model, batch: Batch) -> dict[str, Array]:
    return jax.vmap(lambda e: simulator.predict(model, e))(batch.experiments)
