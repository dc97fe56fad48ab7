"""Jaxprs as programs of scalars, with constants folded and short loops unrolled."""

import math
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from . import elementwise, tables
from .canonical import canonical
from .dense import DENSE, taken
from .graph import TYPES, UNLIMITED, Graph, Node, Region
from .jaxprs import CALLS, blank, counts_of, literal
from .lengths import (
    FIRST,
    MAX_UNROLLED,
    ROW_LOOP,
    called_by,
    is_called,
    length,
    makes_mask,
    products_of,
    shape_of,
    stays_loop,
    work_of,
)
from .masks import Mask
from .parameters import CHECKPOINTS, UNBATCHED, uncovered
from .row_loops import with_row_loops
from .rows import MAX_ENTRIES, AbstractRows, ArgumentRows, StackedRows, as_nodes
from .structure import STRUCTURE, Nodes, NotCovered, as_array, constants, each, known
from .while_at_most import NAME as WHILE_AT_MOST
from .while_at_most import guarded
from .with_room import with_room

# Programs of about this many operations and more are left to JAX: they take long to compile, and
# run slower from some length on. By the number of long loops: none, a motion with its loop over
# steps, the linear part of a gradient of a motion with two. Calls from a loop of XLA would cost
# more time than is saved in compiling. Measured with chains of 20 to 60 links and with Go2.
MAX_LENGTHS = (100_000, 100_000, 270_000)

# The same mechanisms have generated code in single precision, where accelerations of trees are
# refined and checked. That takes 18 % more operations.
MORE_IN_SINGLE = 1.18

# Programs that are estimated to be longer, by up to this factor, are made nevertheless: loops that
# stay loops and products with zeros leave less of them. Of the programs of chains 0.7 remains.
FEWER, NODES = 3.0, 0.7

# Entries of arrays, or arrays that loops read or write row by row.
Array = Nodes | AbstractRows


@dataclass(frozen=True, eq=False)
class Scalars:
    """A program of scalars, and the entries of its results."""

    graph: Graph
    results: list[Array]


@with_room
def scalars_of(
    program: ClosedJaxpr, batched: Sequence[bool], is_linear: bool = False, *, varies: bool = False
) -> Scalars:
    """The program of scalars of a jaxpr; arguments that are not `batched` are shared by all states.

    **Arguments:**

    - `is_linear`: whether the program is a derivative, whose products with zero are zero.
    - `varies`: as of `Graph`.

    **Raises** `NotCovered` with the reason for which there is none.
    """
    called = called_by(program)
    given_program, program = program, with_row_loops(program, called)
    # Recursions of long chains: together they would be longer than what remains of the rest.
    unrolled = MAX_UNROLLED if program is given_program else MAX_UNROLLED // 4
    about, n_loops = length(program.jaxpr, called)
    is_single = all(x.dtype != np.float64 for x in (*program.in_avals, *program.out_avals))
    most = (MORE_IN_SINGLE if is_single else 1.0) * MAX_LENGTHS[min(n_loops, len(MAX_LENGTHS) - 1)]
    if about > FEWER * most:
        raise NotCovered(f"about {about:.1g} operations")
    graph = Graph(tuple(batched), is_linear, varies=varies)
    avals = program.in_avals
    rows = [ArgumentRows(graph, k, _type_of(x), x.shape) for k, x in enumerate(avals)]
    given = [own if x.ndim else own.nodes() for own, x in zip(rows, avals, strict=True)]
    try:
        results = Trace(graph, called, unrolled).evaluate(program, given, graph.root)
    except OverflowError as error:
        raise NotCovered(f"a number out of the range of its type: {error}") from error
    results = [_as_result(graph, x) for x in results]
    if about > most and len(graph.nodes) > NODES * most:
        raise NotCovered(f"about {about:.1g} operations, of which {len(graph.nodes)} remain")
    graph.forget()
    return Scalars(graph, results)


# Programs of scalars from which no code was generated yet, and the largest number of their nodes.
_waiting: OrderedDict[Any, Scalars] = OrderedDict()
_waiting_lock = threading.Lock()  # Threads of users may compile at the same time.
MANY_NODES = 500_000


