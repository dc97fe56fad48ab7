"""Values of programs of scalars in LLVM's intermediate representation: loads and stores.

Functions have a limited length, because the time to compile grows faster than the length. Such
parts pass values to later ones through memory.
"""

from dataclasses import dataclass, field
from typing import Any

from .graph import Node, Region
from .ir import MEMORY, SIZES, Module, Writer, wide
from .liveness import Plan
from .rows import AbstractRows
from .scalars import Scalars

# Bytes of a shared value, and alignment of vectors.
SLOT, ALIGNMENT = 8, 64


@dataclass
class Memory:
    """Places of shared values in the memory of a call: `size`, the bytes that are taken."""

    size: int = 0

    def take(self, size: int) -> int:
        """Offset of this number of bytes."""
        start = self.size
        self.size = -(-(start + size) // ALIGNMENT) * ALIGNMENT
        return start


@dataclass
class Part:
    """A function under construction.

    - `loops`: numbers of the loops around it, whose iterations it takes as arguments.
    - `names`: names of values; of those that are loaded, by the loop in which they are.
    - `args`, `rets`: numbers of the arguments and results whose addresses it needs.
    - `after`: instructions to be inserted, by the number of instructions before them.
    """

    w: Writer
    loops: tuple[int, ...]
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


class Values:
    """Values of one of the two passes of a program.

    - `offsets`: for each region, and for rows that one pass writes and the other reads, where the
      values begin that the passes share.
    - `varies`: whether this pass computes what varies. Default: if it computes on vectors.
    - `stores`: whether this pass stores results.
    - `path`: loops around the current part.
    - `places`: where carried values of loops are in memory.
    """

    def __init__(
        self,
        scalars: Scalars,
        plan: Plan,
        module: Module,
        lanes: int,
        offsets: dict[Any, int],
        varies: bool | None = None,
    ):
        self.plan, self.module, self.offsets = plan, module, offsets
        self.lanes, self.varies = lanes, lanes > 0 if varies is None else varies
        self.stores = self.varies or not any(scalars.graph.batched)
        self.root = self.region = scalars.graph.root
        self.scratch = Memory()
        self.parts: list[Part] = []
        self.path: list[Region] = []
        self.places: dict[tuple[int, int], int] = {}
        self.buffers: dict[Any, int] = {}
        # Of nodes that later parts may read: their part, and the instructions before it is known.
        self._defined: dict[int, tuple[Part, int]] = {}
        self._passed: dict[int, int] = {}
        self._results: dict[int, list[tuple[int, int]]] = {}
        entries = [(k, x) for k, x in enumerate(scalars.results) if not isinstance(x, AbstractRows)]
        for k, array in entries:
            for entry, x in enumerate(array.flat):
                self._results.setdefault(x.index, []).append((k, entry))
        self._by_index = {x.index: x for _, array in entries for x in array.flat}
        self.begin_part()

    def begin_part(self) -> None:
        """Begin another function, which is called after the others."""
        self.part = Part(Writer(self.lanes, self.module), tuple(x.index for x in self.path))
        self.w, self.names = self.part.w, self.part.names
        self.parts.append(self.part)
        for loop in self.path:
            self.count(loop)

    def count(self, loop: Region) -> None:
        """Numbers of the iteration: of all surrounding loops together, and of the row."""
        w, k = self.w, loop.index
        flat = f"%turn{k}"
        if loop.parent is not self.root:
            turns = w.put(f"mul i64 {self.names['flat', id(loop.parent)]}, {loop.length}")
            flat = w.put(f"add i64 {turns}, %turn{k}")
        row = f"%turn{k}"
        if loop.reverse:
            row = w.put(f"sub i64 {loop.length - 1}, %turn{k}")
        self.names["flat", id(loop)], self.names["row", id(loop)] = flat, row

    def define(self, node: Node) -> None:
        """Note where a value is known, and store it if it is a result."""
        self._defined[node.index] = self.part, len(self.w.lines)
        self._store_results(node)

    def store_others(self, longest: int) -> None:
        """Store results that no instruction computes: constants, arguments and shared values.

        Parts end after `longest` instructions.
        """
        for index, places in self._results.items():
            if index not in self._defined:
                node = self._by_index[index]
                for k, entry in places:
                    if len(self.w.lines) > longest:
                        self.begin_part()
                    self.store_result(k, node.type, self.read(node), str(entry * SIZES[node.type]))

    # Values -----------------------------------------------------------------------------------

    def read(self, node: Node) -> str:
        """The name of a value, in all lanes."""
        own = self.names.get(node.index)
        if own is not None:
            return own
        if node.op == "const":
            own = self.names[node.index] = self.w.constant(node.type, node.data)
            return own
        key = node.index, id(self.region)
        if key not in self.names:
            self.names[key] = self.loaded(node)
        return self.names[key]

    def loaded(self, node: Node) -> str:
        """Load the value of a node from memory; returns its name.

        Arguments, values of earlier parts and values that the other pass has stored are there.
        """
        w = self.w
        if node.op == "arg":
            k, entry = node.data
            return self.of_argument(k, node.type, str(entry * SIZES[node.type]))
        if node.op in ("carry", "final") and (node.data[0].index, node.data[1]) in self.places:
            start = self.places[node.data[0].index, node.data[1]]
            place = w.put(f"getelementptr i8, ptr %scratch, i64 {start}")
            return self.row_from(place, node.type)
        if node.varies == self.varies:
            place = w.put(f"getelementptr i8, ptr %scratch, i64 {self._passed_on(node)}")
            return self.row_from(place, node.type)
        place = self.slot(node)
        return w.broadcast(node.type, self.scalar_from(place, node.type))

    def uniform(self, node: Node) -> str:
        """The value of a node that is the same for all lanes, as a scalar."""
        if node.op == "const":
            return str(int(node.data))
        if node.varies != self.varies and node.op != "arg":
            return self.scalar_from(self.slot(node), node.type)
        value = self.read(node)
        if not self.lanes:
            return value
        return self.w.put(f"extractelement {self.w.type(node.type)} {value}, i64 0")

    def of_argument(self, k: int, kind: str, offset: str) -> str:
        """An entry of argument k, at an offset in bytes."""
        self.part.args.add(k)
        if self.plan.graph.batched[k]:
            return self._gathered(kind, f"<{self.lanes} x ptr> %base{k}, i64 {offset}")
        place = self.w.put(f"getelementptr i8, ptr %arg{k}, i64 {offset}")
        return self.w.broadcast(kind, self.scalar_from(place, kind))

    def at_index(self, node: Node) -> str:
        """An entry of an argument at an index that is computed."""
        w, kind, (k, entry) = self.w, node.type, node.data
        self.part.args.add(k)
        T, size = w.type("i64"), SIZES[kind]
        scaled = w.put(f"mul {T} {self.read(node.args[0])}, {w.constant('i64', size)}")
        offset = w.put(f"add {T} {scaled}, {w.constant('i64', entry * size)}")
        if self.lanes:
            base = (
                f"<{self.lanes} x ptr> %base{k}" if self.plan.graph.batched[k] else f"ptr %arg{k}"
            )
            return self._gathered(kind, f"{base}, {T} {offset}")
        return self.scalar_from(w.put(f"getelementptr i8, ptr %arg{k}, i64 {offset}"), kind)

    def _passed_on(self, node: Node) -> int:
        """Offset in the scratch memory at which an earlier part stores a value for later parts."""
        if node.index not in self._passed:
            start = self.take(node.type)
            part, at = self._defined[node.index]
            w, lines = part.w, part.w.lines
            w.lines, w.late = part.after.setdefault(at, []), "late"
            T, value = for_memory(w, node.type, part.names[node.index])
            w.do(f"store {T} {value}, ptr {w.put(f'getelementptr i8, ptr %scratch, i64 {start}')}")
            w.lines, w.late = lines, ""
            self._passed[node.index] = start
        return self._passed[node.index]

    def slot(self, node: Node) -> str:
        """Address of the slot of a shared value in this iteration."""
        region, k = node.region, self.plan.slots[node.index]
        start, count = self.offsets[id(region)], self.plan.crossing[region]
        if region.parent is None:
            return self.w.put(f"getelementptr i8, ptr %shared, i64 {start + k * SLOT}")
        row = self.w.put(f"mul i64 {self.names['flat', id(region)]}, {count * SLOT}")
        place = self.w.put(f"add i64 {row}, {start + k * SLOT}")
        return self.w.put(f"getelementptr i8, ptr %shared, i64 {place}")

    def scalar_from(self, place: str, kind: str) -> str:
        """Load a scalar."""
        made = self.w.put(f"load {MEMORY[kind]}, ptr {place}")
        return self.w.put(f"icmp ne i8 {made}, 0") if kind == "i1" else made

    def row_from(self, place: str, kind: str) -> str:
        """Load the numbers of all lanes."""
        T = wide(MEMORY[kind], self.lanes)
        made = self.w.put(f"load {T}, ptr {place}")
        if kind != "i1":
            return made
        return self.w.put(f"icmp ne {T} {made}, {self.w.constant('i8', 0)}")

    def _gathered(self, kind: str, at: str) -> str:
        """Load an entry for each state, at addresses of bases and offsets."""
        w, n = self.w, self.lanes
        place = w.put(f"getelementptr i8, {at}")
        T = wide(MEMORY[kind], n)
        name = f"@llvm.masked.gather.v{n}{_short(kind)}.v{n}p0"
        self.module.declare(f"declare {T} {name}(<{n} x ptr>, <{n} x i1>, {T})")
        given = f"<{n} x ptr> align {SIZES[kind]} {place}, <{n} x i1> splat (i1 true), {T} poison"
        made = w.put(f"call {T} {name}({given})")
        return w.put(f"icmp ne {T} {made}, zeroinitializer") if kind == "i1" else made

    def _store_results(self, node: Node) -> None:
        """Store a value into all entries of results that it is."""
        if self.stores:
            for k, entry in self._results.get(node.index, ()):
                self.store_result(k, node.type, self.read(node), str(entry * SIZES[node.type]))

    def store_result(self, k: int, kind: str, value: str, offset: str) -> None:
        """Store a value into result k, at an offset in bytes."""
        self.part.rets.add(k)
        w, n = self.w, self.lanes
        T, value = for_memory(w, kind, value)
        if not n:
            w.do(f"store {T} {value}, ptr {w.put(f'getelementptr i8, ptr %ret{k}, i64 {offset}')}")
            return
        place = w.put(f"getelementptr i8, <{n} x ptr> %place{k}, i64 {offset}")
        name = f"@llvm.masked.scatter.v{n}{_short(kind)}.v{n}p0"
        self.module.declare(f"declare void {name}({T}, <{n} x ptr>, <{n} x i1>)")
        where = f"<{n} x ptr> align {SIZES[kind]} {place}"
        w.do(f"call void {name}({T} {value}, {where}, <{n} x i1> splat (i1 true))")

    def store(self, kind: str, value: str, start: int) -> None:
        """Store the numbers of all lanes in memory."""
        w = self.w
        T, value = for_memory(w, kind, value)
        w.do(f"store {T} {value}, ptr {w.put(f'getelementptr i8, ptr %scratch, i64 {start}')}")

    def take(self, kind: str, count: int = 1) -> int:
        """Memory for the numbers of all lanes, or for several rows of them."""
        return self.scratch.take(SIZES[kind] * max(1, self.lanes) * count)


def for_memory(w: Writer, kind: str, value: str) -> tuple[str, str]:
    """Type and name of a value for a store."""
    if kind == "i1":
        value = w.put(f"zext {wide('i1', w.lanes)} {value} to {wide('i8', w.lanes)}")
    return wide(MEMORY[kind], w.lanes), value


def _short(kind: str) -> str:
    return kind if kind.startswith("f") else MEMORY[kind]
