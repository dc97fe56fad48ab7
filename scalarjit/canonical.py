"""One object for all traces of the same program, without repeated and without unused operations.

Functions are traced anew wherever they are called. Programs with equal operations, parameters and
constants are replaced by the first one of them, so that code is generated once. Mechanics are
written as functions of a configuration that compute the same poses and inertias several times: of
the accelerations of a robot arm, half of the operations remain. Derivatives and code are made from
these.
"""

from collections import OrderedDict
from itertools import count
from operator import is_not
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from .jaxprs import GENERATED

# Largest number of programs that are remembered, and of programs within them that have a number.
REMEMBERED, NUMBERED = 256, 10_000

# Types whose equal values are the same; most parameters have them.
PLAIN = frozenset({bool, int, str, type(None)})
INTEGERS = frozenset({int})

_first: OrderedDict[Any, ClosedJaxpr] = OrderedDict()
_numbers: dict[Any, int] = {}
_unused_numbers = count()


def canonical(program: ClosedJaxpr) -> ClosedJaxpr:
    """The first program that was given with the same operations, parameters and constants."""
    reduced, key = _Reduction().closed(program)
    found = _first.setdefault(key, reduced)
    _first.move_to_end(key)
    if len(_first) > REMEMBERED:
        _first.popitem(last=False)
    return found


class _Reduction:
    """Programs without repeated and without unused operations, and their keys.

    Equal keys are those of equal programs. A program within another one has a number as its key.
    """

    def __init__(self) -> None:
        # With the program itself, so that no other one gets its id.
        self.known: dict[int, tuple[Jaxpr, Jaxpr, int]] = {}

    def closed(self, program: ClosedJaxpr) -> tuple[ClosedJaxpr, Any]:
        reduced, number = self.program(program.jaxpr)
        consts = tuple(self.value(x)[1] for x in program.consts)
        if reduced is not program.jaxpr:
            program = ClosedJaxpr(reduced, program.consts)
        return program, (ClosedJaxpr, number, consts)

    def program(self, program: Jaxpr) -> tuple[Jaxpr, int]:
        if id(program) not in self.known:
            equations, results = self._different(program)
            live, reduced = _used(equations, results), program
            if len(live) < len(program.eqns) or any(
                map(is_not, (own for own, _ in live), program.eqns)
            ):
                reduced = program.replace(eqns=[own for own, _ in live], outvars=results)
            key = self._key(reduced, [params for _, params in live])
            self.known[id(program)] = program, reduced, _number(key)
        return self.known[id(program)][1:]

    def _different(self, program: Jaxpr) -> tuple[list[tuple[Any, Any]], list[Any]]:
        """The first ones of equal equations with keys of their parameters, and the results."""
        same: dict[Any, Any] = {}
        first: dict[Any, int] = {}
        found: list[tuple[Any, Any]] = []
        for equation in program.eqns:
            given = [same.get(x, x) if isinstance(x, Var) else x for x in equation.invars]
            params, key = self._params(equation)
            if params is not equation.params or any(map(is_not, given, equation.invars)):
                equation = equation.replace(invars=given, params=params)
            if equation.effects:
                found.append((equation, key))
                continue
            operands = tuple(x if isinstance(x, Var) else self._literal(x) for x in given)
            k = first.setdefault((equation.primitive, key, operands), len(found))
            if k == len(found):
                found.append((equation, key))
                continue
            made = list(found[k][0].outvars)
            for j, (old, new) in enumerate(zip(made, equation.outvars, strict=True)):
                if _is_named(old):
                    same[new] = old
                else:
                    made[j] = new
            found[k] = found[k][0].replace(outvars=made), key
        return found, [same.get(x, x) if isinstance(x, Var) else x for x in program.outvars]

    def _key(self, program: Jaxpr, params: list[Any]) -> Any:
        places: dict[Any, int] = {}

        def place(x: Any) -> Any:
            if not isinstance(x, Var):
                return self._literal(x)
            return places.setdefault(x, len(places))

        heads = [[(place(x), x.aval) for x in xs] for xs in (program.constvars, program.invars)]
        equations = [
            (
                own.primitive,
                key,
                *map(place, own.invars),
                *((place(x), x.aval) for x in own.outvars),
            )
            for own, key in zip(program.eqns, params, strict=True)
        ]
        return *map(tuple, heads), tuple(equations), tuple(map(place, program.outvars))

    def _literal(self, x: Literal) -> Any:
        return self.value(x.val)[1], x.aval

    def _params(self, equation: Any) -> tuple[dict[str, Any], Any]:
        """Parameters with reduced programs, and their key."""
        given: dict[str, Any] = equation.params
        # The program of generated code is one of these already, and found by its identity.
        own = equation.primitive.name == GENERATED
        changed, keys = {}, []
        for name in sorted(given):
            x = given[name]
            found, key = self.value(x)
            keys.append((name, key))
            if found is not x and not own:
                changed[name] = found
        return {**given, **changed} if changed else given, tuple(keys)

    def value(self, x: Any) -> tuple[Any, Any]:
        """A parameter or constant with reduced programs, and its key.

        That of an unknown object is the object.
        """
        kind = type(x)
        if kind in PLAIN:
            return x, (kind, x)
        if kind is tuple and INTEGERS.issuperset(map(type, x)):  # Most of them: shapes and axes.
            return x, (kind, x)
        if isinstance(x, ClosedJaxpr):
            return self.closed(x)
        if isinstance(x, Jaxpr):
            reduced, number = self.program(x)
            return reduced, (Jaxpr, number)
        if isinstance(x, tuple | list):
            pairs = [self.value(y) for y in x]
            reduced, keys = [own for own, _ in pairs], tuple(key for _, key in pairs)
            if type(x) in (tuple, list) and any(map(is_not, reduced, x)):
                return type(x)(reduced), (type(x), keys)
            return x, (type(x), keys)
        if isinstance(x, float | complex | np.generic | np.ndarray) or hasattr(x, "__array__"):
            array = np.asarray(x)
            return x, (type(x), array.dtype.str, array.shape, array.tobytes())
        try:
            hash(x)
        except TypeError:
            return x, _Itself(x)
        return x, (type(x), x)


def _used(equations: list[tuple[Any, Any]], results: list[Any]) -> list[tuple[Any, Any]]:
    """Equations that results or effects depend on."""
    needed, live = {x for x in results if isinstance(x, Var)}, []
    for own in reversed(equations):
        if own[0].effects or needed.intersection(own[0].outvars):
            needed.update(x for x in own[0].invars if isinstance(x, Var))
            live.append(own)
    return live[::-1]


def _is_named(x: Any) -> bool:
    """False for a result that nothing reads."""
    return type(x).__name__ != "DropVar"


def _number(key: Any) -> int:
    """The number of a program. Without memory of one, it has another number later."""
    if len(_numbers) > NUMBERED:
        _numbers.clear()
    return _numbers.setdefault(key, next(_unused_numbers))


class _Itself:
    """An object that equals itself alone."""

    def __init__(self, x: Any):
        self.x = x

    def __hash__(self) -> int:
        return id(self.x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.x is self.x
