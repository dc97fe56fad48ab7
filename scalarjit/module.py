"""Modules of generated code: the functions of a program, and the handler that XLA calls."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr

from .direct import direct_text, routine_of
from .emit import POINTERS, Pass
from .functions import function_text
from .graph import Node
from .handler import Sizes, handler_text
from .ir import SIZES, Module, wide
from .liveness import Plan
from .scalars import once
from .structure import NotCovered
from .values import SLOT, Memory, Part, for_memory
from .with_room import with_room

# Largest number of instructions that store results of a batch, one for each lane. LLVM took 900 s
# for 80,000, the saved values of a flexible body's motion, which XLA compiles in 20 s.
MAX_STORES = 20_000

# Long programs with more lines than this for each operation mostly move numbers from one memory to
# another, as those with large dense matrices. LLVM took 10 s for directions of a chain of 20 links,
# 5.8 lines an operation and 160,245 lines; XLA compiles them in 1 s. Steps towards the equilibrium
# of a four-bar of points, 3.6 lines an operation and 169,317 lines, have first code in 1.3 s, where
# XLA takes 10 s.
MANY_LINES, LINES_OF_ONE = 120_000, 4


@dataclass(frozen=True)
class Generated:
    """Text of a module, and what was counted on the way.

    - `text`: the module in LLVM's intermediate representation, with a function `handler`.
    - `shared`, `varying`: operations on scalars once a call, and on vectors once for each of them.
    """

    text: str
    shared: int
    varying: int


@with_room
def generate(
    program: ClosedJaxpr, batched: Sequence[bool], width: int, is_linear: bool = False
) -> Generated:
    """Code of a program for one state, or for all states of a batch.

    **Arguments:**

    - `batched`: for each argument, whether it has a leading axis of states. All results have one
      then. Without such an argument the code is for one state.
    - `width`: bytes of a vector.
    - `is_linear`: as of `scalars_of`.

    **Raises** `NotCovered` with the reason for which there is no code.
    """
    routine = routine_of(program)
    if routine is not None:
        return Generated(direct_text(program, batched, routine), 0, routine.operations)
    scalars = once(program, batched, is_linear)
    stores = sum(x.size for x in scalars.results)  # Of rows that a loop stores, the size of one.
    if any(batched) and stores > MAX_STORES:
        raise NotCovered(f"about {stores:.1g} instructions that store results of a batch")
    plan = Plan(scalars.graph, scalars.results)
    # The widest type that varies decides: narrower vectors would stay half empty otherwise.
    kinds = [x.type for x in plan.live.values() if x.varies and x.type[0] == "f"]
    lanes = width // max((SIZES[kind] for kind in kinds), default=SLOT) if any(batched) else 0
    module, memory = Functions(), Memory()
    offsets = shared_places(plan, memory)
    passes = [Pass(scalars, plan, module, n, offsets) for n in ((0, lanes) if lanes else (0,))]
    texts = []
    for each in passes:
        each.write()
        texts += [_part_text(each, k, part, program) for k, part in enumerate(each.parts)]
    texts += [_shared_text(passes[0].driver)]
    if lanes:
        texts += [_varying_text(passes[1].driver, passes[1].block)]
    scratch = max(each.scratch.size for each in passes)
    counts = [sum(x.varies == varies for x in plan.live.values()) for varies in (False, True)]
    numbers = len(program.in_avals), len(program.out_avals)
    sizes = Sizes(*numbers, memory.size, scratch, lanes, plan.work)
    texts.append(handler_text(sizes, module))
    texts += functions_of(module)
    texts += [callee.text for callee in module.callees.values()]
    texts += [own.text(module, *which) for own, *which in list(module.routines)]
    text = "\n".join([*module.globals, *module.declared, *texts])
    lines = text.count("\n")
    if lines > max(MANY_LINES, LINES_OF_ONE * sum(counts)):
        raise NotCovered(f"{lines} instructions for {sum(counts)} operations")
    return Generated(text, *counts)


def shared_places(plan: Plan, memory: Memory) -> dict[Any, int]:
    """Places of the values that one pass stores for the other: `offsets` of `Values`."""
    offsets: dict[Any, int] = {
        id(region): memory.take(SLOT * plan.crossing[region] * region.iterations)
        for region in (plan.graph.root, *plan.graph.regions)
    }
    for (loop, number, k), crosses in plan.stacked.items():
        if crosses:
            offsets[loop.index, number, k] = memory.take(SLOT * loop.iterations)
    return offsets


class Called(NamedTuple):
    """A function of a module: its name, text, and bytes of memory that it works in."""

    name: str
    text: str
    scratch: int


class Functions(Module):
    """A module with functions for programs that other programs call."""

    def callee(self, callee: Any, lanes: int) -> Called:
        """The function of a program; written at the first call."""
        key = callee, lanes
        if key not in self.callees:
            own = CalledPass(callee, self, lanes, len(self.callees))
            self.callees[key] = Called("", "", 0)  # Its number is taken.
            own.write()
            texts = [_part_text(own, k, part, callee.program) for k, part in enumerate(own.parts)]
            first = ["entry:", "  br label %one", "one:"] if lanes else ["entry:"]
            head = f"define internal void @{own.prefix[:-1]}({POINTERS}) {{"
            texts.append("\n".join([head, *first, *own.driver, "  ret void", "}"]))
            self.callees[key] = Called(f"@{own.prefix[:-1]}", "\n".join(texts), own.scratch.size)
        return self.callees[key]


class CalledPass(Pass):
    """The only pass of a function, whose arguments and results are vectors in memory."""

    of_states = False

    def __init__(self, callee: Any, module: Module, lanes: int, number: int):
        self.prefix = f"called{number}_"
        scalars = callee.scalars(lanes > 0)
        super().__init__(scalars, Plan(scalars.graph, scalars.results), module, lanes, {})

    def _entry_at(self, name: str, offset: str) -> str:
        """Address of the entry at an offset in bytes in an array of one state."""
        w = self.w
        if self.lanes:
            offset = w.put(f"mul i64 {offset}, {self.lanes}")
        return w.put(f"getelementptr i8, ptr {name}, i64 {offset}")

    def of_argument(self, k: int, kind: str, offset: str) -> str:
        self.part.args.add(k)
        return self.row_from(self._entry_at(f"%arg{k}", offset), kind)

    def at_index(self, node: Node) -> str:
        """Each state's entry, at the address of a vector and of a lane."""
        if not self.lanes:
            return super().at_index(node)
        w, kind, (k, entry) = self.w, node.type, node.data
        self.part.args.add(k)
        T, size = w.type("i64"), SIZES[kind]
        rows = w.put(f"mul {T} {self.read(node.args[0])}, {w.constant('i64', size * self.lanes)}")
        steps = [(entry * self.lanes + lane) * size for lane in range(self.lanes)]
        each = f"<{', '.join(f'i64 {x}' for x in steps)}>"
        return self._gathered(kind, f"ptr %arg{k}, {T} {w.put(f'add {T} {rows}, {each}')}")

    def store_result(self, k: int, kind: str, value: str, offset: str) -> None:
        self.part.rets.add(k)
        T, value = for_memory(self.w, kind, value)
        place = self._entry_at(f"%ret{k}", offset)
        self.w.do(f"store {T} {value}, ptr {place}")


