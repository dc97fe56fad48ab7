"""Programs of scalars as functions in LLVM's intermediate representation.

Two passes: one computes what all states share, on scalars, the other the rest on vectors of states,
one vector after another. The first one stores what the second one reads. A pass consists of parts,
functions of limited length, because the time to compile grows faster than the length. Parts pass
values to later ones through memory.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .graph import Node, Region
from .instructions import instruct
from .ir import MEMORY, SIZES, Module, Writer, number, wide
from .liveness import Plan
from .scalars import Scalars

# Bytes of a shared value, and alignment of vectors.
SLOT, ALIGNMENT = 8, 64

# Instructions of a part, after which the next one begins.
LONG = 4000


@dataclass
class Memory:
    """Bytes taken so far."""

    size: int = 0

    def take(self, size: int) -> int:
        """Offset of this number of bytes."""
        start = self.size
        self.size = -(-(start + size) // ALIGNMENT) * ALIGNMENT
        return start


@dataclass
class Part:
    """A function under construction.

    - `names`: names of values; of those that are loaded, by the loop in which they are.
    - `args`, `rets`: numbers of the arguments and results whose addresses it needs.
    - `after`: instructions to be inserted, by the number of instructions before them.
    """

    w: Writer
    names: dict[Any, str] = field(default_factory=dict)
    args: set[int] = field(default_factory=set)
    rets: set[int] = field(default_factory=set)
    after: dict[int, list[str]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """All instructions in order."""
        found = []
        for k, line in enumerate(self.w.lines):
            found += [*self.after.get(k, []), line]
        return [*found, *self.after.get(len(self.w.lines), [])]


class Pass:
    """One of the two passes of a program.

    - `offsets`: for each region, where the values begin that the passes share.
    - `stores`: whether this pass stores results.
    """

    def __init__(
        self, scalars: Scalars, plan: Plan, module: Module, lanes: int, offsets: dict[int, int]
    ):
        self.plan, self.module, self.offsets = plan, module, offsets
        self.lanes, self.varies = lanes, lanes > 0
        self.stores = self.varies or not any(scalars.graph.batched)
        self.root = self.region = scalars.graph.root
        self.scratch = Memory()
        self.parts: list[Part] = []
        self.flat: dict[int, str] = {}
        self.buffers: dict[Any, int] = {}
        # Of nodes in the root region: their part, and the instructions before they are known.
        self._defined: dict[int, tuple[Part, int]] = {}
        self._passed: dict[int, int] = {}
        self._results: dict[int, list[tuple[int, int]]] = {}
        for k, array in enumerate(scalars.results):
            for entry, x in enumerate(array.flat):
                self._results.setdefault(x.index, []).append((k, entry))
        self._by_index = {x.index: x for array in scalars.results for x in array.flat}
        self._begin_part()

    def _begin_part(self) -> None:
        self.part = Part(Writer(self.lanes, self.module))
        self.w, self.names = self.part.w, self.part.names
        self.parts.append(self.part)

    def write(self) -> None:
        """Write all parts."""
        for item in self.plan.items[self.varies, id(self.root)]:
            ends = isinstance(item, Node) and item.op == "final"
            if len(self.w.lines) > LONG and not ends:
                self._begin_part()
            self._write(item)
            if isinstance(item, Node):
                self._defined[item.index] = self.part, len(self.w.lines)
                self._store_results(item)
        if self.stores:
            for index in self._results:
                if index not in self._defined:  # Constants, arguments and shared values.
                    self._store_results(self._by_index[index])

    # Values -----------------------------------------------------------------------------------

    def read(self, node: Node) -> str:
        """The name of a value, in all lanes."""
        if node.op == "const":
            return self.w.constant(node.type, node.data)
        own = self.names.get(node.index)
        if own is not None:
            return own
        key = node.index, id(self.region)
        if key not in self.names:
            self.names[key] = self._loaded(node)
        return self.names[key]

    def _loaded(self, node: Node) -> str:
        """An argument, a value of an earlier part, or one that the other pass has stored."""
        w = self.w
        if node.op == "arg":
            k, entry = node.data
            self.part.args.add(k)
            if node.varies:
                return self._gathered(node.type, f"%base{k}", entry * SIZES[node.type])
            place = w.put(f"getelementptr i8, ptr %arg{k}, i64 {entry * SIZES[node.type]}")
            return w.spread(node.type, self._from(place, node.type))
        if node.varies == self.varies:
            place = w.put(f"getelementptr i8, ptr %scratch, i64 {self._passed_on(node)}")
            return self._row_from(place, node.type)
        place = self._slot(node)
        return w.spread(node.type, self._from(place, node.type))

    def _passed_on(self, node: Node) -> int:
        """Offset in the scratch memory at which an earlier part stores a value for later parts."""
        if node.index not in self._passed:
            start = self.scratch.take(SIZES[node.type] * max(1, self.lanes))
            part, at = self._defined[node.index]
            w, lines = part.w, part.w.lines
            w.lines = part.after.setdefault(at, [])
            T, value = for_memory(w, node.type, part.names[node.index])
            w.do(f"store {T} {value}, ptr {w.put(f'getelementptr i8, ptr %scratch, i64 {start}')}")
            w.lines = lines
            self._passed[node.index] = start
        return self._passed[node.index]

    def _slot(self, node: Node) -> str:
        """Address of the slot of a shared value in this iteration."""
        region, k = node.region, self.plan.slots[node.index]
        start, count = self.offsets[id(region)], self.plan.crossing[region]
        if region.parent is None:
            return self.w.put(f"getelementptr i8, ptr %shared, i64 {start + k * SLOT}")
        row = self.w.put(f"mul i64 {self.flat[id(region)]}, {count * SLOT}")
        place = self.w.put(f"add i64 {row}, {start + k * SLOT}")
        return self.w.put(f"getelementptr i8, ptr %shared, i64 {place}")

    def _from(self, place: str, kind: str) -> str:
        """Load a scalar."""
        made = self.w.put(f"load {MEMORY[kind]}, ptr {place}")
        return self.w.put(f"icmp ne i8 {made}, 0") if kind == "i1" else made

    def _row_from(self, place: str, kind: str) -> str:
        """Load the numbers of all lanes."""
        T = wide(MEMORY[kind], self.lanes)
        made = self.w.put(f"load {T}, ptr {place}")
        if kind != "i1":
            return made
        return self.w.put(f"icmp ne {T} {made}, {self.w.constant('i8', 0)}")

    def _gathered(self, kind: str, base: str, offset: int) -> str:
        """Load an entry of the argument of each state."""
        w, n = self.w, self.lanes
        place = w.put(f"getelementptr i8, <{n} x ptr> {base}, i64 {offset}")
        T = wide(MEMORY[kind], n)
        name = f"@llvm.masked.gather.v{n}{_short(kind)}.v{n}p0"
        self.module.declare(f"declare {T} {name}(<{n} x ptr>, <{n} x i1>, {T})")
        given = f"<{n} x ptr> align {SIZES[kind]} {place}, <{n} x i1> splat (i1 true), {T} poison"
        made = w.put(f"call {T} {name}({given})")
        return w.put(f"icmp ne {T} {made}, zeroinitializer") if kind == "i1" else made

    def _store_results(self, node: Node) -> None:
        """Store a value into all entries of results that it is."""
        if not self.stores:
            return
        for k, entry in self._results.get(node.index, ()):
            self.part.rets.add(k)
            w, n = self.w, self.lanes
            T, value = for_memory(w, node.type, self.read(node))
            offset = entry * SIZES[node.type]
            if not n:
                place = w.put(f"getelementptr i8, ptr %ret{k}, i64 {offset}")
                w.do(f"store {T} {value}, ptr {place}")
                continue
            place = w.put(f"getelementptr i8, <{n} x ptr> %place{k}, i64 {offset}")
            name = f"@llvm.masked.scatter.v{n}{_short(node.type)}.v{n}p0"
            self.module.declare(f"declare void {name}({T}, <{n} x ptr>, <{n} x i1>)")
            where = f"<{n} x ptr> align {SIZES[node.type]} {place}"
            w.do(f"call void {name}({T} {value}, {where}, <{n} x i1> splat (i1 true))")

    # Regions ----------------------------------------------------------------------------------

    def _write(self, item: Any) -> None:
        """Write a node or a loop."""
        if isinstance(item, Region):
            self._write_loop(item)
            return
        if item.op == "kept":
            self.names[item.index] = self._kept(item)
        elif item.op not in ("carry", "row", "final"):  # Their loop has named them.
            self.names[item.index] = instruct(self.w, item, [self.read(x) for x in item.args])
        if not self.varies and item.index in self.plan.slots:
            T, value = for_memory(self.w, item.type, self.names[item.index])
            self.w.do(f"store {T} {value}, ptr {self._slot(item)}")

    def _live(self, node: Node) -> bool:
        return node.index in self.plan.live and node.varies == self.varies

    def _write_loop(self, loop: Region) -> None:
        w, k = self.w, loop.index
        for j, x in enumerate(loop.carried):
            if self._live(x):
                self.read(loop.start[j])  # Before the loop.
        columns = self._write_rows(loop)
        before = w.block
        w.do(f"br label %loop{k}")
        w.begin(f"loop{k}")
        at = len(w.lines)
        carried = [(j, x) for j, x in enumerate(loop.carried) if self._live(x)]
        for _, x in carried:
            self.names[x.index] = w.name()
        outer, self.region = self.region, loop
        self._count(loop)
        self._read_rows(loop, columns)
        for item in self.plan.items[self.varies, id(loop)]:
            self._write(item)
        self._keep(loop)
        ends = [self.read(loop.end[j]) for j, _ in carried]
        for x in self._results_of(loop, "final"):
            self.names[x.index] = self.read(loop.end[x.data[1]])
        self.region = outer
        w.do(f"%next{k} = add i64 %turn{k}, 1")
        w.do(f"%more{k} = icmp slt i64 %next{k}, {loop.length}")
        w.do(f"br i1 %more{k}, label %loop{k}, label %after{k}")
        phis = [f"  %turn{k} = phi i64 [0, %{before}], [%next{k}, %{w.block}]"]
        for (j, x), end in zip(carried, ends, strict=True):
            name, start = self.names[x.index], self.read(loop.start[j])
            phis.append(
                f"  {name} = phi {w.type(x.type)} [{start}, %{before}], [{end}, %{w.block}]"
            )
        w.lines[at:at] = phis
        w.begin(f"after{k}")

    def _count(self, loop: Region) -> None:
        """Numbers of the iteration: of all surrounding loops together, and of the row."""
        w, k = self.w, loop.index
        above = self.flat.get(id(loop.parent))
        self.flat[id(loop)] = f"%turn{k}"
        if above is not None:
            turns = w.put(f"mul i64 {above}, {loop.length}")
            self.flat[id(loop)] = w.put(f"add i64 {turns}, %turn{k}")
        self.names["row", id(loop)] = f"%turn{k}"
        if loop.reverse:
            self.names["row", id(loop)] = w.put(f"sub i64 {loop.length - 1}, %turn{k}")

    def _results_of(self, loop: Region, op: str) -> list[Node]:
        found = self.plan.items[self.varies, id(loop.parent)]
        return [x for x in found if isinstance(x, Node) and x.op == op and x.data[0] is loop]

    # Rows that a loop reads -------------------------------------------------------------------

    def _write_rows(self, loop: Region) -> list[tuple[Node, str]]:
        """Store what the loop reads row by row; addresses of the columns of live nodes."""
        items = self.plan.items[self.varies, id(loop)]
        columns = []
        for x in (x for x in items if isinstance(x, Node) and x.op == "row"):
            _, number_, k = x.data
            columns.append((x, self._column(loop, x, loop.rows[number_][:, k])))
        return columns

    def _column(self, loop: Region, x: Node, column: np.ndarray) -> str:
        """Address of a column: a table of constants, or in memory that it is stored to."""
        if all(y.op == "const" for y in column):
            return self._table(x.type, [y.data for y in column])
        w = self.w
        size = SIZES[x.type] * max(1, self.lanes)
        start = self.scratch.take(size * loop.length)
        for i, y in enumerate(column):
            T, value = for_memory(w, x.type, self.read(y))
            place = w.put(f"getelementptr i8, ptr %scratch, i64 {start + i * size}")
            w.do(f"store {T} {value}, ptr {place}")
        return w.put(f"getelementptr i8, ptr %scratch, i64 {start}")

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

    def _read_rows(self, loop: Region, columns: list[tuple[Node, str]]) -> None:
        w, row = self.w, self.names["row", id(loop)]
        for x, start in columns:
            own = MEMORY[x.type]
            if start.startswith("@"):
                place = w.put(f"getelementptr {own}, ptr {start}, i64 {row}")
                self.names[x.index] = w.spread(x.type, self._from(place, x.type))
            else:
                place = w.put(f"getelementptr {wide(own, self.lanes)}, ptr {start}, i64 {row}")
                self.names[x.index] = self._row_from(place, x.type)

    # Rows that a loop writes ------------------------------------------------------------------

    def _keep(self, loop: Region) -> None:
        """Store what the loop writes row by row, at the end of an iteration."""
        w, row = self.w, self.names["row", id(loop)]
        live = self._results_of(loop, "kept")
        for number_, k in sorted({(x.data[1], x.data[3]) for x in live}):
            x = loop.kept[number_][k]
            T, value = for_memory(w, x.type, self.read(x))
            start = self.scratch.take(SIZES[x.type] * max(1, self.lanes) * loop.length)
            self.buffers[loop.index, number_, k] = start
            first = w.put(f"getelementptr i8, ptr %scratch, i64 {start}")
            w.do(f"store {T} {value}, ptr {w.put(f'getelementptr {T}, ptr {first}, i64 {row}')}")

    def _kept(self, x: Node) -> str:
        """Load an entry of a row that a loop has written."""
        loop, number_, i, k = x.data
        start = self.buffers[loop.index, number_, k] + i * SIZES[x.type] * max(1, self.lanes)
        place = self.w.put(f"getelementptr i8, ptr %scratch, i64 {start}")
        return self._row_from(place, x.type)


def for_memory(w: Writer, kind: str, value: str) -> tuple[str, str]:
    """Type and name of a value for a store."""
    if kind == "i1":
        value = w.put(f"zext {wide('i1', w.lanes)} {value} to {wide('i8', w.lanes)}")
    return wide(MEMORY[kind], w.lanes), value


def _short(kind: str) -> str:
    return kind if kind.startswith("f") else MEMORY[kind]


__all__ = ["SLOT", "Memory", "Part", "Pass"]