def reason_of(program: ClosedJaxpr, most: float = math.inf) -> str | None:
    """Reason for which there is no program of up to `most` scalars for one state, or None."""
    key = program, (False,) * len(program.in_avals)
    if most < math.inf and length(program.jaxpr, called_by(program))[0] > FEWER * most:
        return f"more than {most:.0f} operations"
    try:
        made = scalars_of(*key)
    except NotCovered as reason:
        return str(reason)
    if len(made.graph.nodes) > most:
        return f"{len(made.graph.nodes)} operations, more than {most:.0f}"
    with _waiting_lock:
        _waiting[key] = made
        while len(_waiting) > 1 and sum(len(x.graph.nodes) for x in _waiting.values()) > MANY_NODES:
            _waiting.popitem(last=False)
    return None


def once(program: ClosedJaxpr, batched: Sequence[bool], is_linear: bool = False) -> Scalars:
    """The program of `scalars_of`; one that `reason_of` has made is returned once."""
    with _waiting_lock:
        made = None if is_linear else _waiting.pop((program, tuple(batched)), None)
    return made or scalars_of(program, batched, is_linear)


def _as_result(graph: Graph, x: Array) -> Array:
    """Rows that a loop can store as it writes them, otherwise entries."""
    if isinstance(x, StackedRows) and x.together == 1:
        stacked = x.loop.stacked[x.number]
        if x.loop.parent is graph.root and all(y.varies == any(graph.batched) for y in stacked):
            return x
    return as_nodes(x)


def _type_of(aval: Any) -> str:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or dtype not in TYPES:
        raise NotCovered(f"an array of type {aval}")
    if not all(isinstance(k, int) for k in aval.shape):
        raise NotCovered("an array of symbolic shape")
    return TYPES[dtype]


def _small(aval: Any, times: int = 1) -> Any:
    """An array, if there are few enough entries, each of which takes this many operations."""
    if all(isinstance(k, int) for k in aval.shape) and times * math.prod(aval.shape) > MAX_ENTRIES:
        raise NotCovered(f"an array or a product as large as {aval}")
    return aval


