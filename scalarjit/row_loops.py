"""Loops over the rows of arrays, instead of operations on all rows.

Functions of one body are mapped over all bodies, so that each operation has an array with a row for
each of them. A loop over the rows that does several such operations for one row after another is as
short for a thousand bodies as for ten.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Literal, Primitive

from . import elementwise, lengths
from .dense import DENSE
from .jaxprs import CALLS, blank, literal
from .lengths import FIRST, ROW_LOOP, shape_of, work
from .mostly_zeros import MOSTLY_ZEROS
from .rows import MAX_ENTRIES
from .turned_rows import turned
from .while_at_most import NAME as WHILE_AT_MOST

# Calls whose names matter to the conversion.
KEPT = frozenset({MOSTLY_ZEROS, WHILE_AT_MOST})

# Smallest number of rows of a loop. Arrays of fewer rows are vectors and matrices of space.
MIN_ROWS = 8

# Operations on all rows that are unrolled, unless they read what another loop has written.
MAX_OPERATIONS = 3_000

# An array of moved rows is joined from up to this number of slices; more rows are read by indices.
MANY_PIECES = 8

# Largest number of arrays from which the rows of one are taken.
MAX_SOURCES = 4

# Of an equation, for each argument whether a row of the results depends on that row of it alone.
Rows = tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class _Equation:
    """An equation with its arguments and results after inlining.

    - `rows`: None if it is not an equation of rows.
    """

    equation: Any
    given: tuple[Any, ...]
    made: tuple[Any, ...]
    rows: Rows | None

    @property
    def kind(self) -> int:
        """Number of rows; zero without rows."""
        return shape_of(self.equation.outvars[0])[0] if self.rows is not None else 0

    @property
    def sources(self) -> "list[_Value]":
        """Values that it reads."""
        return [source for x in self.given for source in x.sources]


class _Value:
    """A value of an inlined program: a constant, or a result to be computed.

    - `fixed`: whether it depends on no argument of the program. Loops would hide such indices.
    - `moved`: of an array that consists of rows of others, where these are.
    - `turned`: of an array whose second axis is that of the rows, the same with its rows first.
    """

    def __init__(self, x: Any = None, fixed: bool = False):
        self.x = x
        self.fixed = fixed or x is not None
        self.moved: _Moved | None = None
        self.turned: _Value | None = None

    @property
    def sources(self) -> "tuple[_Value, ...]":
        """Values that it is made of."""
        return (self,) if self.moved is None else self.moved.sources


@dataclass(frozen=True, eq=False)
class _Moved:
    """Rows of other arrays.

    - `which`, `rows`: for each row, the number of its source, and its place there.
    """

    sources: tuple[_Value, ...]
    avals: tuple[Any, ...]
    which: np.ndarray
    rows: np.ndarray


@lru_cache(maxsize=64)
def with_row_loops(program: ClosedJaxpr, called: Collection[ClosedJaxpr]) -> ClosedJaxpr:
    """The program with loops over rows; the same program if it is short, or has none.

    **Arguments:** `called`: programs whose calls stay calls.
    """
    if work(program.jaxpr, called=called) <= lengths.MAX_UNROLLED:
        return program
    given = [_Value() for _ in program.in_avals]
    equations: list[_Equation] = []
    results = _inlined(program, given, called, equations)
    ends = {source for x in results for source in x.sources}
    needed, live = set(ends), []
    for each in reversed(equations):
        if needed.intersection(each.made):
            needed.update(each.sources)
            live.append(each)
    groups = _groups(live[::-1])
    if not any(kind for kind, _ in groups):
        return program
    later, saved = set(ends), []
    for _, group in reversed(groups):
        saved.append([x for each in group for x in each.made if x in later])
        later.update(source for each in group for source in each.sources)

    def evaluate(*args: Any) -> list[Any]:
        known = dict(zip(given, args, strict=True))
        for (kind, group), made in zip(groups, reversed(saved), strict=True):
            known.update(zip(made, _computed(kind, group, made, known), strict=True))
        return [_read(x, known) for x in results]

    return jax.make_jaxpr(evaluate)(*map(blank, program.in_avals))


def _read(x: _Value, known: dict[_Value, Any]) -> Any:
    """A value; an array of rows of others is made here."""
    if x in known:
        return known[x]
    if x.moved is None:
        return x.x
    which, rows = x.moved.which, x.moved.rows
    sources = [jnp.asarray(_read(y, known)) for y in x.moved.sources]
    ends = np.flatnonzero((np.diff(which) != 0) | (np.diff(rows) != 1)) + 1
    firsts = [0, *ends.tolist()]
    if len(firsts) <= MANY_PIECES:
        lasts = [*firsts[1:], len(rows)]
        pieces = [
            jax.lax.slice_in_dim(sources[which[a]], int(rows[a]), int(rows[a]) + b - a)
            for a, b in zip(firsts, lasts, strict=True)
        ]
        known[x] = pieces[0] if len(pieces) == 1 else jax.lax.concatenate(pieces, 0)
    else:
        before = np.cumsum([0, *(y.shape[0] for y in sources[:-1])])
        places = (rows + before[which]).astype(np.int32)
        known[x] = jnp.concatenate(sources).at[places].get(mode="promise_in_bounds")
    return known[x]


def _inlined(
    program: ClosedJaxpr,
    given: Sequence[_Value],
    called: Collection[ClosedJaxpr],
    found: list[_Equation],
) -> list[_Value]:
    """Append the equations of a program and of those that it calls; its results."""
    jaxpr = program.jaxpr
    known: dict[Any, _Value] = dict(zip(jaxpr.constvars, map(_Value, program.consts), strict=True))
    known.update(zip(jaxpr.invars, given, strict=True))

    def read(x: Any) -> _Value:
        return _Value(literal(x)) if isinstance(x, Literal) else known[x]

    for equation in jaxpr.eqns:
        values = tuple(map(read, equation.invars))
        inner = _called(equation, called)
        if inner is not None:
            made = _inlined(inner, values, called, found)
        elif equation.primitive.name in FIRST:
            made = values[:1]
        elif all(x.fixed for x in values):
            made = tuple(_Value(fixed=True) for _ in equation.outvars)
            found.append(_Equation(equation, values, made, None))
        else:
            made = tuple(_Value() for _ in equation.outvars)
            each = _with_rows_first(equation, values, made)
            if each is not None:
                found.append(each)
            if each is None or each.made is not made:  # Or as it is, where somebody reads that.
                each = _Equation(equation, values, made, _rows(equation))
                if not _moves(each):
                    found.append(each)
        known.update(zip(equation.outvars, made, strict=True))
    return list(map(read, jaxpr.outvars))


def _with_rows_first(
    equation: Any, values: Sequence[_Value], made: tuple[_Value, ...]
) -> _Equation | None:
    """An equation of rows instead of one with rows along the second axis, or beside it."""
    other = turned(equation, [x.turned is not None for x in values])
    if other is None:
        return None
    rewritten, uses, back = other
    given = tuple(
        x.turned if use and x.turned is not None else x for x, use in zip(values, uses, strict=True)
    )
    firsts = tuple(_Value() for _ in made) if back else made
    each = _Equation(rewritten, given, firsts, _rows(rewritten))
    if each.rows is None:
        return None
    if back:
        for x, first in zip(made, firsts, strict=True):
            x.turned = first
    return each


def _called(equation: Any, called: Collection[ClosedJaxpr]) -> ClosedJaxpr | None:
    """The program of a call to be inlined."""
    name, params = equation.primitive.name, equation.params
    if name not in CALLS or params.get("name") in KEPT or any(params.get("batched", ())):
        return None
    inner = params[CALLS[name]]
    return inner if isinstance(inner, ClosedJaxpr) and inner not in called else None


def _groups(equations: Sequence[_Equation]) -> list[tuple[int, list[_Equation]]]:
    """Equations in an order of computation, those of rows in groups as large as possible.

    A group is as late as the latest value of another group that it depends on.
    """
    groups: dict[tuple[int, int], list[_Equation]] = defaultdict(list)
    places: dict[_Value, tuple[int, int]] = {}
    for each in equations:
        kind, level = each.kind, 0
        for x, row in zip(each.given, each.rows or (True,) * len(each.given), strict=True):
            for source in x.sources:
                if source in places:
                    own, other = places[source]
                    same = other == kind and row and x.moved is None
                    level = max(level, own if same or other == kind == 0 else own + 1)
        places.update(dict.fromkeys(each.made, (level, kind)))
        groups[level, kind].append(each)
    ordered = sorted(groups.items(), key=lambda item: item[0])
    loops = {place for place, group in ordered if _is_long(place[1], group)}
    for place, group in ordered:  # Otherwise each entry of what they read would be loaded.
        if place[1] and any(places.get(x) in loops for each in group for x in each.sources):
            loops.add(place)
    return [(place[1] if place in loops else 0, group) for place, group in ordered]


def _is_long(kind: int, group: Sequence[_Equation]) -> bool:
    """True if the operations of a group on all rows are too many to be unrolled."""
    if not kind:
        return False
    body = _Body(group)
    shapes = [jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype) for x in body.rows.values()]
    made = [x for each in group for x in each.made]
    numbers = [jax.ShapeDtypeStruct((), x.dtype) for x in body.tables]
    program = jax.make_jaxpr(partial(body.results, made))(
        [*shapes, *numbers], list(map(blank, body.wholes.values()))
    )
    return kind * work(program.jaxpr) > MAX_OPERATIONS


class _Body:
    """The body of a loop over rows, from a group of equations.

    - `rows`, `wholes`: values that it reads row by row, and as a whole, with shapes and types.
    - `tables`: numbers for each iteration, those of rows of other arrays.
    """

    def __init__(self, group: Sequence[_Equation]):
        self.group = group
        self.rows: dict[_Value, Any] = {}
        self.wholes: dict[_Value, Any] = {}
        self.moved: dict[_Value, list[int]] = {}
        self.tables: list[np.ndarray] = []
        inside = {x for each in group for x in each.made}
        for each in group:
            for x, of, row in zip(each.given, each.equation.invars, each.rows or (), strict=True):
                if not row:
                    self.wholes[x] = of.aval
                elif x.moved is not None:
                    self._reads(x, x.moved)
                elif x not in inside:
                    self.rows[x] = of.aval

    def _reads(self, x: _Value, moved: _Moved) -> None:
        if x in self.moved:
            return
        self.wholes.update(zip(moved.sources, moved.avals, strict=True))
        self.moved[x] = []
        for k in range(len(moved.sources)):
            self.moved[x].append(len(self.tables))
            own = moved.which == k
            self.tables += [np.where(own, moved.rows, 0).astype(np.int32), own]

    def results(self, made: Sequence[_Value], parts: list[Any], wholes: list[Any]) -> list[Any]:
        """Values of one row, with a first axis of length 1."""
        whole = dict(zip(self.wholes, wholes, strict=True))
        own = dict(zip(self.rows, parts[: len(self.rows)], strict=True))
        tables = parts[len(self.rows) :]
        for x, places in self.moved.items():
            assert x.moved is not None
            found = None
            for source, k in zip(x.moved.sources, places, strict=True):
                row = row_at.bind(whole[source], tables[k])
                found = row if found is None else jax.lax.select_n(tables[k + 1], found, row)
            own[x] = found
        for each in self.group:
            assert each.rows is not None
            both = zip(each.given, each.rows, strict=True)
            values = [own[x] if row else whole[x] for x, row in both]
            found = _bound(each.equation, values, _of_one_row(each.equation))
            own.update(zip(each.made, found, strict=True))
        return [own[x] for x in made]


def _computed(
    kind: int, group: Sequence[_Equation], made: Sequence[_Value], known: dict[_Value, Any]
) -> Sequence[Any]:
    """Results of a group, by a loop if there is a kind."""
    if not kind:
        own = dict(known)
        for each in group:
            found = _bound(each.equation, [_read(x, own) for x in each.given], {})
            own.update(zip(each.made, found, strict=True))
        return [own[x] for x in made]
    body = _Body(group)

    def loop(rows: list[Any], wholes: list[Any]) -> list[Any]:
        def step(_: None, parts: list[Any]) -> tuple[None, list[Any]]:
            n = len(body.rows)
            parts = [*(x[None] for x in parts[:n]), *parts[n:]]
            return None, [x[0] for x in body.results(made, parts, wholes)]

        return jax.lax.scan(step, None, rows, length=kind)[1]

    loop.__name__ = ROW_LOOP
    rows = [_read(x, known) for x in body.rows] + body.tables
    wholes = [_read(x, known) for x in body.wholes]
    return jax.jit(loop)(list(map(jnp.asarray, rows)), list(map(jnp.asarray, wholes)))


# A row of an array, which keeps its axis, at an index within the array.
row_at = Primitive("row_at")


@row_at.def_abstract_eval
def _(x: Any, row: Any) -> Any:
    return ShapedArray((1, *x.shape[1:]), x.dtype)


def _bound(equation: Any, values: Sequence[Any], changed: dict[str, Any]) -> Sequence[Any]:
    primitive, params = equation.primitive, equation.params | changed
    found = primitive.bind(*values, **primitive.get_bind_params(params))
    return found if primitive.multiple_results else [found]


# Equations of rows ----------------------------------------------------------------------------


def _of_one_row(equation: Any) -> dict[str, Any]:
    """Parameters of an equation for arrays with one row."""
    params = equation.params
    changed = {"broadcast_in_dim": "shape", "reshape": "new_sizes", "slice": "limit_indices"}
    key = changed.get(equation.primitive.name)
    return {} if key is None else {key: (1, *params[key][1:])}


def _rows(equation: Any) -> Rows | None:
    """Whether each argument is read row by row; None if a result's row depends on several rows."""
    name = equation.primitive.name
    shapes = {shape_of(x)[:1] for x in equation.outvars}
    if len(shapes) != 1 or not (first := shapes.pop()) or first[0] < MIN_ROWS:
        return None
    if any(math.prod(shape_of(x)) > MAX_ENTRIES for x in equation.outvars):
        return None  # XLA computes such operations on vectors.
    n, given = first[0], list(map(shape_of, equation.invars))
    if name in elementwise.RULES or name == "select_n":
        return tuple(shape[:1] == (n,) for shape in given)
    if name == "broadcast_in_dim":
        axes, rest = equation.params["broadcast_dimensions"], len(given) - 1
        return (0 in axes and given[0][axes.index(0)] == n, *[False] * rest)
    if name == "dot_general":
        return _rows_of_product(equation)
    if name == "pad":
        return (True, False) if not any(equation.params["padding_config"][0]) else None
    if any(shape[:1] != (n,) for shape in given) or not given:
        return None
    if name in DENSE:
        return (True,) * len(given) if all(len(shape) > 2 for shape in given) else None
    apart = APART.get(name)
    return (True,) * len(given) if apart is not None and apart(equation.params) else None


