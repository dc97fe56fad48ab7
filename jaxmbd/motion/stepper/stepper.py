"""One step a call, of one motion or of many, for loops outside of JAX."""

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import scalarjit
from scalarjit.handler import BUFFER, ERROR_CREATE, EXECUTE, FRAME, FRAME_SIZE, LIST
from scalarjit.machine_code import is_installed
from scalarjit.registered import address_of, code_of
from scalarjit.switch import is_switched_off

from ...errors import ModelError, SimulationError
from ...integrators.explicit import as_integrator
from ...model.model import unknown
from ...model.values import all_concrete, as_leaf, described, is_count
from ...system.abstract import AbstractSystem, State, as_state, as_time
from ..arguments import as_start, as_system
from .held_inputs import held_inputs
from .step_program import StepProgram


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


# Calls of generated code without XLA, on arrays of NumPy that stay where they are -----------------

_Function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

# What the handler calls to report an error, instead of XLA: any result but zero is an error.
_report = _Function(lambda _: 1)


class DirectCall:
    """Generated code for one state, bound to the arrays that it reads and those that it writes.

    The handler reads a call frame of XLA. This frame stays the same for all calls.

    **Arguments:** `address`: of the handler; `arguments`, `results`: contiguous arrays of the
    types and shapes of its program.
    """

    def __init__(
        self, address: int, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ):
        self._arrays = [*arguments, *results]  # The frame holds their addresses.
        self._parts: list[ctypes.Array] = []
        frame = self._memory(FRAME_SIZE)
        _put(frame, 0, FRAME_SIZE)
        ctypes.c_int32.from_buffer(frame, FRAME["stage"]).value = EXECUTE
        for which, arrays in (("args", arguments), ("rets", results)):
            entries = self._memory(8 * max(len(arrays), 1))
            for k, array in enumerate(arrays):
                buffer = self._memory(BUFFER["dims"] + 8)
                _put(buffer, BUFFER["data"], array.ctypes.data)
                _put(entries, 8 * k, ctypes.addressof(buffer))
            _put(frame, FRAME[which] + LIST["count"], len(arrays))
            _put(frame, FRAME[which] + LIST["entries"], ctypes.addressof(entries))
        api = self._memory(ERROR_CREATE + 8)
        _put(api, ERROR_CREATE, ctypes.cast(_report, ctypes.c_void_p).value or 0)
        _put(frame, FRAME["api"], ctypes.addressof(api))
        self._function = _Function(address)
        self._frame = ctypes.c_void_p(ctypes.addressof(frame))

    def _memory(self, size: int) -> ctypes.Array:
        part = (ctypes.c_char * size)()
        self._parts.append(part)
        return part

    def __call__(self) -> None:
        """Compute the results.

        **Raises** `SimulationError` if the code has no memory for intermediate values.
        """
        if self._function(self._frame):
            raise SimulationError("Stepper: generated code failed; set SCALARJIT=0")


def _put(memory: ctypes.Array, offset: int, value: int) -> None:
    ctypes.c_int64.from_buffer(memory, offset).value = value


# The two ways to call the programs of a stepper: compiled by XLA, and generated code --------------


class CompiledCalls:
    """Programs compiled by XLA. The flat arrays of the last step are given to the next one.

    **Arguments:** `batch`: number of motions, None for one without an axis.
    """

    def __init__(self, program: StepProgram, batch: int | None):
        def many(fn: Callable[..., Any]) -> Callable[..., Any]:
            return fn if batch is None else jax.vmap(fn)

        def shaped(tree: Any) -> Any:
            lead = () if batch is None else (batch,)
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), tree)

        arguments = shaped(program.arguments)
        start = shaped((program.state, program.number))
        with scalarjit.enabled(is_installed() and not is_switched_off()):
            self._begin = jax.jit(many(program.begin)).lower(*start).compile()
            step = jax.jit(many(program.step), donate_argnums=0)
            self._step = step.lower(*arguments).compile()
            self._read = None
            if program.sensors:
                self._read = jax.jit(many(program.read)).lower(*arguments).compile()
        self.flat: list[Any] = []
        self.u: Any = None

    def reset(self, state: Any, t0: Any) -> None:
        """Start motions."""
        self.flat, u = self._begin(state, t0)
        self.u = np.asarray(u)

    def put(self, u: np.ndarray) -> None:
        """Set the inputs."""
        self.u = u.copy()  # JAX may read an array of NumPy after the call has returned.

    def step(self) -> None:
        """Advance motions by one step."""
        self.flat = self._step(self.flat, self.u)

    def read(self) -> np.ndarray:
        """All readings, one after the other."""
        assert self._read is not None
        return np.asarray(self._read(self.flat, self.u))


