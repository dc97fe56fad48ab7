"""Digest of a traced function, equal in every process."""

import hashlib
import re
from typing import Any

import jax
import numpy as np
from jax.extend import core

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