def _rows_of_product(equation: Any) -> Rows | None:
    (along, _), beside = equation.params["dimension_numbers"]
    if beside[0]:
        return (True, True) if beside[0][0] == beside[1][0] == 0 else None
    a = shape_of(equation.invars[0])
    return (True, False) if len(a) > 0 and 0 not in along else None


def _moves(each: _Equation) -> bool:
    """Note where the rows of results are if an equation only moves rows along the first axis."""
    found = None
    if each.rows is None and each.equation.primitive.name in MOVES:
        found = MOVES[each.equation.primitive.name](each.equation, each.given)
    if found is None:
        return False
    moved = [_composed(*each) for each in found]
    if None in moved:
        return False
    for x, own in zip(each.made, moved, strict=True):
        x.moved = own
    return True


def _composed(sources: Sequence[tuple[_Value, Any]], which: Any, rows: Any) -> _Moved | None:
    """Places of rows, with arrays that are made of other arrays' rows replaced by those."""
    final: dict[_Value, Any] = {}
    numbers: dict[_Value, int] = {}
    found = np.zeros((2, len(rows)), int)
    for k, (x, aval) in enumerate(sources):
        (here,) = np.nonzero(which == k)
        inner = x.moved
        parts = [(x, aval, here, rows[here])]
        if inner is not None:
            parts = [
                (y, of, here[own], inner.rows[rows[here]][own])
                for j, (y, of) in enumerate(zip(inner.sources, inner.avals, strict=True))
                for own in [inner.which[rows[here]] == j]
            ]
        for y, of, places, own in parts:
            if places.size:
                final[y] = of
                found[0, places], found[1, places] = numbers.setdefault(y, len(numbers)), own
    few = 0 < len(final) <= MAX_SOURCES
    return _Moved(tuple(final), tuple(final.values()), *found) if few else None