class Trace:
    """Evaluation of jaxprs on arrays of nodes."""

    def __init__(self, graph: Graph, called: Collection[ClosedJaxpr], unrolled: int):
        self.graph, self.called = graph, called
        self.unrolled = unrolled  # Most operations of a loop that is unrolled.
        self.ends_early = False  # Whether the next loop does: `while_at_most`.
        self.of_rows = False  # Whether the next loop is one over rows: `row_loops`.

    def evaluate(self, program: ClosedJaxpr, given: Sequence[Array], region: Region) -> list[Array]:
        """Results of a jaxpr in the body of a loop, or in the root region."""
        jaxpr: Jaxpr = program.jaxpr
        known: dict[Any, Array] = {}
        for x, value in zip(jaxpr.constvars, program.consts, strict=True):
            _type_of(_small(x.aval))
            known[x] = constants(self.graph, value)
        known.update(zip(jaxpr.invars, given, strict=True))

        def read(x: Any) -> Array:
            if isinstance(x, Literal):
                return constants(self.graph, literal(x))
            return known[x]

        for equation in jaxpr.eqns:
            if all(map(_is_of_integers, equation.outvars)):
                known.update((x, np.full(shape_of(x), None)) for x in equation.outvars)
                continue
            reason = uncovered(equation)
            if reason is not None:
                raise NotCovered(reason)
            found = self._found(equation, [read(x) for x in equation.invars], region)
            for x, value in zip(equation.outvars, found, strict=True):
                value = value if isinstance(value, AbstractRows) else as_array(value)
                assert value.shape == shape_of(x), (equation.primitive.name, value.shape)
                known[x] = value
        return [read(x) for x in jaxpr.outvars]

    def _found(self, equation: Any, given: list[Array], region: Region) -> Sequence[Array]:
        name, params, graph = equation.primitive.name, equation.params, self.graph
        if name == "scan":
            return self._scan(params, given, region)
        if name == "while":
            return self._while(params, given, region)
        if name == "scalarjit_call" and any(params["batched"]):
            count = equation.outvars[0].aval.shape[0]
            return self.evaluate(mapped(params["program"], params["batched"], count), given, region)
        if name == "scalarjit_call" and is_called(equation, self.called):
            return self._call(params, list(map(as_nodes, given)))
        if name in CALLS and isinstance(params[CALLS[name]], ClosedJaxpr):
            self.ends_early = params.get("name") == WHILE_AT_MOST
            self.of_rows = params.get("name") == ROW_LOOP
            return self.evaluate(params[CALLS[name]], given, region)
        if name in CHECKPOINTS:
            return self.evaluate(ClosedJaxpr(params["jaxpr"], ()), given, region)
        if name in UNBATCHED:
            return [
                as_array(self._together(as_nodes(given[0]).flat, "and" if "all" in name else "or"))
            ]
        if name == "reshape" and isinstance(given[0], StackedRows):
            rows = given[0].reshaped(equation.outvars[0].aval.shape)
            if rows is not None:
                return [rows]
        if name == "row_at":
            return [tables.row_at(graph, given[0], as_nodes(given[1]).item())]
        sums = any(isinstance(x, Mask) for x in given)  # Masks are not multiplied.
        for y in equation.outvars:
            _small(y.aval, 2 if sums else 2 * products_of(equation))
        if name in FIRST:
            return given[:1]
        if name in ("gather", "dynamic_slice") and isinstance(given[0], ArgumentRows):
            places = list(map(as_nodes, given[1:]))
            if any(known(x) is None for x in places):
                if name == "gather":
                    return [tables.gathered(graph, equation, given[0], places[0])]
                return [tables.sliced(graph, equation, given[0], [x.item() for x in places])]
        x = list(map(as_nodes, given))
        if name == "gather" and (parts := taken(graph, equation, x)) is not None:
            return [parts]
        if name in elementwise.RULES:
            rule = elementwise.RULES[name]
            shape = equation.outvars[0].aval.shape
            if math.prod(shape) == 0:
                return [np.empty(shape, dtype=object)]
            found = each(lambda *args: rule(graph, params, *args), *x)
            return [found.view(Mask) if makes_mask(equation) else found]
        if name in DENSE:
            return DENSE[name](graph, equation, x)
        if name == "custom_linear_solve":
            return self._solve(params, x, region)
        if name == "platform_index":
            return [constants(graph, np.int32(_index_of_cpu(params["platforms"])))]
        if name in STRUCTURE:
            return STRUCTURE[name](graph, equation, x)
        if name == "cond":
            return self._cond(params["branches"], x, region)
        raise NotCovered(name)

    def _solve(self, params: Any, x: list[Nodes], region: Region) -> Sequence[Array]:
        counts, solve = params["const_lengths"], params["jaxprs"].solve
        first = counts.matvec + counts.vecmat
        end = first + counts.solve
        right = x[end + counts.transpose_solve :]
        return self.evaluate(solve, [*x[first:end], *right], region)

    def _cond(
        self, branches: Sequence[ClosedJaxpr], x: list[Nodes], region: Region
    ) -> Sequence[Array]:
        """The branch if it is known, otherwise all, and a choice among their results."""
        number, *given = x
        which: Node = number.item()
        if which.op == "const":
            chosen = branches[min(max(int(which.data), 0), len(branches) - 1)]
            return self.evaluate(chosen, given, region)
        found = list(map(as_nodes, self.evaluate(branches[0], given, region)))
        for k, branch in enumerate(branches[1:], 1):
            if which.type == "i1":
                here = which
            else:
                limit = self.graph.constant(k, which.type)
                here = elementwise.compare(self.graph, "ge", which, limit)
            choose = lambda yes, no, here=here: elementwise.select(self.graph, here, yes, no)  # noqa: E731
            others = map(as_nodes, self.evaluate(branch, given, region))
            found = [
                each(choose, new, old) if new.size else new
                for new, old in zip(others, found, strict=True)
            ]
        return found

    def _scan(self, params: Any, x: list[Array], region: Region) -> Sequence[Array]:
        body, length, reverse = params["jaxpr"], params["length"], params["reverse"]
        n_consts, n_carry = counts_of(params)
        consts, rows = x[:n_consts], x[n_consts + n_carry :]
        carry = list(map(as_nodes, x[n_consts : n_consts + n_carry]))
        shapes = [y.shape for y in body.out_avals[n_carry:]]
        if length == 0:
            return [*carry, *(np.empty((0, *shape), dtype=object) for shape in shapes)]
        # Not loops of transposes, or loops that save values for them.
        early = self.ends_early and not (rows or shapes or reverse)
        early, self.ends_early = early and body.in_avals[n_consts].dtype == bool, False
        of_rows, self.of_rows = self.of_rows, False
        if early or of_rows or stays_loop(params, self.unrolled):
            loop = Loop(body, n_carry, length, reverse, early)
            return self._loop(loop, consts, carry, rows, region)
        entries = list(map(as_nodes, rows))
        stacked: list[list[Nodes]] = []
        for k in range(length)[:: -1 if reverse else 1]:
            own = [as_array(y[k]) for y in entries]
            found = list(map(as_nodes, self.evaluate(body, [*consts, *carry, *own], region)))
            carry = found[:n_carry]
            stacked.append(found[n_carry:])
        stacked = stacked[:: -1 if reverse else 1]
        return [*carry, *(np.stack([y[j] for y in stacked]) for j in range(len(shapes)))]

    def _call(self, params: Any, x: list[Nodes]) -> Sequence[Array]:
        """A call of a function, whose code is written once."""
        varies = any(y.varies for array in x for y in array.flat)
        callee = Callee(params["program"], params["linear"] > 0 or self.graph.is_linear)
        callee.scalars(varies)  # May not be covered.
        arrays = [array for array in x if array.size]
        blocks = [self.graph.block(list(array.flat), varies) for array in arrays]
        found = iter(self.graph.call(callee, blocks))
        results = []
        for aval in params["program"].out_avals:
            array = np.empty(math.prod(aval.shape), dtype=object)
            if array.size:
                array[:] = next(found)
            results.append(array.reshape(aval.shape))
        return results

    def _while(self, params: Any, x: list[Array], region: Region) -> Sequence[Array]:
        """A loop without a limit; states that have ended keep their values."""
        n_test, n_body = params["cond_nconsts"], params["body_nconsts"]
        consts, carry = x[: n_test + n_body], x[n_test + n_body :]
        first = self.evaluate(params["cond_jaxpr"], [*consts[:n_test], *carry], region)
        body = guarded(params["cond_jaxpr"], params["body_jaxpr"], n_test, n_body)
        loop = Loop(body, len(carry) + 1, UNLIMITED, reverse=False, ends_early=True)
        start = [as_nodes(first[0]), *map(as_nodes, carry)]
        return self._loop(loop, list(consts), start, [], region)[1:]

    def _loop(
        self,
        given: "Loop",
        consts: list[Array],
        carry: list[Nodes],
        rows: list[Array],
        region: Region,
    ) -> Sequence[Array]:
        """A loop that stays one. Values vary where those carried to the next iteration do."""
        start = [x for array in carry for x in array.flat]
        varies = [x.varies for x in start]
        while True:
            loop = self.graph.loop(region, given.length, given.reverse)
            if not self.graph.shares(loop):
                varies = [True] * len(varies)
            found = self._body(loop, given, consts, carry, rows, varies)
            end = [x for array in found[: given.n_carry] for x in array.flat]
            now = [old or x.varies for old, x in zip(varies, end, strict=True)]
            if given.ends_early:  # One pass computes all of it.
                now = [any(now)] * len(now)
            if now == varies:
                break
            varies = now
        loop.start, loop.end = start, end
        if given.ends_early:
            first = carry[0].size
            loop.enters, loop.repeats = self._together(start[:first]), self._together(end[:first])
        stacked = found[given.n_carry :]
        loop.stacked = [list(array.flat) for array in stacked]
        self.graph.close(loop)
        written = [StackedRows(self.graph, loop, k, x.shape) for k, x in enumerate(stacked)]
        return [*self._ends(loop, carry, varies), *written]

    def _together(self, flags: Iterable[Node], op: str = "or") -> Node:
        """Truth values together, by `or`: whether any is true."""
        found = self.graph.constant(op == "and", "i1")
        for flag in flags:
            found = elementwise.logic(self.graph, op, found, flag)
        return found

    def _body(
        self,
        loop: Region,
        given: "Loop",
        consts: list[Array],
        carry: list[Nodes],
        rows: list[Array],
        varies: list[bool],
    ) -> list[Nodes]:
        graph, at = self.graph, 0
        inside = []
        for array in carry:
            nodes = np.empty(array.size, dtype=object)
            for k, x in enumerate(array.flat):
                nodes[k] = graph.of_loop("carry", x.type, loop, (at,), varies[at])
                loop.carried.append(nodes[k])
                at += 1
            inside.append(nodes.reshape(array.shape))
        own = [self._row(loop, x) for x in rows]
        return list(map(as_nodes, self.evaluate(given.body, [*consts, *inside, *own], loop)))

    def _row(self, loop: Region, array: Array) -> Nodes:
        """The row of an array that an iteration reads."""
        graph, number = self.graph, len(loop.rows)
        if isinstance(array, AbstractRows):
            loop.rows.append(array)
            columns = [(None, array.varies(k), array.type(k)) for k in range(array.size)]
        else:
            table = array.reshape(loop.length, -1)
            loop.rows.append(table)
            columns = [
                (x[0] if all(y is x[0] for y in x) else None, any(y.varies for y in x), x[0].type)
                for x in table.T
            ]
        nodes = np.empty(len(columns), dtype=object)
        for k, (same, some, kind) in enumerate(columns):
            varies = some or not graph.shares(loop)
            nodes[k] = same or graph.of_loop("row", kind, loop, (number, k), varies)
        return nodes.reshape(array.shape[1:])

    def _ends(self, loop: Region, carry: list[Nodes], varies: list[bool]) -> list[Nodes]:
        """Carried values after a loop."""
        graph, at = self.graph, 0
        results = []
        for array in carry:
            nodes = np.empty(array.size, dtype=object)
            for k, x in enumerate(array.flat):
                nodes[k] = graph.of_loop("final", x.type, loop, (at,), varies[at])
                at += 1
            results.append(nodes.reshape(array.shape))
        return results


