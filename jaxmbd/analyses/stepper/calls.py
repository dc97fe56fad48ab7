"""The two ways to call the programs of a stepper: compiled by XLA, and generated code."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import scalarjit
from scalarjit.machine_code import is_installed
from scalarjit.registered import address_of, code_of
from scalarjit.switch import is_switched_off

from .direct import DirectCall
from .program import StepProgram


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


__all__ = ["CompiledCalls", "GeneratedCalls", "calls_of"]