def _sliced(equation: Any, given: Sequence[_Value]) -> Any:
    params, (x,) = equation.params, equation.invars
    shape, step = shape_of(x), (params["strides"] or (1,))[0]
    if shape_of(equation.outvars[0])[1:] != shape[1:]:
        return None
    rows = np.arange(params["start_indices"][0], params["limit_indices"][0], step)
    return [([(given[0], x.aval)], np.zeros(len(rows), int), rows)]


def _joined(equation: Any, given: Sequence[_Value]) -> Any:
    if equation.params["dimension"] != 0:
        return None
    counts = [shape_of(x)[0] for x in equation.invars]
    sources = [(x, of.aval) for x, of in zip(given, equation.invars, strict=True)]
    rows = np.concatenate([np.arange(n) for n in counts])
    return [(sources, np.repeat(range(len(counts)), counts), rows)]


def _cut(equation: Any, given: Sequence[_Value]) -> Any:
    if equation.params["axis"] != 0:
        return None
    ends = np.cumsum(equation.params["sizes"])
    source = [(given[0], equation.invars[0].aval)]
    parts = zip(ends - equation.params["sizes"], ends, strict=True)
    return [(source, np.zeros(b - a, int), np.arange(a, b)) for a, b in parts]


def _padded(equation: Any, given: Sequence[_Value]) -> Any:
    (low, _, inner), *others = equation.params["padding_config"]
    x, value = given
    if any(any(own) for own in others) or inner or value.x is None:
        return None
    aval, n = equation.invars[0].aval, shape_of(equation.outvars[0])[0]
    rows = np.arange(n) - low
    inside = (rows >= 0) & (rows < aval.shape[0])
    around = np.full((1, *aval.shape[1:]), value.x, aval.dtype)
    sources = [(x, aval), (_Value(around), ShapedArray(around.shape, around.dtype))]
    return [(sources, np.where(inside, 0, 1), np.where(inside, rows, 0))]