@dataclass(frozen=True)
class Loop:
    """Body and number of iterations of a scan."""

    body: ClosedJaxpr
    n_carry: int
    length: int
    reverse: bool
    ends_early: bool = False


@lru_cache(maxsize=64)
def mapped(program: ClosedJaxpr, axes: tuple[bool, ...], count: int) -> ClosedJaxpr:
    """The program for several values of some arguments, one after another."""
    fn = jaxpr_as_fun(program)

    def each(*arrays: Any) -> list[Any]:
        def one(_: None, row: list[Any]) -> tuple[None, list[Any]]:
            rest = iter(row)
            return None, fn(*(next(rest) if m else x for x, m in zip(arrays, axes, strict=True)))

        rows = [x for x, m in zip(arrays, axes, strict=True) if m]
        return jax.lax.scan(one, None, rows, length=count)[1]

    shapes = [
        jax.ShapeDtypeStruct((count, *x.shape), x.dtype) if m else blank(x)
        for x, m in zip(program.in_avals, axes, strict=True)
    ]
    return canonical(jax.make_jaxpr(each)(*shapes))


def _index_of_cpu(platforms: Any) -> int:
    """Number of the first list of platforms with the CPU, or of the default one."""
    return next(k for k, names in enumerate(platforms) if names is None or "cpu" in names)