def functions_of(
    module: Module, text_of: Callable[[Module, str, str, int], str] = function_text
) -> list[str]:
    """Texts of the mathematical functions, some of which call others."""
    texts: dict[Any, str] = {}
    while len(texts) < len(module.functions):
        for key in [key for key in module.functions if key not in texts]:
            texts[key] = text_of(module, *key)
    return list(texts.values())


def _part_text(own: Pass, number: int, part: Part, program: ClosedJaxpr) -> str:
    """A part of a pass as a function; on vectors for the states of one vector."""
    lines = []
    for which, numbers in (("arg", part.args), ("ret", part.rets)):
        for k in sorted(numbers):
            lines.append(f"  %{which}_at{k} = getelementptr ptr, ptr %{which}s, i64 {k}")
            lines.append(f"  %{which}{k} = load ptr, ptr %{which}_at{k}")
    turns = "".join(f", i64 %turn{k}" for k in part.loops)
    if not own.lanes or not own.of_states:
        head = f"define internal void {own.part_name(number)}({POINTERS}{turns}) {{"
        return "\n".join([head, "entry:", *lines, *part.lines(), "  ret void", "}"])
    lines += _states(own.lanes)
    varying = [k for k in sorted(part.args) if own.plan.graph.batched[k]]
    for k in varying:
        lines += _addresses(own.lanes, f"base{k}", f"arg{k}", program.in_avals[k])
    for k in sorted(part.rets):
        lines += _addresses(own.lanes, f"place{k}", f"ret{k}", program.out_avals[k])
    given = f"{POINTERS}, i64 %vector, i64 %last{turns}"
    head = f"define internal void {own.part_name(number)}({given}) {{"
    return "\n".join([head, "entry:", *lines, *part.lines(), "  ret void", "}"])


def _states(n: int) -> list[str]:
    """Numbers of the states of a vector; lanes beyond the last state repeat it."""
    steps = ", ".join(f"i64 {k}" for k in range(n))
    T, zeros = wide("i64", n), wide("i32", n) + " zeroinitializer"
    lines = []
    for name, value in (("first", "%state"), ("end", "%last")):
        lines.append(f"  %{name}_lane = insertelement {T} poison, i64 {value}, i64 0")
        lines.append(f"  %{name} = shufflevector {T} %{name}_lane, {T} poison, {zeros}")
    return [
        f"  %state = mul i64 %vector, {n}",
        *lines,
        f"  %each = add {T} %first, <{steps}>",
        f"  %beyond = icmp sgt {T} %each, %end",
        f"  %states = select {wide('i1', n)} %beyond, {T} %end, {T} %each",
    ]


def _addresses(n: int, name: str, start: str, aval: Any) -> list[str]:
    """Addresses of the parts of an array that belong to the states of a vector."""
    T, size = wide("i64", n), math.prod(aval.shape) * aval.dtype.itemsize
    return [
        f"  %{name}_offset = mul {T} %states, splat (i64 {size})",
        f"  %{name} = getelementptr i8, ptr %{start}, {T} %{name}_offset",
    ]


def _shared_text(driver: list[str]) -> str:
    """The function of what all states share; with one state it is all there is."""
    head = f"define internal void @shared({POINTERS}) {{"
    return "\n".join([head, "entry:", *driver, "  ret void", "}"])


def _varying_text(driver: list[str], block: str) -> str:
    """The function of what varies, for vectors of states from `first` to before `end`."""
    return "\n".join(
        [
            f"define internal void @vary({POINTERS}, i64 %first, i64 %end, i64 %count) {{",
            "entry:",
            "  %last = sub i64 %count, 1",
            "  br label %one",
            "one:",
            f"  %vector = phi i64 [%first, %entry], [%next, %{block}]",
            *driver,
            "  %next = add i64 %vector, 1",
            "  %more = icmp slt i64 %next, %end",
            "  br i1 %more, label %one, label %done",
            "done:",
            "  ret void",
            "}",
        ]
    )
