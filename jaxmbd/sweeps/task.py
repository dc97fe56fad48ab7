"""Tasks for workers, which may be processes on other machines."""

import importlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import jax

from ..errors import ModelError
from .chunks import Chunk, run_chunk
from .program import Program
from .versions import versions


@dataclass(frozen=True)
class Task:
    """A function and the settings of the calling process, for a worker.

    - `function`: the user's function, or `Sent`.
    - `size`: number of scenarios in a chunk; `digest`: digest of the function's program.
    - `float64`: whether numbers are in double precision.
    - `versions`: versions of the software, by package.
    """

    function: "Callable[[Any], Any] | Sent"
    size: int
    digest: str
    float64: bool
    versions: dict[str, str]

    def __call__(self, scenarios: Any) -> Chunk:
        """Results of a chunk, in any process; a process compiles once.

        **Raises** `ModelError` in a process with other versions, or with another program.
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
                    "sweep: a worker would compute something else; it needs the same modules, a "
                    "function that depends on its scenario only, and a float type that is set "
                    "(JAX_ENABLE_X64) before modules create arrays"
                )
            _compiled.clear()  # Frees the program of another sweep.
            _compiled[key] = program
        return _compiled[key]

    def __reduce__(self) -> tuple[Any, ...]:
        fn = self.function
        sent = fn if isinstance(fn, Sent) else Sent(_pickled(fn))
        return Task, (sent, self.size, self.digest, self.float64, self.versions)


@dataclass(frozen=True)
class Sent:
    """A pickled function for another process, unpickled when it is called.

    If the executor unpickled it with the task, a process whose default is single precision would
    convert its arrays, such as those of a model, to single precision.
    """

    data: bytes

    def received(self) -> Callable[[Any], Any]:
        """The function, with arrays in the current float type."""
        return pickle.loads(self.data)


def _pickled(function: Callable[[Any], Any]) -> bytes:
    """Pickle a function, by cloudpickle if it is installed: it supports local functions, too."""
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


# The program of this process, which receives a function with every chunk.
_compiled: dict[tuple[str, int], Program] = {}
_compiling = Lock()
