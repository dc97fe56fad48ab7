"""Readings of sensors in static equilibria."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from ..errors import DataError
from ..model import Model
from ..model.values import as_mapping
from ..sensors import JointPosition
from ..system.abstract import AbstractSystem, State
from .prediction import Simulator
from .record_equilibrium import BoundRest, Rest, rest_of
from .records import AbstractBoundRecord, AbstractRecord, numbers


class StaticExperiment(AbstractRecord):
    """Readings of sensors at rest under known loads, such as deflections.

    **Arguments:**

    - `measured`: `{sensor: reading}`, numbers or arrays. A sensor is the name of a joint, for its
      coordinates, or one of the sensors given to `identify`.
    - `deviations`: `{sensor: standard deviation}`, a number or the shape of the reading. Default:
      the `noise` of the sensor given to `identify`.
    - `load`: `{name: element}` replaces an element of the model or adds one; `{name: factor}`
      multiplies a load of the model, as in `equilibrium`.
    - `change`: whether readings are differences to the equilibrium without `load`.
    - `guess`, `states`: joint coordinates and first-order states where the search starts, as for
      `assemble`.
    - `t`, `hold`, `method`: as for `equilibrium`; `method` by its name.
    - `name`: name in messages.

    **Raises** `DataError`, with record and sensor, for readings that are not finite and for
    deviations that are not positive.
    """

    measured: dict[str, Float[Array, "..."]]
    deviations: dict[str, Float[Array, "..."]]
    rest: Rest
    change: bool = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(
        self,
        measured: Mapping[str, Any],
        deviations: Mapping[str, Any] | None = None,
        *,
        load: Mapping[str, Any] | None = None,
        change: bool = False,
        guess: Mapping[str, Any] | None = None,
        states: Mapping[str, Any] | None = None,
        t: Any = 0.0,
        hold: str | Sequence[str] = (),
        method: str = "auto",
        name: str = "static experiment",
    ):
        self.name, self.change = name, change
        measured = as_mapping(measured, f"{name}: measured", "{sensor: reading}", DataError)
        deviations = as_mapping(
            deviations, f"{name}: deviations", "{sensor: standard deviation}", DataError
        )
        self.measured = {k: numbers(x, f"{name}: {k!r}") for k, x in sorted(measured.items())}
        if not measured:
            raise DataError(f"{name}: there are no measurements")
        if change and not load:
            raise DataError(f"{name}: readings are changes by a load; give `load`")
        self.deviations = {}
        for key, x in deviations.items():
            if key not in measured:
                raise DataError(f"{name}: deviation of {key!r}, which is not measured")
            shape = self.measured[key].shape
            label = f"{name}: deviation of {key!r}"
            self.deviations[key] = numbers(x, label, shape, positive=True)
        self.rest = rest_of(name, load, guess, states, t, hold, method)

    def labels(self) -> tuple[str, ...]:
        return tuple(
            f"{key}{list(index) if index else ''}"
            for key, x in self.measured.items()
            for index in np.ndindex(x.shape)
        )

    def sensors(self) -> tuple[str, ...]:
        return tuple(self.measured)

    def bound(
        self, simulator: Simulator, model: Model, noise: Mapping[str, float]
    ) -> "BoundStatic":
        deviations = {}
        for key, x in self.measured.items():
            if key not in simulator.sensors and key not in model.joints:
                known = ", ".join(sorted([*simulator.sensors, *model.joints]))
                raise DataError(
                    f"{self.name}: no sensor {key!r}; measurements are named after a joint, or "
                    f"after one of `sensors`: {known}"
                )
            if key in self.deviations:
                deviations[key] = self.deviations[key]
            elif key in noise:
                deviations[key] = jnp.full(x.shape, noise[key], x.dtype)
            else:
                raise DataError(
                    f"{self.name}: {key!r} has no standard deviation; give `deviations`, or the "
                    "`noise` of this sensor to the fit"
                )
        rest, system, state = self.rest.bound(simulator, model, self.change)
        readings = jax.eval_shape(
            lambda: _readings(self.measured, simulator, system, rest.t, state)
        )
        for key, x in self.measured.items():
            if readings[key].shape != x.shape:
                raise DataError(
                    f"{self.name}: {key!r} has shape {x.shape}, the sensor reads "
                    f"{readings[key].shape}"
                )
        flat = ravel_pytree(self.measured)[0], ravel_pytree(deviations)[0]
        return BoundStatic(*flat, self.measured, rest)


class BoundStatic(AbstractBoundRecord):
    """A static record that fits a model; `readings` are the measured numbers by sensor."""

    measured: Float[Array, "*batch m"]
    deviations: Float[Array, "*batch m"]
    readings: dict[str, Float[Array, "..."]]
    rest: BoundRest

    def predicted(
        self, simulator: Simulator, model: Model
    ) -> tuple[Float[Array, "m"], Bool[Array, ""]]:
        def reader(system: AbstractSystem, state: State) -> dict[str, Array]:
            return _readings(self.readings, simulator, system, self.rest.t, state)

        both, exist = self.rest.read(simulator, model, reader)
        nearest = {}
        for key, x in both.items():
            first = x[1] if self.rest.change else jnp.zeros_like(x[0])
            near = self.readings[key] + first
            nearest[key] = simulator.nearest(model, key, x[0], near) - first
        return ravel_pytree(nearest)[0], exist


def _readings(
    names: Mapping[str, Any],
    simulator: Simulator,
    system: AbstractSystem,
    t: Float[Array, ""],
    state: State,
) -> dict[str, Float[Array, "..."]]:
    return {key: simulator.sensors.get(key, JointPosition(key))(system, t, state) for key in names}
