"""Loops over entries of arrays in memory, in LLVM's intermediate representation.

Each entry is a number for each state of a vector.
"""

from collections.abc import Callable, Sequence

from .graph import NUMPY_TYPES
from .ir import REGISTER, SIZES, Module, Writer

# Columns of an array that are computed at once.
COLUMNS = 8

Index = str | int
Body = Callable[..., Sequence[str] | str | None]


class Block(Writer):
    """Instructions on a block of numbers of one type."""

    def __init__(self, kind: str, lanes: int, module: Module):
        super().__init__(lanes, module)
        self.kind, self.T = kind, self.type(kind)
        self.running: str | None = None  # The first one of the columns that `columns` computes.

    # Numbers ----------------------------------------------------------------------------------

    def c(self, x: float) -> str:
        return self.constant(self.kind, NUMPY_TYPES[self.kind].type(x))

    def add(self, a: str, b: str) -> str:
        return self.sum_of(self.kind, a, b)

    def sub(self, a: str, b: str) -> str:
        return self.difference_of(self.kind, a, b)

    def mul(self, a: str, b: str) -> str:
        return self.product(self.kind, a, b)

    def div(self, a: str, b: str) -> str:
        return self.put(f"fdiv {self.T} {a}, {b}")

    def sqrt(self, a: str) -> str:
        return self.call(self.kind, "sqrt", a)

    def size(self, a: str) -> str:
        return self.call(self.kind, "fabs", a)

    def signed(self, size: str, sign: str) -> str:
        """The magnitude of one number with the sign of another one."""
        return self.call(self.kind, "copysign", size, sign)

    def test(self, how: str, a: str, b: str) -> str:
        return self.put(f"fcmp {how} {self.T} {a}, {b}")

    def both(self, a: str, b: str) -> str:
        return self.put(f"and {self.type('i1')} {a}, {b}")

    def where(self, which: str, yes: str, no: str) -> str:
        return self.put(f"select {self.type('i1')} {which}, {self.T} {yes}, {self.T} {no}")

    def any(self, which: str) -> str:
        """True if a truth value is true for any state."""
        n = self.lanes
        if not n:
            return which
        name = f"@llvm.vector.reduce.or.v{n}i1"
        self.module.declare(f"declare i1 {name}(<{n} x i1>)")
        return self.put(f"call i1 {name}(<{n} x i1> {which})")

    def number(self, i: Index) -> str:
        """An index as a number for all states."""
        if isinstance(i, int):
            return self.c(i)
        own = self.put(f"sitofp i64 {i} to {'double' if self.kind == 'f64' else 'float'}")
        return self.broadcast(self.kind, own)

    def spread(self, x: str) -> str:
        """A number from outside of `columns`, within it."""
        return x if self.running is None else self.broadcast(self.kind, x)

    # Indices and loops ------------------------------------------------------------------------

    def at(self, i: Index, op: str, j: Index) -> Index:
        """i op j of integers."""
        if isinstance(i, int) and isinstance(j, int):
            return {"add": i + j, "sub": i - j, "mul": i * j}[op]
        if (op, j) in (("add", 0), ("sub", 0), ("mul", 1)):
            return i
        return self.put(f"{op} i64 {i}, {j}")

    def next(self, i: Index) -> Index:
        return self.at(i, "add", 1)

    def loop(self, first: Index, end: Index, body: Body, *start: str, step: int = 1) -> list[str]:
        """Carry numbers through `body(i, *carried)` for i from `first` to before `end`.

        A body that returns a truth value, and not carried numbers, ends the loop where it is false.
        """
        self.count += 1
        k, before = self.count, self.block
        enters = self.put(f"icmp slt i64 {first}, {end}")
        self.do(f"br i1 {enters}, label %loop{k}, label %after{k}")
        self.begin(f"loop{k}")
        place, i = len(self.lines), f"%i{k}"
        names = [self.name() for _ in start]
        found = body(i, *names)
        following = self.put(f"add i64 {i}, {step}")
        more = self.put(f"icmp slt i64 {following}, {end}")
        if isinstance(found, str):
            more = self.put(f"and i1 {more}, {found}")
        ends = [] if found is None or isinstance(found, str) else list(found)
        inner = self.block
        self.do(f"br i1 {more}, label %loop{k}, label %after{k}")
        phis = [f"  {i} = phi i64 [{first}, %{before}], [{following}, %{inner}]"]
        for name, a, b in zip(names, start, ends, strict=True):
            phis.append(f"  {name} = phi {self.T} [{a}, %{before}], [{b}, %{inner}]")
        self.lines[place:place] = phis
        self.begin(f"after{k}")
        return [
            self.put(f"phi {self.T} [{a}, %{before}], [{b}, %{inner}]")
            for a, b in zip(start, ends, strict=True)
        ]

    def columns(
        self, first: Index, end: Index, body: Callable[[str], None], *arrays: "Matrix"
    ) -> None:
        """body(k) for columns k of arrays, which do not depend on one another.

        Code for one state computes several columns at once, in vectors, where their entries are
        beside one another in memory. The results are the same, bit for bit.
        """
        n = 0 if self.lanes or not all(map(Matrix.is_by_rows, arrays)) else COLUMNS
        if isinstance(first, int) and isinstance(end, int) and end - first < n:
            n = 0
        if n:
            last = self.at(end, "sub", n - 1)
            count = self.at(end, "sub", first)
            some = self.put(f"icmp sgt i64 {count}, 0")
            count = self.put(f"select i1 {some}, i64 {count}, i64 0")
            rest = self.at(first, "add", self.put(f"and i64 {count}, {-n}"))

            def several(k: str) -> None:
                self.lanes, self.running = n, k
                self.T = self.type(self.kind)
                body(k)
                self.lanes, self.running = 0, None
                self.T = self.type(self.kind)

            self.loop(first, last, several, step=n)
            first = rest
        self.loop(first, end, body)

    def sum(self, first: Index, end: Index, term: Callable[[str], str], start: str = "") -> str:
        """`start`, or zero, and the sum of terms."""
        body = lambda i, total: [self.add(total, term(i))]  # noqa: E731
        return self.loop(first, end, body, start or self.c(0.0))[0]

    def copy(self, source: "Matrix", target: "Matrix") -> None:
        for_each(self, source, lambda i, j: target.put(i, j, source(i, j)))


