"""One step a call, of one motion or of many, for loops outside of JAX."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...errors import ModelError
from ...integrators.explicit import as_integrator
from ...model.model import unknown
from ...model.values import all_concrete, as_leaf
from ...system.abstract import AbstractSystem, State, as_state, as_time
from ..start import as_start, as_system, described
from ..times import is_count
from .calls import CompiledCalls, calls_of
from .held_inputs import held_inputs
from .program import StepProgram


class Stepper:
    """Steps of an integrator, one a call, compiled ahead of time.

    For loops that cannot be part of a program: hardware in the loop, reinforcement learning,
    controllers outside of JAX. States are those of `rollout` with the same steps; `rollout`
    computes many steps in one call, and each step costs less. Numbers of the system and `dt` are
    constants of the compiled program. A stepper serves one thread at a time.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `integrator`: an integrator of this package or a diffrax Runge–Kutta method. None: Tsitouras'
      method of order 5.
    - `dt`: length of a step [s].
    - `inputs`: signals and numbers of forces that `step` replaces, each constant during a step:
      names of forces with one signal, paths such as `"forces.motor.voltage"`, names of joints on
      which one `JointTorque` acts, or `{label: path}`. Default: none.
    - `sensors`: `{name: sensor}`, the readings of `sensors()`. Default: none.
    - `batch`: number of motions; states, inputs and readings then have a leading axis of this
      length. Default: None, one motion without this axis.

    A step that does not converge gives NaN, and so do all later steps, until `reset`.

    **Raises** `ModelError` for invalid arguments, and `IncompatibleIntegrator` if the integrator
    cannot advance the system.
    """

    def __init__(
        self,
        system: Any,
        integrator: Any,
        dt: Any,
        *,
        inputs: Mapping[str, str] | Iterable[str] = (),
        sensors: Mapping[str, Callable[..., Array]] | None = None,
        batch: int | None = None,
    ):
        system = as_system(system, "Stepper")
        if not all_concrete(system):
            raise ModelError("Stepper: the system is traced; make a stepper outside of jit")
        if batch is not None and not is_count(batch):
            raise ModelError(f"Stepper: batch must be a whole number from 1 on, got {batch!r}")
        self.system: AbstractSystem = system
        self.dt = _step_length(dt)
        self.batch = batch
        places = held_inputs(system, inputs)
        self.inputs = tuple(label for place in places for label in place.labels)
        integrator = as_integrator(integrator)
        integrator.check(system)
        self._program = StepProgram(system, integrator, self.dt, places, _callables(sensors))
        self._calls, self.reason = calls_of(self._program, batch)
        self._lead = () if batch is None else (batch,)
        self._started = False
        self._u_shape = (*self._lead, self._program.n_inputs)

    def reset(self, state: Any, t0: Any = 0.0, where: Any = None) -> None:
        """Start from a state.

        **Arguments:**

        - `state`: a `State`, of a batch with a leading axis or one for all motions; or `{joint:
          coordinates}`, the `guess` of `assemble` at `t0`, at rest.
        - `t0`: time of the state [s]. Inputs have the values of the model at this time, until
          `step` sets them.
        - `where`: of a batch, the motions to start, shape `(batch,)`, booleans; the others go on.
          Default: all.

        **Raises** `ModelError` for states or times of other shapes, or that are not finite.
        """
        as_leaf(t0, (), "Stepper.reset: t0")
        given = self._states(state, t0)
        time = jnp.broadcast_to(as_time(t0, self.system), self._lead)
        if where is None:
            self._calls.reset(given, time)
        else:
            self._restart(given, time, where)
        self._started = True

    def step(self, u: Any = None) -> None:
        """Advance by one step of `dt`.

        **Arguments:**

        - `u`: inputs during the step, shape `(nu,)` in the order of `inputs`, of a batch
          `(batch, nu)`; or `{label: value}`, where inputs that are left out keep their values.
          Default: those of the last step.

        **Raises** `ModelError` before `reset`, and for inputs of another shape.
        """
        if u is not None:
            self._calls.put(self._inputs(u))
        if not self._started:
            raise ModelError("Stepper.step: no state; call reset(state) first")
        self._calls.step()

    def sensors(self) -> dict[str, np.ndarray]:
        """Readings at the present state, by name, with the inputs of the last step.

        **Raises** `ModelError` without sensors, and before `reset`.
        """
        shapes = self._program.reading_shapes
        if not shapes:
            raise ModelError("Stepper.sensors: no sensors; make the stepper with sensors={...}")
        self._flat()
        flat, readings, start = self._calls.read(), {}, 0
        for name in sorted(shapes):
            size = int(np.prod(shapes[name].shape))
            part = flat[..., start : start + size]
            readings[name] = part.reshape((*self._lead, *shapes[name].shape))
            start += size
        return readings

    @property
    def t(self) -> np.ndarray:
        """Present time [s], shape `()` or `(batch,)`."""
        head = self._part(0)
        return head[..., 0] + head[..., 1] * self.dt

    @property
    def q(self) -> np.ndarray:
        """Present coordinates, a copy, shape `(nq,)` or `(batch, nq)`."""
        return self._part(1)

    @property
    def v(self) -> np.ndarray:
        """Present velocities, a copy, shape `(nv,)` or `(batch, nv)`."""
        return self._part(2)

    @property
    def u(self) -> np.ndarray:
        """Present inputs, a copy, shape `(nu,)` or `(batch, nu)`, in the order of `inputs`."""
        self._flat()
        return np.array(self._calls.u)

    @property
    def state(self) -> State:
        """Present state, or states of a batch."""
        return State(*(jnp.asarray(self._part(k)) for k in (1, 2, 3)))

    def _flat(self) -> list[Any]:
        if not self._started:
            raise ModelError("Stepper: no state; call reset(state) first")
        return self._calls.flat

    def _part(self, k: int) -> np.ndarray:
        return self._program.packing.part(self._flat(), k)

    def _states(self, state: Any, t0: Any) -> State:
        """States of all motions."""
        batched = self.batch is not None and isinstance(state, State) and np.ndim(state.q) == 2
        if not batched:
            one = as_start(self.system, state, t0, "Stepper.reset")
            return jax.tree.map(lambda x: jnp.broadcast_to(x, (*self._lead, *x.shape)), one)
        states = as_state(state, self.system, "Stepper.reset: state", batch=True)
        if len(states.q) != self.batch:
            raise ModelError(
                f"Stepper.reset: {len(states.q)} states, but the batch has {self.batch} motions"
            )
        if not all(np.all(np.isfinite(np.asarray(x))) for x in jax.tree.leaves(states)):
            raise ModelError("Stepper.reset: states must be finite")
        return states

    def _restart(self, state: State, t0: Any, where: Any) -> None:
        where = np.asarray(where)
        if self.batch is None or where.shape != self._lead or where.dtype != bool:
            raise ModelError(
                "Stepper.reset: where must be an array of booleans, shape (batch,), of a stepper "
                f"with a batch, got {described(where)} of shape {where.shape}"
            )
        assert isinstance(self._calls, CompiledCalls)  # Batches are never generated code.
        before, u = [np.array(x) for x in self._flat()], np.array(self._calls.u)
        self._calls.reset(state, t0)

        def merged(new: Any, old: np.ndarray) -> Any:
            return jnp.asarray(np.where(where[:, None], np.asarray(new), old))

        self._calls.flat = list(map(merged, self._calls.flat, before))
        self._calls.put(np.where(where[:, None], self._calls.u, u))

    def _inputs(self, u: Any) -> np.ndarray:
        if isinstance(u, Mapping):
            return self._named(u)
        try:
            given = np.asarray(u, self._program.dtype)
        except (TypeError, ValueError) as error:
            raise ModelError(f"Stepper.step: u must be numbers, got {described(u)}") from error
        if given.shape != self._u_shape:
            raise ModelError(
                f"Stepper.step: u has shape {given.shape}, {self._u_shape} is needed: "
                f"{', '.join(self.inputs) or 'no inputs'}"
            )
        return given

    def _named(self, u: Mapping[str, Any]) -> np.ndarray:
        values = np.array(self._calls.u) if self._started else np.zeros(self._u_shape)
        for label, value in u.items():
            if label not in self.inputs:
                names = dict.fromkeys(self.inputs)
                raise ModelError(unknown("Stepper.step: unknown input", label, names))
            if np.shape(value) not in ((), self._lead):
                raise ModelError(
                    f"Stepper.step: {label!r} has shape {np.shape(value)}, {self._lead} is needed"
                )
            values[..., self.inputs.index(label)] = value
        return values


def _step_length(dt: Any) -> float:
    as_leaf(dt, (), "Stepper: dt")
    if not (all_concrete(dt) and np.isfinite(dt) and dt > 0):
        raise ModelError(f"Stepper: dt must be a positive number, got {dt}")
    return float(dt)


def _callables(sensors: Any) -> dict[str, Callable[..., Array]]:
    found = dict(sensors or {})
    for name, sensor in found.items():
        if isinstance(sensor, type) or not callable(sensor):
            raise ModelError(
                f"Stepper: sensors: {name!r} must be a sensor, such as "
                f"sensors.JointPosition('hinge'), got {described(sensor)}"
            )
    return found


__all__ = ["Stepper"]
