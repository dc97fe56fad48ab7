"""What is sent to a worker, which may be another process on another machine."""

import importlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import jax

from ...errors import ModelError
from .chunks import Chunk, run_chunk
from .program import Program
from .versions import versions


@dataclass(frozen=True)
class Task:
    """What a worker needs to know: the function, and how the process that asked computes.

    - `function`: the user's, or `Sent`.
    - `size`: scenarios in a chunk; `digest`: a fingerprint of what is computed.
    - `float64`: whether numbers are in double precision.
    - `versions`: of the software, by package.
    """

    function: "Callable[[Any], Any] | Sent"
    size: int
    digest: str
    float64: bool
    versions: dict[str, str]

    def __call__(self, scenarios: Any) -> Chunk:
        """Results of a chunk, in any process; a process compiles once.

        **Raises** `ModelError` in a process that has other versions, or would compute something
        else.
        """
        own = versions()
        other = [
            f"{name} {own[name]}, not {x}" for name, x in self.versions.items() if own[name] != x
        ]
        if other:
            raise ModelError(
                f"sweep: a worker has {', '.join(other)}; install the same versions everywhere"
            )
        with jax.enable_x64(self.float64):
            with _compiling:
                program = self._program(scenarios)
            return run_chunk(program, scenarios)

    def _program(self, scenarios: Any) -> Program:
        key = self.digest, self.size
        if key not in _compiled:
            fn = self.function
            function = fn.received() if isinstance(fn, Sent) else fn
            program = Program(function, scenarios, self.size)
            if program.digest != self.digest:
                raise ModelError(
                    "sweep: a worker would compute something else; has it the same modules, does "
                    "the function depend on nothing but its scenario, and is the float type set "
                    "(JAX_ENABLE_X64) before modules make arrays?"
                )
            _compiled.clear()  # Of another sweep.
            _compiled[key] = program
        return _compiled[key]

    def __reduce__(self) -> tuple[Any, ...]:
        fn = self.function
        sent = fn if isinstance(fn, Sent) else Sent(_pickled(fn))
        return Task, (sent, self.size, self.digest, self.float64, self.versions)


@dataclass(frozen=True)
class Sent:
    """A function on its way to another process, to be read where it is called.

    Reading it earlier, when the executor reads the task, would turn its arrays, such as those of a
    model, into single precision where that is what the process computes in of its own accord.
    """

    data: bytes

    def received(self) -> Callable[[Any], Any]:
        """The function, with arrays in the float type that is set."""
        return pickle.loads(self.data)


def _pickled(function: Callable[[Any], Any]) -> bytes:
    """By cloudpickle where it is installed: also functions of a notebook, and within functions."""
    try:
        pickler: Any = importlib.import_module("cloudpickle")
    except ImportError:
        pickler = pickle
    try:
        return pickler.dumps(function)
    except Exception as error:
        raise ModelError(
            f"sweep: the function cannot be sent to other processes: {error}. Define it in a "
            "module and bind values by functools.partial, or install cloudpickle"
        ) from error


# Of this process, which gets a chunk after the other, each with a function of its own.
_compiled: dict[tuple[str, int], Program] = {}
_compiling = Lock()
