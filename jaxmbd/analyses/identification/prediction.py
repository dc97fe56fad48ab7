"""What a model says a record's sensors read."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import DataError
from ...formulations import JointCoordinates, formulate
from ...integrators.abstract import AbstractIntegrator
from ...integrators.explicit import as_integrator
from ...model import Model
from ...system.abstract import AbstractSystem, State
from ..assemble import assemble
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
        own = Model(model.bodies, model.joints, forces, model.frames)
        system = formulate(own, self.formulation)
        return system, assemble(system, experiment.guess, experiment.rates)

    def readings(
        self, system: AbstractSystem, state: State, experiment: Experiment
    ) -> dict[str, Float[Array, "n *k"]]:
        """Readings of the record's sensors at its times, from a given initial state."""
        ts = experiment.ts.astype(system.mechanism.dtype)
        states = self._states(system, state, ts)

        def read(name: str) -> Array:
            sensor = self.sensors.get(name, JointPosition(name))
            return jax.vmap(lambda t, y: sensor(system, t, y))(ts, states)

        return {name: read(name) for name in experiment.measurements}

    def _states(self, system: AbstractSystem, state: State, ts: Float[Array, "n"]) -> State:
        terms = self.integrator.terms(system)

        def step(y: State, interval: tuple[Array, Array]) -> tuple[State, State]:
            start, stop = interval
            h = (stop - start) / self.substeps

            for n in range(self.substeps):
                y = self.integrator.advance(terms, start + n * h, start + (n + 1) * h, y, system)
            return y, y

        _, later = jax.lax.scan(step, state, (ts[:-1], ts[1:]))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state, later)


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


def check_sensors(simulator: Simulator, model: Model, experiment: Experiment, name: str) -> None:
    """**Raises** `DataError` for a measurement without sensor or of another shape than it reads."""
    for key in experiment.measurements:
        if key not in simulator.sensors and key not in model.joints:
            raise DataError(
                f"{name}: no sensor {key!r}; measurements are named after a joint, or after one of "
                f"`sensors`: {', '.join(sorted([*simulator.sensors, *model.joints]))}"
            )
    system, state = jax.eval_shape(lambda: simulator.start(model, experiment))
    shapes = jax.eval_shape(simulator.readings, system, state, experiment)
    for key, values in experiment.measurements.items():
        if shapes[key].shape != values.shape:
            raise DataError(
                f"{name}: {key!r} has shape {values.shape}, the sensor reads {shapes[key].shape}"
            )


def predict(
    model: Model,
    experiment: Experiment,
    *,
    formulation: Any = None,
    sensors: Sensors | None = None,
    integrator: Any = None,
    substeps: int = 1,
) -> dict[str, Float[Array, "n *k"]]:
    """What the record's sensors would read, `{sensor: readings}`, from its start and inputs.

    **Arguments:** as for `identify`.
    """
    simulator = make_simulator(formulation, sensors, integrator, substeps)
    check_sensors(simulator, model, experiment, "predict")
    return _predict(simulator, model, experiment)


@eqx.filter_jit
def _predict(simulator: Simulator, model: Model, experiment: Experiment) -> dict[str, Array]:
    system, state = simulator.start(model, experiment)
    return simulator.readings(system, state, experiment)
