"""Evaluation of one chunk of scenarios, which may fail one by one."""

import importlib
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..errors import ModelError
from .scenario_program import Program

# The message inside Equinox's text of an error at run time.
MESSAGE = re.compile(r"EquinoxRuntimeError: (.*?)\n\n-{5}", re.DOTALL)
GROUPED = 16  # Least size of a chunk whose failures are searched in groups.
Results = dict[str, np.ndarray]


@dataclass(frozen=True)
class Chunk:
    """Results of scenarios, one per row, and reasons of failures; empty for success."""

    results: Results
    reasons: list[str]


def run_chunk(program: Program, scenarios: Any) -> Chunk:
    """Results of at most `program.size` scenarios.

    A scenario fails if a check at run time fails, or if a result is not finite. XLA reports a
    failed check for the whole chunk only. Scenarios then run in groups, those of failed groups one
    by one, and the chunk once more with a successful scenario instead of every failed one. The
    other scenarios thus have the same results as in a chunk without failures.
    """
    count = jax.tree.leaves(scenarios)[0].shape[0]
    place = np.minimum(np.arange(program.size), count - 1)  # Padded with the last scenario.
    try:
        results, reasons = program.batch(_rows(scenarios, place)), [""] * count
    except eqx.EquinoxRuntimeError:
        results, reasons = _without_failures(program, scenarios, place)
    results = {name: x[:count].copy() for name, x in results.items()}
    for i, reason in enumerate(reasons):
        if reason:
            for x in results.values():
                x[i] = np.nan if np.issubdtype(x.dtype, np.inexact) else 0
        else:
            lost = [name for name, x in results.items() if not np.all(np.isfinite(x[i]))]
            reasons[i] = f"not finite: {', '.join(lost)}" if lost else ""
    return Chunk(results, reasons)


def _without_failures(
    program: Program, scenarios: Any, place: np.ndarray
) -> tuple[Results, list[str]]:
    """Results, with arbitrary numbers in rows of failed scenarios, and the reasons."""
    separate, reasons = _in_groups(program, scenarios, int(place[-1]) + 1)
    failed = np.array([bool(reason) for reason in reasons])
    if failed.all():
        return separate, reasons
    whole = np.where(failed[place], np.argmin(failed), place)
    try:
        return program.batch(_rows(scenarios, whole)), reasons
    except eqx.EquinoxRuntimeError:
        # A check may fail only in a chunk: in a branch that the scenario does not take, or by
        # rounding at its limit.
        return separate, reasons


def _in_groups(program: Program, scenarios: Any, count: int) -> tuple[Results, list[str]]:
    """Results by smaller programs, zero for failed scenarios, and the reasons."""
    results = {n: np.zeros((count, *x.shape), x.dtype) for n, x in program.outputs.items()}
    reasons = [""] * count

    def save(index: Any, rows: Results) -> None:
        for name, x in rows.items():
            results[name][index] = x

    width = math.isqrt(program.size) if program.size >= GROUPED else 1
    for first in range(0, count, width):
        group = np.minimum(np.arange(first, first + width), count - 1)
        try:
            if width > 1:
                save(group, program.batch(_rows(scenarios, group)))
                continue
        except eqx.EquinoxRuntimeError:
            pass
        for i in np.unique(group):
            try:
                save(i, program.alone(_rows(scenarios, i)))
            except eqx.EquinoxRuntimeError as error:
                reasons[i] = _message(error)
    return results, reasons


def _rows(scenarios: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], scenarios)


def _message(error: Exception) -> str:
    match = MESSAGE.search(str(error))
    return match.group(1).strip() if match else str(error).strip()


# Tasks for workers, which may be processes on other machines --------------------------------------


def versions() -> dict[str, str]:
    """Versions by package, in this process."""
    return {package: version_of(package) for package in ("jaxmbd", "jax", "jaxlib")}


def version_of(package: str) -> str:
    """The version of a package; "unknown" if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


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
