"""Programs of scalars as functions in LLVM's intermediate representation.

Two passes: one computes what all states share, on scalars, the other the rest on vectors of states,
one vector after another. The first one stores what the second one reads. A pass consists of parts,
functions of limited length, and of a driver that calls them one after another. A short loop is
within a part. A long loop is in the driver: its body consists of parts, and its carried values are
in memory.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import Node, Region
from .instructions import instruct
from .ir import MEMORY, SIZES, number, wide
from .rows import AbstractRows, ArgumentRows, StackedRows
from .values import SLOT, Values, for_memory

# Instructions of a part, after which the next one begins, and of the body of a loop within a part.
# Measured with evaluations of a four-bar, 10,000 to 20,000 instructions: LLVM takes a quarter less
# time for parts of 4,000 than for one of all, and the code is as fast. Steps of robots in a loop,
# which pass on more values from part to part, were 16 % slower.
PART, LONG = 4_000, 20_000


@dataclass(frozen=True)
class Place:
    """Location in memory of the entries that a loop reads row by row.

    - `kind`: `table` of constants, `argument`, `scratch` memory of a pass, or memory that both
      passes `share`.
    - `start`: name of the table, number of the argument, or offset in bytes.
    - `entry`, `step`: of arguments, offset of the entry in a row and bytes of a row; of other
      memory, the first of the rows there that make a row, and their number.
    - `loop`: of shared memory, the loop that wrote it.
    """

    kind: str
    start: Any
    entry: int = 0
    step: int = 1
    loop: Region | None = None


class Pass(Values):
    """One of the two passes of a program.

    - `driver`: instructions that call the parts.
    - `prefix`: how names of the parts begin.
    - `of_states`: whether arguments and results are those of XLA, for many states.
    """

    prefix, of_states = "", True

    def __init__(self, *args: Any, **options: Any):
        self.driver: list[str] = []
        self.block = "one" if args[3] else "entry"  # Of the driver.
        self._rows: dict[Node, Place] = {}  # That long loops read.
        self._blocks: dict[int, int] = {}  # Where arrays are in memory.
        self._calls: dict[int, list[int]] = {}  # Where results of calls are.
        super().__init__(*args, **options)

    def limits(self) -> tuple[int, int]:
        """Most instructions of a part, and of the body of a loop within a part."""
        return PART, LONG

    def begin_part(self) -> None:
        super().begin_part()
        turns = "".join(f", i64 %turn{k}" for k in self.part.loops)
        more = ", i64 %vector, i64 %last" if self.lanes and self.of_states else ""
        given = f"{POINTERS}{more}{turns}"
        self.driver.append(f"  call void {self.part_name(len(self.parts) - 1)}({given})")

    def part_name(self, number: int) -> str:
        return f"@{self.prefix}{'vary' if self.lanes else 'shared'}{number}"

    def write(self) -> None:
        """Write all parts."""
        self._write_items(self.root)
        if self.stores:
            self.store_others(self.limits()[0])

    def _write_items(self, region: Region) -> None:
        """Write nodes and loops of the root region or of a long loop."""
        part, longest = self.limits()
        for item in self.plan.items[self.varies, id(region)]:
            if isinstance(item, Region):
                long = self._length(item) > longest
                (self._write_long_loop if long else self._write_loop)(item)
                for x in self._results_of(item, "final"):
                    self._write(x)
                    self.define(x)
            elif item.op != "final":
                if len(self.w.lines) > (longest if self.path else part):
                    self.begin_part()
                self._write(item)
                self.define(item)

    def _length(self, loop: Region) -> int:
        """About the number of instructions of a loop."""
        items = self.plan.items[self.varies, id(loop)]
        return sum(self._length(x) if isinstance(x, Region) else 1 for x in items)

    def _write(self, item: Any) -> None:
        """Write a node or a loop."""
        if isinstance(item, Region):
            self._write_loop(item)
            return
        if item.op == "stacked":
            self.names[item.index] = self._stacked(item)
        elif item.op == "stacked_at":
            self.names[item.index] = self._stacked_at(item)
        elif item.op == "pick":
            self.names[item.index] = self._picked(item)
        elif item.op == "load":
            self.names[item.index] = self.at_index(item)
        elif item.op in IN_MEMORY:
            IN_MEMORY[item.op](self, item)
            return
        elif item.op == "part":
            start = self._blocks[item.args[0].index] + item.data * self._size(item.type)
            self.names[item.index] = self.row_from(self._address(start), item.type)
        elif item.op not in ("carry", "row", "final"):  # Their loop has named them.
            once = self.plan.uses[item.index] == 1
            given = [self.read(x) for x in item.args]
            self.names[item.index] = instruct(self.w, item, given, once)
        if not self.varies and item.index in self.plan.slots:
            T, value = for_memory(self.w, item.type, self.read(item))
            self.w.do(f"store {T} {value}, ptr {self.slot(item)}")

    # Arrays in memory -------------------------------------------------------------------------

    def _size(self, kind: str) -> int:
        return SIZES[kind] * max(1, self.lanes)

    def _address(self, start: int) -> str:
        return self.w.put(f"getelementptr i8, ptr %scratch, i64 {start}")

    def _write_block(self, node: Node) -> None:
        start = self._blocks[node.index] = self.take(node.type, len(node.args))
        for k, x in enumerate(node.args):
            self.store(node.type, self.read(x), start + k * self._size(node.type))

    def _write_call(self, node: Node) -> None:
        """Call a routine with addresses of its arguments, results and working memory."""
        routine, kinds = node.data, [x.type for x in node.args]
        starts = [self._blocks[x.index] for x in node.args]
        found = zip(routine.kinds(node.args), routine.found, strict=True)
        self._calls[node.index] = [self.take(*which) for which in found]
        work = self.scratch.take(routine.needs(self.module, kinds[0], self.lanes))
        starts += [*self._calls[node.index], work]
        routine.call(self.w, kinds, list(map(self._address, starts)))

    def _write_result(self, node: Node) -> None:
        self._blocks[node.index] = self._calls[node.args[0].index][node.data]

    # Loops ------------------------------------------------------------------------------------

    def _live(self, node: Node) -> bool:
        return node.index in self.plan.live and node.varies == self.varies

    def _write_loop(self, loop: Region) -> None:
        """A loop within a part."""
        w, k = self.w, loop.index
        for j, x in enumerate(loop.carried):
            if self._live(x):
                self.read(loop.start[j])  # Before the loop.
        results = self._results_of(loop, "final")
        starts = {x.index: self.read(loop.start[x.data[1]]) for x in results}
        columns = self._columns(loop)
        enters = "true" if loop.enters is None else self._any(self.read(loop.enters))
        before = w.block
        w.do(f"br i1 {enters}, label %loop{k}, label %after{k}")
        w.begin(f"loop{k}")
        at = len(w.lines)
        carried = [(j, x) for j, x in enumerate(loop.carried) if self._live(x)]
        for _, x in carried:
            self.names[x.index] = w.name()
        outer, self.region = self.region, loop
        self.count(loop)
        for x, place in columns:
            self.names[x.index] = self._read_row(x, place)
        for item in self.plan.items[self.varies, id(loop)]:
            self._write(item)
        self._keep(loop)
        ends = [self.read(loop.end[j]) for j, _ in carried]
        finals = {x.index: self.read(loop.end[x.data[1]]) for x in results}
        repeats = "true" if loop.repeats is None else self._any(self.read(loop.repeats))
        self.region = outer
        w.do(f"%next{k} = add i64 %turn{k}, 1")
        more = w.put(f"icmp slt i64 %next{k}, {loop.length}")
        more = w.put(f"and i1 {more}, {repeats}")
        w.do(f"br i1 {more}, label %loop{k}, label %after{k}")
        phis = [f"  %turn{k} = phi i64 [0, %{before}], [%next{k}, %{w.block}]"]
        for (j, x), end in zip(carried, ends, strict=True):
            name, start = self.names[x.index], self.read(loop.start[j])
            phis.append(
                f"  {name} = phi {w.type(x.type)} [{start}, %{before}], [{end}, %{w.block}]"
            )
        w.lines[at:at] = phis
        inner = w.block
        w.begin(f"after{k}")
        for x in results:
            both = f"[{starts[x.index]}, %{before}], [{finals[x.index]}, %{inner}]"
            self.names[x.index] = w.put(f"phi {w.type(x.type)} {both}")

    def _any(self, value: str) -> str:
        """True if a truth value is true in any lane."""
        n = self.lanes
        if not n:
            return value
        name = f"@llvm.vector.reduce.or.v{n}i1"
        self.module.declare(f"declare i1 {name}(<{n} x i1>)")
        return self.w.put(f"call i1 {name}(<{n} x i1> {value})")

    def _write_long_loop(self, loop: Region) -> None:
        """A loop in the driver."""
        k = loop.index
        live = {j for j, x in enumerate(loop.carried) if self._live(x)}
        for j in sorted(live | {x.data[1] for x in self._results_of(loop, "final")}):
            self.places[k, j] = self.take(loop.start[j].type)
            if j in live or loop.enters is not None:
                self.store(loop.start[j].type, self.read(loop.start[j]), self.places[k, j])
        self._rows.update(self._columns(loop))
        begins = f"label %loop{k}"
        if loop.enters is not None:
            self.driver += self._flag(loop.enters, f"enters{k}")
            begins = f"i1 %enters{k}, label %loop{k}, label %after{k}"
        self.driver += [f"  br {begins}", f"loop{k}:"]
        self.driver.append(f"  %turn{k} = phi i64 [0, %{self.block}], [%next{k}, %end{k}]")
        self.block = f"loop{k}"
        outer, self.region = self.region, loop
        self.path.append(loop)
        self.begin_part()
        self._write_items(loop)
        self._keep(loop)
        ends = {j: self.read(loop.end[j]) for (own, j) in self.places if own == k}
        for j, value in ends.items():
            self.store(loop.end[j].type, value, self.places[k, j])
        ends = [f"  %more{k} = icmp slt i64 %next{k}, {loop.length}"]
        if loop.repeats is not None:
            ends = [
                f"  %below{k} = icmp slt i64 %next{k}, {loop.length}",
                *self._flag(loop.repeats, f"again{k}"),
                f"  %more{k} = and i1 %below{k}, %again{k}",
            ]
        self.path.pop()
        self.region = outer
        self.driver += [
            f"  br label %end{k}",
            f"end{k}:",
            f"  %next{k} = add i64 %turn{k}, 1",
            *ends,
            f"  br i1 %more{k}, label %loop{k}, label %after{k}",
            f"after{k}:",
        ]
        self.block = f"after{k}"
        self.begin_part()

    def _flag(self, node: Node, name: str) -> list[str]:
        """Lines of the driver that read whether a truth value of a part is true in any lane."""
        value, start = self.w.put(f"zext i1 {self._any(self.read(node))} to i8"), self.take("i1")
        self.w.do(f"store i8 {value}, ptr {self._address(start)}")
        return [
            f"  %{name}_at = getelementptr i8, ptr %scratch, i64 {start}",
            f"  %{name}_byte = load i8, ptr %{name}_at",
            f"  %{name} = icmp ne i8 %{name}_byte, 0",
        ]

    def _results_of(self, loop: Region, op: str) -> list[Node]:
        found = self.plan.items[self.varies, id(loop.parent)]
        return [x for x in found if isinstance(x, Node) and x.op == op and x.data[0] is loop]

    # Rows that a loop reads -------------------------------------------------------------------

    def _columns(self, loop: Region) -> list[tuple[Node, Place]]:
        """Live nodes of a loop that stand for entries of rows, and where these are."""
        items = self.plan.items[self.varies, id(loop)]
        rows = [x for x in items if isinstance(x, Node) and x.op == "row"]
        return [(x, self._place(loop, x)) for x in rows]

    def _place(self, loop: Region, x: Node) -> Place:
        _, number_, k = x.data
        rows = loop.rows[number_]
        if isinstance(rows, ArgumentRows):
            size = SIZES[x.type]
            return Place("argument", rows.number, k * size, rows.size * size)
        if isinstance(rows, StackedRows):
            beyond, entry = rows.entry(k)
            key = rows.loop.index, rows.number, entry
            if self.plan.stacked[rows.loop, rows.number, entry] and self.varies:
                return Place("shared", self.offsets[key], beyond, rows.together, rows.loop)
            return Place("scratch", self.buffers[key], beyond, rows.together)
        assert not isinstance(rows, AbstractRows)
        column: np.ndarray = rows[:, k]
        if all(y.op == "const" for y in column):
            return Place("table", self._table(x.type, [y.data for y in column]))
        size, start = SIZES[x.type] * max(1, self.lanes), self.take(x.type, loop.length)
        for i, y in enumerate(column):
            self.store(x.type, self.read(y), start + i * size)
        return Place("scratch", start)

    def _table(self, kind: str, values: list[Any]) -> str:
        """A global array of constants."""
        T = MEMORY[kind]
        texts = [str(int(v)) if kind == "i1" else number(kind, v) for v in values]
        entries = ", ".join(f"{T} {x}" for x in texts)
        name = f"@table{len(self.module.globals)}"
        self.module.globals.append(
            f"{name} = private unnamed_addr constant [{len(values)} x {T}] [{entries}]"
        )
        return name

    def loaded(self, node: Node) -> str:
        place = self._rows.get(node)
        return super().loaded(node) if place is None else self._read_row(node, place)

    def _read_row(self, x: Node, place: Place) -> str:
        """Load an entry of the row that this iteration of the loop reads; returns its name."""
        w, row, own = self.w, self.names["row", id(x.region)], MEMORY[x.type]
        if place.kind == "argument":
            offset = w.put(f"mul i64 {row}, {place.step}")
            return self.of_argument(place.start, x.type, w.put(f"add i64 {offset}, {place.entry}"))
        if place.step > 1:
            row = w.put(f"mul i64 {row}, {place.step}")
            row = w.put(f"add i64 {row}, {place.entry}")
        if place.kind == "scratch":
            first = w.put(f"getelementptr i8, ptr %scratch, i64 {place.start}")
            return self.row_from(
                w.put(f"getelementptr {wide(own, self.lanes)}, ptr {first}, i64 {row}"), x.type
            )
        if place.kind == "table":
            at = w.put(f"getelementptr {own}, ptr {place.start}, i64 {row}")
        else:
            at = self._shared_row(place.loop, place.start, row)
        return w.broadcast(x.type, self.scalar_from(at, x.type))

    def _shared_row(self, loop: Region | None, start: int, row: str) -> str:
        """Address of an entry of a row that one pass writes and the other reads."""
        w = self.w
        if loop is not None and loop.parent is not None and loop.parent is not self.root:
            above = w.put(f"mul i64 {self.names['flat', id(loop.parent)]}, {loop.length}")
            row = w.put(f"add i64 {above}, {row}")
        offset = w.put(f"add i64 {w.put(f'mul i64 {row}, {SLOT}')}, {start}")
        return w.put(f"getelementptr i8, ptr %shared, i64 {offset}")

    # Rows that a loop writes ------------------------------------------------------------------

    def _keep(self, loop: Region) -> None:
        """Store what the loop writes row by row, at the end of an iteration."""
        w, row = self.w, self.names["row", id(loop)]
        for (own, number_, k), crosses in self.plan.stacked.items():
            x = loop.stacked[number_][k] if own is loop else None
            if x is None or x.varies != self.varies:
                continue
            T, value = for_memory(w, x.type, self.read(x))
            if crosses:
                start = self.offsets[loop.index, number_, k]
                w.do(f"store {T} {value}, ptr {self._shared_row(loop, start, row)}")
            start = self.take(x.type, loop.length)
            self.buffers[loop.index, number_, k] = start
            first = w.put(f"getelementptr i8, ptr %scratch, i64 {start}")
            w.do(f"store {T} {value}, ptr {w.put(f'getelementptr {T}, ptr {first}, i64 {row}')}")
        if self.stores:
            for (own, number_), results in self.plan.stored.items():
                if own is loop:
                    for k in results:
                        self._store_row(k, loop.stacked[number_], row)

    def _store_row(self, k: int, entries: list[Node], row: str) -> None:
        """Store a row of result k."""
        size = SIZES[entries[0].type] if entries else 0
        start = self.w.put(f"mul i64 {row}, {len(entries) * size}")
        for entry, x in enumerate(entries):
            offset = self.w.put(f"add i64 {start}, {entry * size}")
            self.store_result(k, x.type, self.read(x), offset)

    def _stacked(self, x: Node) -> str:
        """Load an entry of a row that a loop has written."""
        loop, number_, i, k = x.data
        start = self.buffers[loop.index, number_, k] + i * SIZES[x.type] * max(1, self.lanes)
        place = self.w.put(f"getelementptr i8, ptr %scratch, i64 {start}")
        return self.row_from(place, x.type)

    def _stacked_at(self, x: Node) -> str:
        """Load an entry of the row with a computed number that a loop has written."""
        loop, number_, k = x.data
        own, key = MEMORY[x.type], (loop.index, number_, k)
        row = self.w.put(f"sext {x.args[0].type} {self.uniform(x.args[0])} to i64")
        if self.plan.stacked[x.data] and self.varies:
            place = self._shared_row(loop, self.offsets[key], row)
            return self.w.broadcast(x.type, self.scalar_from(place, x.type))
        first = self._address(self.buffers[key])
        place = f"getelementptr {wide(own, self.lanes)}, ptr {first}, i64 {row}"
        return self.row_from(self.w.put(place), x.type)

    def _picked(self, x: Node) -> str:
        """Load an entry of the row with a computed number of an array in memory."""
        block, row = x.args
        size, k = x.data
        first = self._address(self._blocks[block.index] + k * self._size(x.type))
        row = self.w.put(f"sext {row.type} {self.uniform(row)} to i64")
        place = self.w.put(f"mul i64 {row}, {size * self._size(x.type)}")
        return self.row_from(self.w.put(f"getelementptr i8, ptr {first}, i64 {place}"), x.type)


IN_MEMORY = {"block": Pass._write_block, "call": Pass._write_call, "result": Pass._write_result}

POINTERS = "ptr %args, ptr %rets, ptr %shared, ptr %scratch"