class Matrix:
    """An array in memory at `address`, seen in another order if it is stored so.

    - `transposed`: whether its transpose is stored.
    - `reversed`: whether it is stored with its rows and columns in reverse order.
    """

    def __init__(
        self,
        block: Block,
        address: str,
        rows: int,
        columns: int,
        transposed: bool = False,
        reversed: bool = False,
    ):
        self.block, self.address, self.rows, self.columns = block, address, rows, columns
        self.transposed, self.reversed = transposed, reversed
        self.size = SIZES[block.kind] * max(1, block.lanes)

    def is_by_rows(self) -> bool:
        """True if the entries of a row are beside one another, in order."""
        return not (self.transposed or self.reversed)

    def _place(self, i: Index, j: Index) -> str:
        w, width = self.block, self.columns
        if self.reversed:
            i, j = w.at(self.rows - 1, "sub", i), w.at(self.columns - 1, "sub", j)
        if self.transposed:
            i, j, width = j, i, self.rows
        flat = w.at(w.at(i, "mul", width), "add", j)
        return w.put(f"getelementptr i8, ptr {self.address}, i64 {w.at(flat, 'mul', self.size)}")

    def __call__(self, i: Index, j: Index) -> str:
        w, place = self.block, self._place(i, j)
        if w.running is None:
            return w.put(f"load {w.T}, ptr {place}")
        if j == w.running:
            return w.put(f"load {w.T}, ptr {place}, align {self.size}")
        return w.broadcast(w.kind, w.put(f"load {REGISTER[w.kind]}, ptr {place}"))

    def put(self, i: Index, j: Index, value: str) -> None:
        w = self.block
        assert w.running is None or j == w.running
        aligned = "" if w.running is None else f", align {self.size}"
        w.do(f"store {w.T} {value}, ptr {self._place(i, j)}{aligned}")


class Memory:
    """Arrays in working memory, one after another."""

    def __init__(self, block: Block):
        self.block, self.taken = block, 0

    def take(self, rows: int, columns: int) -> Matrix:
        w = self.block
        start = self.taken * SIZES[w.kind] * max(1, w.lanes)
        self.taken += rows * columns
        return Matrix(w, w.put(f"getelementptr i8, ptr %work, i64 {start}"), rows, columns)


def for_each(w: Block, A: Matrix, body: Callable[[str, str], None]) -> None:
    """body(i, j) for all entries of an array."""

    def row(i: str) -> None:
        w.loop(0, A.columns, lambda j: body(i, j))

    w.loop(0, A.rows, row)