def _reversed(equation: Any, given: Sequence[_Value]) -> Any:
    aval = equation.invars[0].aval
    if tuple(equation.params["dimensions"]) != (0,):
        return None
    return [([(given[0], aval)], np.zeros(aval.shape[0], int), np.arange(aval.shape[0])[::-1])]


# Operations that may move rows: for each result its sources, and where its rows are in them.
MOVES: dict[str, Callable[[Any, Sequence[_Value]], Any]] = {
    "concatenate": _joined,
    "pad": _padded,
    "rev": _reversed,
    "slice": _sliced,
    "split": _cut,
}


# Of operations along axes, whether the first axis is not among them.
APART: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (f"reduce_{x}" for x in ("and", "max", "min", "or", "prod", "sum")),
        lambda params: 0 not in params["axes"],
    ),
    **dict.fromkeys(("argmax", "argmin"), lambda params: 0 not in params["axes"]),
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "split", "stack", "unstack"),
        lambda params: params["axis"] != 0,
    ),
    "concatenate": lambda params: params["dimension"] != 0,
    "reshape": lambda params: True,
    "rev": lambda params: 0 not in params["dimensions"],
    "slice": lambda params: (params["strides"] or (1,))[0] == 1,
    "squeeze": lambda params: 0 not in params["dimensions"],
    "tile": lambda params: params["reps"][0] == 1,
    "transpose": lambda params: params["permutation"][0] == 0,
}
