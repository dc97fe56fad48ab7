"""Multifrontal elimination of sparse matrices as loops over fronts and their entries.

For each front, a dense matrix [[D, C], [R, E]] of own and boundary unknowns, the factors are D⁻¹,
D⁻¹ C and R D⁻¹. Their transposes are stored one after another, with rows of full vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .blocks import Block, Index
from .ir import SIZES, Module

# Numbers of a vector. Rows of factors and of fronts begin at multiples of it.
LANES = 8


def whole(n: int) -> int:
    """The number of entries of a row with n numbers."""
    return -(-n // LANES) * LANES


@dataclass(frozen=True, eq=False)
class Stage:
    """Fronts of one size, in the order of their elimination.

    - `n_own`, `n_boundary`: largest numbers of unknowns; `count`: number of places for factors.
    - `place`: place of the factors of each front; `own`, `boundary`: its numbers of unknowns.
    - `at`, shape `(fronts, n_own + n_boundary)`: its unknowns, -1 for none.
    - `first`, `source`, `target`: for each front, where its part begins of a list of entries of the
      Jacobian, and of their places in the matrices of all fronts.
    - `rows`, `columns`, shape `(fronts, n_boundary)`: places of the rows and columns of boundary
      unknowns in the matrix of the next front that has them; zero for none.
    - `start`: place of the first entry of each front's matrix.
    """

    n_own: int
    n_boundary: int
    count: int
    place: np.ndarray
    own: np.ndarray
    boundary: np.ndarray
    at: np.ndarray
    first: np.ndarray
    source: np.ndarray
    target: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    start: np.ndarray

    @property
    def width(self) -> int:
        """Entries of a row of a front's matrix."""
        return whole(self.n_own) + whole(self.n_boundary)

    @property
    def size(self) -> int:
        """Entries of the factors of a front."""
        inverse = (self.n_own + self.n_boundary) * whole(self.n_own)
        return inverse + self.n_own * whole(self.n_boundary)


@dataclass(frozen=True, eq=False)
class Fronts:
    """All fronts of an elimination.

    - `n_unknowns`; `n_entries`: those of the matrices of all fronts.
    """

    n_unknowns: int
    n_entries: int
    stages: tuple[Stage, ...]

    @property
    def size(self) -> int:
        """Entries of all factors."""
        return sum(stage.count * stage.size for stage in self.stages)


class _Numbers:
    """Numbers in memory from an address on."""

    def __init__(self, w: Block, address: str):
        self.w, self.address = w, address
        self.own = "double" if w.kind == "f64" else "float"

    def _at(self, i: Index) -> str:
        return self.w.put(f"getelementptr {self.own}, ptr {self.address}, i64 {i}")

    def part(self, start: Index) -> "_Numbers":
        return _Numbers(self.w, self._at(start))

    def __call__(self, i: Index) -> str:
        return self.w.put(f"load {self.own}, ptr {self._at(i)}")

    def put(self, i: Index, value: str) -> None:
        self.w.do(f"store {self.own} {value}, ptr {self._at(i)}")

    def in_all(self, i: Index) -> str:
        """A number in all lanes."""
        return self.w.broadcast(self.w.kind, self(i))

    def vector(self, i: Index) -> str:
        return self.w.put(f"load {self.w.T}, ptr {self._at(i)}, align {SIZES[self.w.kind]}")

    def put_vector(self, i: Index, value: str) -> None:
        at = self._at(i)
        self.w.do(f"store {self.w.T} {value}, ptr {at}, align {SIZES[self.w.kind]}")

    def clear(self, n: int) -> None:
        self.w.module.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        size = n * SIZES[self.w.kind]
        self.w.do(f"call void @llvm.memset.p0.i64(ptr {self.address}, i8 0, i64 {size}, i1 false)")


