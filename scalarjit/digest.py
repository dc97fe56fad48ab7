"""Digests of programs that are the same in every process.

A digest covers all that the program of scalars depends on. A program with a parameter of a type
that is not listed here has no digest: its code is generated again in each process.
"""

import hashlib
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .jaxprs import CALLS, counts_of, literal
from .lengths import FIRST
from .parameters import uncovered


class Unknown(Exception):
    """A value of a type that has no digest."""


digests: WeakKeyDictionary[ClosedJaxpr, str | None] = WeakKeyDictionary()


def digest_of(program: ClosedJaxpr) -> str | None:
    """Digest of the operations, their parameters, and the constants; None if one is unknown."""
    if program not in digests:
        try:
            digests[program] = Digests().of_closed(program)
        except Unknown:
            digests[program] = None
    return digests[program]


@cache
def generator() -> str:
    """Digest of the source of what generates code, and of the versions of what it evaluates with.

    **Raises** `OSError` if the source cannot be read.
    """
    found = hashlib.sha256(f"jax {jax.__version__}, NumPy {np.__version__}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def settings() -> list[str]:
    """The limits of this package, which may be set after its source was read."""
    return sorted(
        f"{name}.{key} {x!r}"
        for name, module in list(sys.modules.items())
        if name.startswith(f"{__package__}.")
        for key, x in vars(module).items()
        if key.isupper() and isinstance(x, int | float | str | tuple)
    )


class Digests:
    """Digests of the parts of a program; functions that are called several times are read once."""

    def __init__(self) -> None:
        self.found: dict[int, str] = {}

    def of_closed(self, program: ClosedJaxpr) -> str:
        return _joined([self.of_jaxpr(program.jaxpr), *map(self.of_value, program.consts)])

    def of_jaxpr(self, jaxpr: Jaxpr) -> str:
        if id(jaxpr) not in self.found:
            self.found[id(jaxpr)] = _joined(self._parts(jaxpr))
        return self.found[id(jaxpr)]

    def _parts(self, jaxpr: Jaxpr) -> Iterator[str]:
        numbers: dict[Any, int] = {}

        def of_variables(variables: Any) -> str:
            parts = []
            for x in variables:
                if isinstance(x, Literal):
                    parts.append("value " + self.of_value(literal(x)))
                else:
                    parts.append(str(numbers.setdefault(x, len(numbers))))
                parts.append(_of_aval(x.aval))
            return _joined(parts)

        yield of_variables(jaxpr.constvars)
        yield of_variables(jaxpr.invars)
        for equation in jaxpr.eqns:
            yield equation.primitive.name
            yield from self._parameters(equation)
            yield of_variables(equation.invars)
            yield of_variables(equation.outvars)
        yield of_variables(jaxpr.outvars)

    def _parameters(self, equation: Any) -> Iterator[str]:
        """What is read of the parameters, and whether a rule covers their values."""
        name, params = equation.primitive.name, equation.params
        yield str(uncovered(equation))
        if name in FIRST:
            return
        if name in CALLS:
            yield self.of_value(params.get("name"))
            yield self.of_value(params[CALLS[name]])
        elif name == "scan":
            yield self.of_value(counts_of(params))
            yield from (self.of_value(params[key]) for key in ("jaxpr", "length", "reverse"))
        else:
            yield from (f"{key} {self.of_value(x)}" for key, x in sorted(params.items()))

    def of_value(self, x: Any) -> str:
        kind = type(x)
        if isinstance(x, ClosedJaxpr):
            return self.of_closed(x)
        if isinstance(x, Jaxpr):
            return self.of_jaxpr(x)
        if isinstance(x, tuple | list):  # Named tuples too.
            return _joined([kind.__qualname__, *map(self.of_value, x)])
        if isinstance(x, Enum):
            return f"{kind.__qualname__}.{x.name}"
        if x is None or kind in (bool, int, float, complex, str, bytes):
            return f"{kind.__name__} {x!r}"
        if isinstance(x, np.dtype):
            return f"dtype {x.str}"
        if isinstance(x, type) and issubclass(x, np.generic):
            return f"type {x.__name__}"
        if isinstance(x, np.ndarray | np.generic | jax.Array) and not isinstance(x, Tracer):
            array = np.asarray(x)
            if array.dtype.hasobject:
                raise Unknown
            weak = getattr(x, "weak_type", False)
            return _joined([array.dtype.str, str((array.shape, weak)), array.tobytes().hex()])
        raise Unknown


def _of_aval(aval: Any) -> str:
    if type(aval) is not ShapedArray:
        raise Unknown
    return f"{aval.dtype.str} {aval.shape} {aval.weak_type}"


def _joined(parts: Any) -> str:
    """Digest of a sequence of texts, which differs if they are divided in another way."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode()
        found.update(f"{len(data)} ".encode())
        found.update(data)
    return found.hexdigest()