def _is_of_integers(x: Any) -> bool:
    """True for tangents of integers, which nothing needs."""
    return x.aval.dtype == jax.dtypes.float0


@dataclass(frozen=True)
class Callee:
    """A program as a function with arguments and results in memory, for one kind of numbers.

    - `is_linear`: as of `scalars_of`.
    """

    program: ClosedJaxpr
    is_linear: bool

    @property
    def found(self) -> tuple[int, ...]:
        """Numbers of entries of the results that have some."""
        counts = (math.prod(x.shape) for x in self.program.out_avals)
        return tuple(n for n in counts if n)

    @property
    def operations(self) -> int:
        """About their number."""
        return work_of(self.program)

    def kinds(self, blocks: Sequence[Node]) -> list[str]:
        """Types of these results."""
        return [TYPES[x.dtype] for x in self.program.out_avals if math.prod(x.shape)]

    def scalars(self, varies: bool) -> Scalars:
        """The program of scalars; its arguments all vary, or none does."""
        return _scalars_of_callee(self.program, self.is_linear, varies)

    def needs(self, module: Any, kind: str, lanes: int) -> int:
        """Bytes of its working memory, with addresses of its arguments and results at the end."""
        count = len(self.program.in_avals) + len(self.program.out_avals)
        return module.callee(self, lanes).scratch + POINTER * count

    def call(self, w: Any, kinds: Sequence[str], places: Sequence[str]) -> None:
        """Write a call with addresses of arguments, results and working memory."""
        own = w.module.callee(self, w.lanes)
        *arrays, work = places
        avals = [*self.program.in_avals, *self.program.out_avals]
        listed = [k for k, aval in enumerate(avals) if math.prod(aval.shape)]
        for k, place in zip(listed, arrays, strict=True):
            at = w.put(f"getelementptr i8, ptr {work}, i64 {own.scratch + POINTER * k}")
            w.do(f"store ptr {place}, ptr {at}")
        args = w.put(f"getelementptr i8, ptr {work}, i64 {own.scratch}")
        n_args = len(self.program.in_avals)
        rets = w.put(f"getelementptr i8, ptr {args}, i64 {POINTER * n_args}")
        w.do(f"call void {own.name}(ptr {args}, ptr {rets}, ptr {work}, ptr {work})")


POINTER = 8  # Bytes of an address.


@lru_cache(maxsize=64)
def _scalars_of_callee(program: ClosedJaxpr, is_linear: bool, varies: bool) -> Scalars:
    return scalars_of(program, (varies,) * len(program.in_avals), is_linear, varies=varies)