class _Table:
    """Whole numbers that are known."""

    def __init__(self, w: Block, values: np.ndarray):
        self.w, self.columns = w, values.shape[-1]
        self.name = f"@table{len(w.module.globals)}"
        entries = ", ".join(f"i32 {x}" for x in values.ravel()) or "i32 0"
        kind = f"[{max(1, values.size)} x i32]"
        w.module.globals.append(f"{self.name} = private unnamed_addr constant {kind} [{entries}]")

    def __call__(self, i: Index) -> str:
        w = self.w
        place = w.put(f"getelementptr i32, ptr {self.name}, i64 {i}")
        return w.put(f"sext i32 {w.put(f'load i32, ptr {place}')} to i64")

    def row(self, k: Index) -> Callable[[Index], str]:
        """Entries of row k."""
        first = self.w.at(k, "mul", self.columns)
        return lambda i: self(self.w.at(first, "add", i))


def _vectors(w: Block, n: int, body: Callable[[Index], None]) -> None:
    """body(i) for the first number i of each vector of a row."""
    w.loop(0, whole(n) // LANES, lambda k: body(w.at(k, "mul", LANES)))


class _Tables(dict[str, _Table]):
    """Tables of a stage by their names, each written when it is first read.

    - `begin`: place of the first of its factors.
    """

    def __init__(self, w: Block, stage: Stage, begin: int):
        super().__init__()
        self.w, self.stage, self.begin = w, stage, begin

    def __missing__(self, name: str) -> _Table:
        self[name] = _Table(self.w, getattr(self.stage, name))
        return self[name]


class _Front:
    """A front: its tables and places in memory."""

    def __init__(self, tables: _Tables, k: str):
        self.w, self.stage, self.tables, self.k = tables.w, tables.stage, tables, k
        w, stage = self.w, self.stage
        self.n, self.m = tables["own"](k), tables["boundary"](k)
        self.at = tables["at"].row(k)
        self.inverse = w.at(w.at(tables["place"](k), "mul", stage.size), "add", tables.begin)
        self.right = w.at(self.inverse, "add", stage.n_own * whole(stage.n_own))
        self.left = w.at(self.right, "add", stage.n_boundary * whole(stage.n_own))


def _stages(w: Block, fronts: Fronts) -> list[_Tables]:
    begins = np.cumsum([0, *(stage.count * stage.size for stage in fronts.stages)]).tolist()
    return [_Tables(w, *both) for both in zip(fronts.stages, begins[:-1], strict=True)]


def _each_front(w: Block, stages: list[_Tables], body: Callable[[_Front], None]) -> None:
    """Write loops over the fronts of all stages."""
    for tables in stages:
        w.loop(0, len(tables.stage.place), lambda k, tables=tables: body(_Front(tables, k)))


def _each_front_backward(w: Block, stages: list[_Tables], body: Callable[[_Front], None]) -> None:
    for tables in reversed(stages):
        last = len(tables.stage.place) - 1

        def one(k: str, tables: _Tables = tables, last: int = last) -> None:
            body(_Front(tables, w.put(f"sub i64 {last}, {k}")))

        w.loop(0, last + 1, one)


def _factored(w: Block, fronts: Fronts, given: list[str], made: list[str], work: str) -> None:
    """Factors of all fronts, from the entries of a compressed Jacobian."""
    J, factors, work_ = _Numbers(w, given[0]), _Numbers(w, made[0]), _Numbers(w, work)
    factors.clear(fronts.size)
    work_.clear(fronts.n_entries)
    X = work_.part(fronts.n_entries)
    row = X.part(_largest(fronts, lambda s: s.n_own * whole(s.n_own)))
    state = row.part(_largest(fronts, lambda s: s.width))

    def front(f: _Front) -> None:
        tables = f.tables
        end = tables["first"](w.next(f.k))

        def enter(e: str) -> None:
            target = tables["target"](e)
            value = f"fadd {J.own} {work_(target)}, {J(tables['source'](e))}"
            work_.put(target, w.put(value))

        w.loop(tables["first"](f.k), end, enter)
        A = work_.part(tables["start"](f.k))
        _invert(f, A, X, state)
        _store(f, A, X, factors)
        _pass_on(f, A, X, row, factors, work_)

    _each_front(w, _stages(w, fronts), front)


def _invert(f: _Front, A: _Numbers, X: _Numbers, state: _Numbers) -> None:
    """X = D⁻¹, and D⁻¹ C instead of C, by Gauss-Jordan elimination with row pivots."""
    w, stage = f.w, f.stage
    wide, width = whole(stage.n_own), stage.width
    one = w.put(f"fadd {A.own} 0.0, 1.0")
    X.clear(stage.n_own * wide)
    w.loop(0, f.n, lambda i: X.put(w.at(w.at(i, "mul", wide), "add", i), one))

    def step(k: str) -> None:
        pivot = _pivot(f, A, k, state)

        def exchange(M: _Numbers, stride: int, j: Index) -> None:
            a, b = (w.at(w.at(i, "mul", stride), "add", j) for i in (k, pivot))
            x, y = M.vector(a), M.vector(b)
            M.put_vector(a, y)
            M.put_vector(b, x)

        _vectors(w, width, lambda j: exchange(A, width, j))
        _vectors(w, wide, lambda j: exchange(X, wide, j))
        rows = A.part(w.at(k, "mul", width)), X.part(w.at(k, "mul", wide))
        inverse = w.broadcast(w.kind, w.put(f"fdiv {A.own} 1.0, {rows[0](k)}"))

        def scaled(M: _Numbers, j: Index) -> None:
            M.put_vector(j, w.mul(M.vector(j), inverse))

        for M, n in zip(rows, (width, wide), strict=True):
            _vectors(w, n, lambda j, M=M: scaled(M, j))

        def other(i: str) -> None:
            own = A.part(w.at(i, "mul", width)), X.part(w.at(i, "mul", wide))
            same = w.put(f"icmp eq i64 {i}, {k}")
            factor = w.put(f"select i1 {same}, {A.own} 0.0, {A.own} {own[0](k)}")
            factor = w.broadcast(w.kind, factor)

            def less(M: _Numbers, N: _Numbers, j: Index) -> None:
                M.put_vector(j, w.sub(M.vector(j), w.mul(factor, N.vector(j))))

            for M, N, n in zip(own, rows, (width, wide), strict=True):
                _vectors(w, n, lambda j, M=M, N=N: less(M, N, j))

        w.loop(0, f.n, other)

    w.loop(0, f.n, step)


def _pivot(f: _Front, A: _Numbers, k: str, state: _Numbers) -> str:
    """The row from k on with the largest entry in column k."""
    w, width = f.w, f.stage.width
    w.module.declare(f"declare {A.own} @llvm.fabs.{w.kind}({A.own})")

    def size(i: Index) -> str:
        x = A(w.at(w.at(i, "mul", width), "add", k))
        return w.put(f"call {A.own} @llvm.fabs.{w.kind}({A.own} {x})")

    place = state.part(2)  # Aligned, also for numbers of 4 bytes.
    state.put(0, size(k))
    w.do(f"store i64 {k}, ptr {place.address}")

    def better(i: str) -> None:
        here, best = size(i), state(0)
        wins = w.put(f"fcmp ogt {A.own} {here}, {best}")
        state.put(0, w.put(f"select i1 {wins}, {A.own} {here}, {A.own} {best}"))
        old = w.put(f"load i64, ptr {place.address}")
        w.do(f"store i64 {w.put(f'select i1 {wins}, i64 {i}, i64 {old}')}, ptr {place.address}")

    w.loop(w.next(k), f.n, better)
    return w.put(f"load i64, ptr {place.address}")


def _store(f: _Front, A: _Numbers, X: _Numbers, factors: _Numbers) -> None:
    """Store the transposes of D⁻¹ and D⁻¹ C."""
    w, wide, width = f.w, whole(f.stage.n_own), f.stage.width

    def row(i: str) -> None:
        def of(M: _Numbers, first: Index, target: Index, j: str) -> None:
            place = w.at(w.at(w.at(j, "mul", wide), "add", i), "add", target)
            factors.put(place, M(w.at(first, "add", j)))

        w.loop(0, f.n, lambda j: of(X, w.at(i, "mul", wide), f.inverse, j))
        first = w.at(w.at(i, "mul", width), "add", wide)
        w.loop(0, f.m, lambda j: of(A, first, f.right, j))

    w.loop(0, f.n, row)


def _pass_on(
    f: _Front,
    A: _Numbers,
    X: _Numbers,
    row: _Numbers,
    factors: _Numbers,
    work: _Numbers,
) -> None:
    """Store the transpose of R D⁻¹, and add E - R D⁻¹ C to the next front."""
    w, stage = f.w, f.stage
    wide, width = whole(stage.n_own), stage.width
    rows, columns = (f.tables[name].row(f.k) for name in ("rows", "columns"))

    def boundary(i: str) -> None:
        R = A.part(w.at(w.at(stage.n_own, "add", i), "mul", width))

        def product(M: _Numbers, stride: int, j: Index) -> str:
            def term(k: str) -> str:
                return w.mul(R.in_all(k), M.vector(w.at(w.at(k, "mul", stride), "add", j)))

            return w.sum(0, f.n, term)

        _vectors(w, wide, lambda j: row.put_vector(j, product(X, wide, j)))

        def left(j: str) -> None:
            place = w.at(w.at(w.at(j, "mul", whole(stage.n_boundary)), "add", i), "add", f.left)
            factors.put(place, row(j))

        w.loop(0, f.n, left)
        if not stage.n_boundary:
            return

        def rest(j: Index) -> None:
            at = w.at(j, "add", wide)
            row.put_vector(j, w.sub(R.vector(at), product(A, width, at)))

        _vectors(w, stage.n_boundary, rest)
        target = work.part(rows(i))

        def add(j: str) -> None:
            place = columns(j)
            target.put(place, w.put(f"fadd {A.own} {target(place)}, {row(j)}"))

        w.loop(0, f.m, add)

    w.loop(0, f.m, boundary)


def _solved(w: Block, fronts: Fronts, given: list[str], made: list[str], work: str) -> None:
    """Forward and backward substitution."""
    factors, b, x, row = (_Numbers(w, address) for address in (*given, *made, work))
    w.loop(0, fronts.n_unknowns, lambda i: x.put(i, b(i)))

    def forward(f: _Front) -> None:
        n = f.stage.n_boundary

        def rest(i: Index) -> None:
            def term(j: str) -> str:
                place = w.at(w.at(w.at(j, "mul", whole(n)), "add", i), "add", f.left)
                return w.mul(x.in_all(f.at(j)), factors.vector(place))

            row.put_vector(i, w.sum(0, f.n, term))

        _vectors(w, n, rest)

        def less(i: str) -> None:
            place = f.at(w.at(f.stage.n_own, "add", i))
            x.put(place, w.put(f"fsub {x.own} {x(place)}, {row(i)}"))

        w.loop(0, f.m, less)

    def backward(f: _Front) -> None:
        n = f.stage.n_own

        def own(i: Index) -> None:
            def product(first: Index, shift: int) -> Callable[[str], str]:
                def term(j: str) -> str:
                    place = w.at(w.at(w.at(j, "mul", whole(n)), "add", i), "add", first)
                    return w.mul(x.in_all(f.at(w.at(shift, "add", j))), factors.vector(place))

                return term

            near = w.sum(0, f.n, product(f.inverse, 0))
            row.put_vector(i, w.sub(near, w.sum(0, f.m, product(f.right, n))))

        _vectors(w, n, own)
        w.loop(0, f.n, lambda i: x.put(f.at(i), row(i)))

    stages = _stages(w, fronts)
    _each_front(w, stages, forward)
    _each_front_backward(w, stages, backward)


def _solved_transposed(
    w: Block, fronts: Fronts, given: list[str], made: list[str], work: str
) -> None:
    """The same with the transposed matrix."""
    factors, b, x, own = (_Numbers(w, address) for address in (*given, *made, work))
    near = own.part(_largest(fronts, lambda s: s.n_own))
    w.loop(0, fronts.n_unknowns, lambda i: x.put(i, b(i)))
    name = f"@llvm.vector.reduce.fadd.v{LANES}{w.kind}"
    w.module.declare(f"declare {x.own} {name}({x.own}, {w.T})")

    def dot(first: Index, y: _Numbers, n: int) -> str:
        """The product of a row of factors and of numbers."""

        def term(k: str) -> str:
            j = w.at(k, "mul", LANES)
            return w.mul(factors.vector(w.at(first, "add", j)), y.vector(j))

        total = w.sum(0, whole(n) // LANES, term)
        return w.put(f"call reassoc {x.own} {name}({x.own} 0.0, {w.T} {total})")

    def gather(f: _Front, y: _Numbers, shift: int, count: str, n: int) -> None:
        y.clear(whole(n))
        w.loop(0, count, lambda j: y.put(j, x(f.at(w.at(shift, "add", j)))))

    def less(f: _Front, place: str, first: Index, y: _Numbers, n: int) -> None:
        x.put(place, w.put(f"fsub {x.own} {x(place)}, {dot(first, y, n)}"))

    def forward(f: _Front) -> None:
        n = f.stage.n_own
        gather(f, own, 0, f.n, n)

        def boundary(i: str) -> None:
            first = w.at(w.at(i, "mul", whole(n)), "add", f.right)
            less(f, f.at(w.at(n, "add", i)), first, own, n)

        w.loop(0, f.m, boundary)

    def backward(f: _Front) -> None:
        n, m = f.stage.n_own, f.stage.n_boundary
        gather(f, own, 0, f.n, n)
        if m:
            gather(f, near, n, f.m, m)

        def one(i: str) -> None:
            place = f.at(i)
            x.put(place, dot(w.at(w.at(i, "mul", whole(n)), "add", f.inverse), own, n))
            if m:
                less(f, place, w.at(w.at(i, "mul", whole(m)), "add", f.left), near, m)

        w.loop(0, f.n, one)

    stages = _stages(w, fronts)
    _each_front(w, stages, forward)
    _each_front_backward(w, stages, backward)


KINDS = {"factored": _factored, "solved": _solved, "solved_transposed": _solved_transposed}


def _largest(fronts: Fronts, size: Callable[[Stage], int]) -> int:
    return max(whole(size(stage)) for stage in fronts.stages)


@dataclass(frozen=True)
class Elimination:
    """A routine for one state, one of `KINDS`."""

    fronts: Fronts
    kind: str

    @cached_property
    def n_work(self) -> int:
        """Numbers of its working memory."""
        if self.kind != "factored":
            return 2 * _largest(self.fronts, lambda s: s.width)
        own = _largest(self.fronts, lambda s: s.n_own * whole(s.n_own))
        return self.fronts.n_entries + own + _largest(self.fronts, lambda s: s.width) + LANES

    @property
    def operations(self) -> int:
        """About their number."""
        return self.fronts.size * (LANES if self.kind == "factored" else 1)

    def text(self, module: Module, kind: str) -> str:
        """Definition of a function `routine` of addresses of arguments, result and memory."""
        w = Block(kind, LANES, module)
        given = [f"%x{k}_" for k in range(1 if self.kind == "factored" else 2)]
        KINDS[self.kind](w, self.fronts, given, ["%made"], "%work")
        names = ", ".join(f"ptr {x}" for x in (*given, "%made", "%work"))
        head = f"define internal void @routine({names})"
        return "\n".join([f"{head} {{", "entry:", *w.lines, "  ret void", "}"])
