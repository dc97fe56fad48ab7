"""Dense factorizations as loops over entries in memory, in LLVM's intermediate representation.

A routine takes the addresses of its arguments, of its results and of working memory, arrays row by
row. Each entry is a number for each state of a vector. All states of a vector take the same steps,
and choose what becomes of their own numbers.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .blocks import Block, Index, Matrix, Memory, for_each
from .graph import Node
from .ir import SIZES, Module, Writer

# Rotations of an array until its columns are orthogonal: sweeps over all pairs of columns.
MAX_SWEEPS = 40

# Rows of a product that are computed at once.
ROWS = 4


def _product(w: Block, memory: Memory, A: Matrix, B: Matrix, C: Matrix) -> None:
    """C = A B, several rows at once: an addition waits for the one before it in its sum."""

    def rows(first: Index, count: int) -> None:
        places = [w.at(first, "add", k) for k in range(count)]

        def column(j: str) -> None:
            def term(k: str, *sums: str) -> list[str]:
                b = B(k, j)
                return [w.add(x, w.mul(A(i, k), b)) for i, x in zip(places, sums, strict=True)]

            sums = w.loop(0, A.columns, term, *[w.c(0.0)] * count)
            for i, x in zip(places, sums, strict=True):
                C.put(i, j, x)

        w.columns(0, C.columns, column, B, C)

    rest = C.rows % ROWS
    if C.rows > rest:
        w.loop(0, C.rows - rest, lambda i: rows(i, ROWS), step=ROWS)
    if rest:
        rows(C.rows - rest, rest)


def _cholesky(w: Block, memory: Memory, A: Matrix, L: Matrix) -> None:
    """L of A = L Lᵀ, from the lower triangle; NaN if A is not positive definite."""
    n = A.rows

    def column(j: str, least: str) -> list[str]:
        product = lambda m: w.mul(L(j, m), L(j, m))  # noqa: E731
        pivot = w.sub(A(j, j), w.sum(0, j, product))
        root = w.sqrt(pivot)
        L.put(j, j, root)
        inverse = w.div(w.c(1.0), root)

        def below(i: str) -> None:
            total = w.sum(0, j, lambda m: w.mul(L(i, m), L(j, m)))
            L.put(i, j, w.mul(w.sub(A(i, j), total), inverse))
            L.put(j, i, w.c(0.0))

        w.loop(w.next(j), n, below)
        less = w.test("olt", least, pivot)  # False if a pivot is not a number.
        return [w.where(less, least, pivot)]

    (least,) = w.loop(0, n, column, w.c(float("inf")))
    holds = w.test("ogt", least, w.c(0.0))

    def lower(i: str) -> None:
        fill = lambda j: L.put(i, j, w.where(holds, L(i, j), w.c(float("nan"))))  # noqa: E731
        w.loop(0, w.next(i), fill)

    w.loop(0, n, lower)


def _lower_solve(
    w: Block, memory: Memory, L: Matrix, B: Matrix, X: Matrix, unit: bool = False
) -> None:
    """X of L X = B, for the lower triangle of L, with ones on its diagonal if it is `unit`."""

    def row(i: str) -> None:
        inverse = "" if unit else w.div(w.c(1.0), L(i, i))

        def column(k: str) -> None:
            left = w.sub(B(i, k), w.sum(0, i, lambda j: w.mul(L(i, j), X(j, k))))
            X.put(i, k, left if unit else w.mul(left, w.spread(inverse)))

        w.columns(0, B.columns, column, B, X)

    w.loop(0, B.rows, row)


def _unit_lower_solve(w: Block, memory: Memory, L: Matrix, B: Matrix, X: Matrix) -> None:
    _lower_solve(w, memory, L, B, X, unit=True)


def _lu(w: Block, memory: Memory, A: Matrix, LU: Matrix, pivots: Matrix, order: Matrix) -> None:
    """L and U of a row permutation of A; the row that each step exchanges; the permutation."""
    n, m = A.rows, A.columns
    w.copy(A, LU)
    w.loop(0, n, lambda i: order.put(0, i, w.number(i)))

    def step(j: str) -> None:
        def better(i: str, best: str, place: str) -> list[str]:
            size = w.size(LU(i, j))
            wins = w.test("ogt", size, best)
            return [w.where(wins, size, best), w.where(wins, w.number(i), place)]

        best = w.size(LU(j, j))
        _, place = w.loop(w.next(j), n, better, best, w.number(j))
        pivots.put(0, j, place)

        def exchange(i: str, here: str | None = None) -> None:
            """Exchange rows j and i, in the states where i is `here`."""

            def entry(M: Matrix, r: tuple[Index, Index], s: tuple[Index, Index]) -> None:
                a, b = M(*r), M(*s)
                M.put(*r, b if here is None else w.where(here, b, a))
                M.put(*s, a if here is None else w.where(here, a, b))

            w.columns(0, m, lambda c: entry(LU, (j, c), (i, c)), LU)
            entry(order, (0, j), (0, i))

        if w.lanes:  # Each state exchanges other rows.
            each = lambda i: exchange(i, w.test("oeq", place, w.number(i)))  # noqa: E731
            w.loop(w.next(j), n, each)
        else:
            exchange(w.put(f"fptosi {w.T} {place} to i64"))
        pivot = LU(j, j)

        def below(i: str) -> None:
            factor = w.div(LU(i, j), pivot)
            factor = w.where(w.test("oeq", pivot, w.c(0.0)), LU(i, j), factor)
            LU.put(i, j, factor)

            def entry(c: str) -> None:
                LU.put(i, c, w.sub(LU(i, c), w.mul(w.spread(factor), LU(j, c))))

            w.columns(w.next(j), m, entry, LU)

        w.loop(w.next(j), n, below)

    w.loop(0, min(n, m), step)


def _take_rows(w: Block, memory: Memory, A: Matrix, numbers: Matrix, C: Matrix) -> None:
    """Row i of C is the row of A whose number is entry i of `numbers`."""

    def row(i: str) -> None:
        number = numbers(0, i)
        if not w.lanes:
            k = w.put(f"fptosi {w.T} {number} to i64")
            w.columns(0, A.columns, lambda j: C.put(i, j, A(k, j)), A, C)
            return
        w.columns(0, A.columns, lambda j: C.put(i, j, A(0, j)))

        def choose(k: str) -> None:  # Each state takes another row.
            here = w.test("oeq", number, w.number(k))
            w.columns(0, A.columns, lambda j: C.put(i, j, w.where(here, A(k, j), C(i, j))))

        w.loop(1, A.rows, choose)

    w.loop(0, C.rows, row)


def _qr(w: Block, memory: Memory, A: Matrix, Q: Matrix, R: Matrix) -> None:
    """Q and R of A = Q R, by reflections with the signs of LAPACK."""
    work, scales = memory.take(A.rows, A.columns), memory.take(1, A.columns)
    w.copy(A, work)
    _reflect(w, work, scales)
    _form(w, work, scales, Q)
    for_each(w, R, lambda i, j: R.put(i, j, w.c(0.0)))

    def row(i: str) -> None:
        w.loop(i, R.columns, lambda j: R.put(i, j, work(i, j)))

    w.loop(0, min(A.rows, R.rows), row)


def _reflect(w: Block, A: Matrix, scales: Matrix) -> None:
    """R above the diagonal of A, the reflections 1 - τ v vᵀ below it, with v = 1 on it."""

    def column(j: str) -> None:
        following = w.next(j)
        alpha = A(j, j)
        rest = w.sum(following, A.rows, lambda i: w.mul(A(i, j), A(i, j)))
        none = w.test("oeq", rest, w.c(0.0))
        norm = w.sqrt(w.add(w.mul(alpha, alpha), rest))
        beta = w.put(f"fneg {w.T} {w.signed(norm, alpha)}")
        tau = w.where(none, w.c(0.0), w.div(w.sub(beta, alpha), beta))
        inverse = w.where(none, w.c(0.0), w.div(w.c(1.0), w.sub(alpha, beta)))
        A.put(j, j, w.where(none, alpha, beta))
        scales.put(0, j, tau)
        w.loop(following, A.rows, lambda i: A.put(i, j, w.mul(A(i, j), inverse)))

        def other(c: str) -> None:
            along = w.sum(following, A.rows, lambda i: w.mul(A(i, j), A(i, c)), A(j, c))
            along = w.mul(w.spread(tau), along)
            A.put(j, c, w.sub(A(j, c), along))
            change = lambda i: A.put(i, c, w.sub(A(i, c), w.mul(A(i, j), along)))  # noqa: E731
            w.loop(following, A.rows, change)

        w.columns(following, A.columns, other, A)

    w.loop(0, min(A.rows, A.columns), column)


def _form(w: Block, A: Matrix, scales: Matrix, Q: Matrix) -> None:
    """The first columns of the product of reflections."""
    _unit(w, Q)
    count = min(A.rows, A.columns)

    def reflection(turn: str) -> None:
        j = w.at(count - 1, "sub", turn)
        following, tau = w.next(j), scales(0, j)

        def column(c: str) -> None:
            along = w.sum(following, A.rows, lambda i: w.mul(A(i, j), Q(i, c)), Q(j, c))
            along = w.mul(w.spread(tau), along)
            Q.put(j, c, w.sub(Q(j, c), along))
            change = lambda i: Q.put(i, c, w.sub(Q(i, c), w.mul(A(i, j), along)))  # noqa: E731
            w.loop(following, A.rows, change)

        w.columns(0, Q.columns, column, Q)

    w.loop(0, count, reflection)


def _rotation(w: Block, a: str, b: str, c: str, tolerance: str) -> tuple[str, str, str]:
    """Cosine and sine of the rotation that makes [[a, c], [c, b]] diagonal; whether it turns."""
    turns = w.test("ogt", w.size(c), tolerance)
    c = w.where(turns, c, w.c(1.0))
    slope = w.div(w.sub(b, a), w.add(c, c))
    root = w.sqrt(w.add(w.c(1.0), w.mul(slope, slope)))
    tangent = w.div(w.c(1.0), w.add(w.size(slope), root))
    tangent = w.where(turns, w.signed(tangent, slope), w.c(0.0))
    cosine = w.div(w.c(1.0), w.sqrt(w.add(w.c(1.0), w.mul(tangent, tangent))))
    return cosine, w.mul(cosine, tangent), turns


def _rotate_columns(w: Block, A: Matrix, p: str, q: str, cosine: str, sine: str) -> None:
    def row(i: Index) -> None:
        x, y = A(i, p), A(i, q)
        A.put(i, p, w.sub(w.mul(cosine, x), w.mul(sine, y)))
        A.put(i, q, w.add(w.mul(sine, x), w.mul(cosine, y)))

    w.loop(0, A.rows, row)


def _sweeps(w: Block, n: int, turned: Matrix, turn: Callable[[str, str], str]) -> None:
    """turn(p, q) for all pairs of columns, until a sweep turns none of them."""

    def sweep(_: str) -> str:
        turned.put(0, 0, w.c(0.0))

        def first(p: str) -> None:
            def second(q: str) -> None:
                turned.put(0, 0, w.where(turn(p, q), w.c(1.0), turned(0, 0)))

            w.loop(w.next(p), n, second)

        w.loop(0, n, first)
        return w.any(w.test("ogt", turned(0, 0), w.c(0.0)))

    w.loop(0, MAX_SWEEPS, sweep)


def _sort(w: Block, values: Matrix, how: str, *arrays: Matrix) -> None:
    """Exchange values, and columns of arrays, until the first value is the best one, and so on."""
    n = values.columns

    def place(p: str) -> None:
        def other(q: str) -> None:
            wins = w.test(how, values(0, q), values(0, p))

            def exchange(A: Matrix, i: Index) -> None:
                a, b = A(i, p), A(i, q)
                A.put(i, p, w.where(wins, b, a))
                A.put(i, q, w.where(wins, a, b))

            for A in (values, *arrays):
                w.loop(0, A.rows, lambda i, A=A: exchange(A, i))

        w.loop(w.next(p), n, other)

    w.loop(0, n, place)


def _svd(w: Block, memory: Memory, A: Matrix, U: Matrix, sigma: Matrix, V: Matrix) -> None:
    """U, σ and V of A = U diag(σ) Vᵀ, for n ≥ m, by one-sided rotations (Hestenes 1958).

    Columns of U that belong to σ = 0 complete the others: U is the orthogonal factor of A V. All
    results are NaN if an entry is not finite.

    Columns that are rounding errors of A turn no more: each sweep would make them smaller by the
    precision of the numbers, down to the smallest number, without an end.
    """
    n, m = A.rows, A.columns
    work, scales, turned = memory.take(n, m), memory.take(1, m), memory.take(1, 1)
    w.copy(A, work)
    _unit(w, V)
    precision = 2.0**-52 if w.kind == "f64" else 2.0**-23
    eps = w.c(math.sqrt(n) * precision)

    def dot(p: str, q: str) -> str:
        return w.sum(0, n, lambda i: w.mul(work(i, p), work(i, q)))

    rounding = w.mul(w.c(precision), w.sqrt(w.sum(0, m, lambda j: dot(j, j))))

    def turn(p: str, q: str) -> str:
        a, b, c = dot(p, p), dot(q, q), dot(p, q)
        first, second = w.sqrt(a), w.sqrt(b)
        both = w.both(w.test("ogt", first, rounding), w.test("ogt", second, rounding))
        tolerance = w.where(both, w.mul(eps, w.mul(first, second)), w.size(c))
        cosine, sine, turns = _rotation(w, a, b, c, tolerance)
        _rotate_columns(w, work, p, q, cosine, sine)
        _rotate_columns(w, V, p, q, cosine, sine)
        return turns

    _sweeps(w, m, turned, turn)
    w.loop(0, m, lambda j: sigma.put(0, j, w.sqrt(dot(j, j))))
    total = w.sum(0, m, lambda j: w.mul(w.c(0.0), sigma(0, j)))  # Zero, or not a number.
    _sort(w, sigma, "ogt", work, V)
    _reflect(w, work, scales)
    _form(w, work, scales, U)

    def signed(i: str, j: str) -> None:
        U.put(i, j, w.add(w.mul(U(i, j), w.signed(w.c(1.0), work(j, j))), total))

    for_each(w, U, signed)
    for_each(w, V, lambda i, j: V.put(i, j, w.add(V(i, j), total)))
    w.loop(0, m, lambda j: sigma.put(0, j, w.add(sigma(0, j), total)))


def _eigh(w: Block, memory: Memory, A: Matrix, V: Matrix, values: Matrix) -> None:
    """V and λ of a symmetric A = V diag(λ) Vᵀ, from its lower triangle, by rotations (Jacobi).

    All results are NaN if an entry is not finite.
    """
    n = A.rows
    work, turned = memory.take(n, n), memory.take(1, 1)

    def lower(i: str) -> None:
        def entry(j: str) -> None:
            x = A(i, j)
            work.put(i, j, x)
            work.put(j, i, x)

        w.loop(0, w.next(i), entry)

    w.loop(0, n, lower)
    size = w.sqrt(w.sum(0, n, lambda i: w.sum(0, n, lambda j: w.mul(work(i, j), work(i, j)))))
    tolerance = w.mul(w.c(2.0**-54 if w.kind == "f64" else 2.0**-25), size)
    total = w.mul(w.c(0.0), size)
    _unit(w, V)

    def turn(p: str, q: str) -> str:
        cosine, sine, turns = _rotation(w, work(p, p), work(q, q), work(p, q), tolerance)
        _rotate_columns(w, work, p, q, cosine, sine)

        def column(j: Index) -> None:
            x, y = work(p, j), work(q, j)
            work.put(p, j, w.sub(w.mul(cosine, x), w.mul(sine, y)))
            work.put(q, j, w.add(w.mul(sine, x), w.mul(cosine, y)))

        w.loop(0, n, column)
        for i, j in ((p, q), (q, p)):
            work.put(i, j, w.where(turns, w.c(0.0), work(i, j)))
        _rotate_columns(w, V, p, q, cosine, sine)
        return turns

    _sweeps(w, n, turned, turn)
    w.loop(0, n, lambda j: values.put(0, j, w.add(work(j, j), total)))
    _sort(w, values, "olt", V)
    for_each(w, V, lambda i, j: V.put(i, j, w.add(V(i, j), total)))


def _unit(w: Block, A: Matrix) -> None:
    """Store the unit matrix, or its first columns."""
    for_each(w, A, lambda i, j: A.put(i, j, w.c(0.0)))
    w.loop(0, A.columns, lambda j: A.put(j, j, w.c(1.0)))


ROUTINES: dict[str, Callable[..., None]] = {
    "product": _product,
    "cholesky": _cholesky,
    "lower_solve": _lower_solve,
    "unit_lower_solve": _unit_lower_solve,
    "lu": _lu,
    "take_rows": _take_rows,
    "qr": _qr,
    "svd": _svd,
    "eigh": _eigh,
}


class View(NamedTuple):
    """How a routine sees an argument: as in `Matrix`."""

    rows: int
    columns: int
    transposed: bool = False
    reversed: bool = False


@dataclass(frozen=True)
class Routine:
    """A routine for arrays of these sizes.

    - `kind`: its name in `ROUTINES`.
    - `given`, `shapes`: its arguments, and the shapes of its results.
    """

    kind: str
    given: tuple[View, ...]
    shapes: tuple[tuple[int, int], ...]

    @property
    def name(self) -> str:
        views = ["x".join(map(str, map(int, view))) for view in self.given]
        return ".".join([self.kind, *views, *("x".join(map(str, x)) for x in self.shapes)])

    @property
    def found(self) -> tuple[int, ...]:
        """Numbers of entries of the results."""
        return tuple(rows * columns for rows, columns in self.shapes)

    def kinds(self, blocks: Sequence[Node]) -> list[str]:
        """Types of the results, for arguments of one type."""
        return [blocks[0].type] * len(self.shapes)

    def needs(self, module: Module, kind: str, lanes: int) -> int:
        """Bytes of its working memory."""
        return self.work * SIZES[kind] * max(1, lanes)

    def call(self, w: Writer, kinds: Sequence[str], places: Sequence[str]) -> None:
        """Write a call with addresses of arguments, results and working memory."""
        own = w.module.routine(self, kinds[0], w.lanes)
        w.do(f"call void {own}({', '.join(f'ptr {x}' for x in places)})")

    @property
    def operations(self) -> int:
        """About their number, the cube of the largest dimension."""
        return max(max(x.rows, x.columns) for x in self.given) ** 3

    @functools.cached_property
    def work(self) -> int:
        """Number of entries of its working memory."""
        return self._written(Block("f64", 0, Module()))

    def text(self, module: Module, kind: str, lanes: int) -> str:
        """Definition of the routine for numbers of a type."""
        w = Block(kind, lanes, module)
        self._written(w)
        count = len(self.given) + len(self.shapes)
        given = ", ".join([*(f"ptr %x{k}_" for k in range(count)), "ptr %work"])
        head = f"define internal void {module.routine(self, kind, lanes)}({given})"
        return "\n".join([f"{head} {{", "entry:", *w.lines, "  ret void", "}"])

    def _written(self, w: Block) -> int:
        memory = Memory(w)
        views = [*self.given, *(View(*shape) for shape in self.shapes)]
        arrays = [Matrix(w, f"%x{k}_", *view) for k, view in enumerate(views)]
        ROUTINES[self.kind](w, memory, *arrays)
        return memory.taken