class GeneratedCalls:
    """Generated code, called without XLA on two arrays in turn."""

    def __init__(self, program: StepProgram, step: int, read: int | None):
        (flat,), u = program.arguments
        self.u = np.zeros(u.shape, u.dtype)
        self._arrays = np.zeros(flat.shape, flat.dtype), np.zeros(flat.shape, flat.dtype)
        a, b = self._arrays
        given = [self.u] if u.shape[0] else []
        self._steps = DirectCall(step, [a, *given], [b]), DirectCall(step, [b, *given], [a])
        self._now = 0
        self._begin = jax.jit(program.begin).lower(program.state, program.number).compile()
        self._reads: tuple[DirectCall, ...] = ()
        if read is not None:
            size = sum(int(np.prod(x.shape)) for x in program.reading_shapes.values())
            self._readings = np.zeros(size, flat.dtype)
            self._reads = tuple(DirectCall(read, [x, *given], [self._readings]) for x in (a, b))

    @property
    def flat(self) -> list[np.ndarray]:
        """Copies of the flat arrays."""
        return [self._arrays[self._now].copy()]

    def reset(self, state: Any, t0: Any) -> None:
        """Start a motion."""
        (flat,), u = self._begin(state, t0)
        self._arrays[self._now][:], self.u[:] = flat, u

    def put(self, u: np.ndarray) -> None:
        """Set the inputs."""
        self.u[:] = u

    def step(self) -> None:
        """Advance the motion by one step."""
        now = self._now
        self._steps[now]()
        self._now = 1 - now

    def read(self) -> np.ndarray:
        """All readings, one after the other."""
        self._reads[self._now]()
        return self._readings.copy()


def calls_of(program: StepProgram, batch: int | None) -> tuple[CompiledCalls | GeneratedCalls, str]:
    """The fastest calls of a program, and the reason if it is not generated code."""
    reason = _reason_against(program, batch)
    if reason:
        return CompiledCalls(program, batch), reason
    addresses: list[int | None] = []
    for fn in (program.step, program.read if program.sensors else None):
        found = None if fn is None else _generated(program, fn)
        if isinstance(found, str):
            return CompiledCalls(program, batch), found
        addresses.append(found)
    step, read = addresses
    assert step is not None
    return GeneratedCalls(program, step, read), ""


def _reason_against(program: StepProgram, batch: int | None) -> str:
    if is_switched_off():
        return "generated code is switched off"
    if not is_installed():
        return "llvmlite is not installed"
    if jax.default_backend() != "cpu":
        return "the program is not for the CPU"
    if batch is not None:
        return "a batch"
    if len(program.arguments[0]) != 1:
        return "the integrator's memory is not one array of floats"
    return ""


def _generated(program: StepProgram, fn: Callable[..., Any]) -> int | str:
    """Address of the generated code of a function, or the reason for which there is none."""
    (flat,), u = program.arguments
    given = (u,) if u.shape[0] else ()

    def of_arrays(flat: Any, *given: Any) -> Any:
        return fn([flat], given[0] if given else np.zeros(0, u.dtype))

    with scalarjit.enabled(True):
        found = scalarjit.native_or_reason(of_arrays, flat, *given)
    if isinstance(found, str):
        return found
    code = code_of(found.program, (False,) * (1 + len(given)))
    return address_of(code) if code.reason is None else code.reason
