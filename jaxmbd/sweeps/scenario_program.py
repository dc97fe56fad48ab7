"""One function of a scenario, traced once and compiled for a whole chunk."""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from scalarjit.with_room import with_room

from ..errors import ModelError
from ..programs.progress import COMPILING, say
from .scenarios import name_of

# Results by name of a user's function, checked in one trace ---------------------------------------


def traced_by_name(
    function: Callable[[Any], Any], argument: Any, caller: str
) -> tuple[core.ClosedJaxpr, dict[str, jax.ShapeDtypeStruct]]:
    """The program of a function of arrays, or of their shapes, and shapes of its named results.

    **Raises** `ModelError`, which begins with `caller`, if results are not arrays by name.
    """

    if not callable(function):
        raise ModelError(f"{caller}: a function is needed, got a {type(function).__name__}")

    def named(argument: Any) -> dict[str, Any]:
        results = function(argument)
        if not isinstance(results, Mapping) or not jax.tree.leaves(results):
            raise ModelError(
                f"{caller}: the function must return a dict of named arrays, got "
                f"{type(results).__name__}"
            )
        return dict(results)

    traced, returned = jax.make_jaxpr(named, return_shape=True)(argument)
    leaves = jax.tree_util.tree_flatten_with_path(returned)[0]
    shapes = {name_of(path): shape for path, shape in leaves}
    if len(shapes) < len(leaves):
        raise ModelError(
            f"{caller}: two results have the same name; rename one (`a/b` and `a.b` are the same)"
        )
    return traced, shapes


def runnable(traced: core.ClosedJaxpr) -> Callable[..., list[Array]]:
    """A program as a function of its leaves.

    Results that are constants of the program become arrays.
    """
    run = core.jaxpr_as_fun(traced)

    def arrays(*leaves: Any) -> list[Array]:
        return [
            jnp.asarray(y, dtype=shape.dtype)
            for y, shape in zip(run(*leaves), traced.out_avals, strict=True)
        ]

    return arrays


# One function of a scenario, traced once and compiled for a whole chunk ---------------------------


class Program:
    """The compiled function of a user, for chunks of a given size.

    - `size`: number of scenarios in a chunk.
    - `outputs`: `{name: jax.ShapeDtypeStruct}`, shapes of the results of one scenario.
    - `digest`: digest of the function's program.
    - `devices`: number of devices that share a chunk.

    **Raises** `ModelError` for a function that does not return arrays by name.
    """

    def __init__(self, function: Callable[[Any], Any], example: Any, size: int):
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), example)
        say(COMPILING)
        traced, self.outputs = with_room(traced_by_name)(function, shapes, "sweep")
        self.size = size
        self.digest = Digest().of(traced)
        run = runnable(traced)

        def one(scenario: Any) -> dict[str, Any]:
            return dict(zip(self.outputs, run(*jax.tree.leaves(scenario)), strict=True))

        # filter_jit turns errors at run time into EquinoxRuntimeError.
        self._one, self._batch = eqx.filter_jit(one), eqx.filter_jit(jax.vmap(one))
        self._chunk = self._batch
        devices = jax.local_devices()
        self.devices = len(devices) if size % len(devices) == 0 else 1
        if self.devices > 1:
            # Without communication: a device would wait forever for another one that a check ended.
            mesh, rows = Mesh(np.array(devices), ("scenario",)), PartitionSpec("scenario")
            options = {"mesh": mesh, "in_specs": rows, "out_specs": rows, "check_vma": False}
            self._chunk = eqx.filter_jit(jax.shard_map(jax.vmap(one), **options))

    def batch(self, scenarios: Any) -> dict[str, np.ndarray]:
        """Results of several scenarios, one per row; each number of scenarios compiles once.

        **Raises** `equinox.EquinoxRuntimeError` if a check at run time fails in any of them.
        """
        count = jax.tree.leaves(scenarios)[0].shape[0]
        run = self._chunk if count == self.size else self._batch
        return _as_numpy(run(jax.tree.map(jnp.asarray, scenarios)))

    def alone(self, scenario: Any) -> dict[str, np.ndarray]:
        """Results of one scenario; **raises** `equinox.EquinoxRuntimeError` like `batch`."""
        return _as_numpy(self._one(jax.tree.map(jnp.asarray, scenario)))


def _as_numpy(results: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in results.items()}


# Digest of a traced function, equal in every process ----------------------------------------------

ADDRESS = re.compile(r"0x[0-9a-fA-FX]+")


class Digest:
    """Digests of programs; a part that occurs several times is read once.

    A digest covers operations, their parameters, and constants such as numbers of a model. It does
    not cover names of calls and the code of Python callbacks.
    """

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def of(self, program: core.ClosedJaxpr) -> str:
        """The digest of a program and its constants."""
        return _hash(self.of_operations(program.jaxpr), *map(_array, program.consts))

    def of_operations(self, program: core.Jaxpr) -> str:
        """The digest of a program."""
        if id(program) not in self._known:
            self._known[id(program)] = self._of_operations(program)
        return self._known[id(program)]

    def _of_operations(self, program: core.Jaxpr) -> str:
        numbers: dict[Any, str] = {}

        def atom(x: Any) -> str:
            return _array(x.val) if isinstance(x, core.Literal) else numbers[x]

        def bind(variables: Any) -> str:
            for variable in variables:
                numbers[variable] = str(len(numbers))
            return _hash(*(str(variable.aval) for variable in variables))

        parts = [bind(program.constvars), bind(program.invars)]
        for equation in program.eqns:
            read = [atom(x) for x in equation.invars]
            settings = [
                f"{name} {self._setting(value)}"
                for name, value in sorted(equation.params.items())
                if name != "name"
            ]
            parts.append(_hash(str(equation.primitive), *read, bind(equation.outvars), *settings))
        return _hash(*parts, *map(atom, program.outvars))

    def _setting(self, value: Any) -> str:
        if isinstance(value, core.ClosedJaxpr):
            return self.of(value)
        if isinstance(value, core.Jaxpr):
            return self.of_operations(value)
        if isinstance(value, tuple | list):
            return _hash("sequence", *map(self._setting, value))
        if isinstance(value, np.ndarray | jax.Array):
            return _array(value)
        if callable(value):
            return f"function {getattr(value, '__qualname__', type(value).__qualname__)}"
        return ADDRESS.sub("", repr(value))


def _hash(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)} ".encode() + part.encode())
    return digest.hexdigest()


def _array(value: Any) -> str:
    x = np.asarray(value)
    return f"{x.dtype} {x.shape} {hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()}"
