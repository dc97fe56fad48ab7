"""Programs as kernels for NVIDIA GPUs: one thread computes one state of a batch.

A program becomes a module with two functions in the assembly language PTX: `prepare`, in which one
thread computes what all states share, and `states`, in which a thread computes a state. Loops over
steps are within `states`, values are in registers. XLA launches both by its custom call for PTX,
and the driver compiles them for the card. Arrays with a batch have it last in memory, so that
neighbouring threads access neighbouring addresses.
"""

import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from jax.extend.core import ClosedJaxpr

from .cache import held, keep, name_of
from .cuda_math import function_text
from .direct import routine_of
from .emit import Pass
from .graph import Node
from .ir import MEMORY, SIZES
from .liveness import Plan
from .machine_code import Target
from .module import Functions, functions_of, shared_places
from .scalars import once, reason_of
from .structure import NotCovered
from .values import Memory, for_memory
from .with_room import with_room

TRIPLE, ARCHITECTURE, FEATURES = "nvptx64-nvidia-cuda", "sm_80", "+ptx78"
LEAST = 8.0  # Compute capability of the architecture.

# Most operations of a thread. Measured by ptxas for sm_90, with 255 registers: steps of Go2, 15,889
# operations, are compiled in 2 s and move 7 kB of values to memory, 15 kB in double precision; the
# gradient of a chain of ten links, 17,881, takes 16 s and moves 22 kB. XLA gets longer programs.
MOST = 20_000
# Bytes of memory that a thread has of its own; more of them are in the card's memory, and XLA gets
# programs with more than the second number, 4 GB for as many threads as a card runs at a time.
LOCAL, MOST_WORK = 16_384, 65_536
# Most arrays of a kernel: its parameters have 4 kB.
MOST_ARRAYS = 500
# Number of states in the text, which replaces this one.
COUNT = 1_234_567_890_123

SPARSE = "a sparse elimination on a GPU"
PASSES = ("always_inliner", "new_gvn", "dead_code_elimination")


@dataclass(frozen=True)
class Kernel:
    """Text of a program, or the reason for which there is none.

    - `ptx`: functions `prepare` and `states`, with COUNT in the place of the number of states.
    - `args`, `shared_args`: numbers of the arguments of `states` and of `prepare`.
    - `rets`: numbers of the results that have entries.
    - `shared`: bytes of values that all states share.
    - `work`, `shared_work`: bytes in the card's memory of each thread, and of that of `prepare`.
    - `operations`, `shared_operations`: of a thread, and of `prepare`; a loop counts once.
    """

    ptx: str
    reason: str | None = None
    args: tuple[int, ...] = ()
    shared_args: tuple[int, ...] = ()
    rets: tuple[int, ...] = ()
    shared: int = 0
    work: int = 0
    shared_work: int = 0
    operations: int = 0
    shared_operations: int = 0


@cache
def target() -> Target:
    """The architecture of PTX, for names of files."""
    import llvmlite
    import llvmlite.binding as llvm

    numbers = ".".join(map(str, llvm.llvm_version_info))
    versions = f"llvmlite {llvmlite.__version__}, LLVM {numbers}"
    return Target(TRIPLE, ARCHITECTURE, FEATURES, versions, 0)


# Passes -------------------------------------------------------------------------------------------


class Packed(Memory):
    """Memory of a thread without padding for vectors."""

    def take(self, size: int) -> int:
        start = -(-self.size // 8) * 8
        self.size = start + size
        return start


class WholePass(Pass):
    """A pass that is one function, on scalars."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.scratch = Packed()

    def limits(self) -> tuple[int, int]:
        return 1 << 62, 1 << 62


class ThreadPass(WholePass):
    """What varies, for the state of a thread."""

    def _entry(self, name: str, offset: str) -> str:
        """Address of an entry at an offset in bytes in the array of one state."""
        w = self.w
        if offset == "0":
            return name
        return w.put(f"getelementptr i8, ptr {name}, i64 {w.put(f'mul i64 {offset}, %count')}")

    def of_argument(self, k: int, kind: str, offset: str) -> str:
        self.part.args.add(k)
        if self.plan.graph.batched[k]:
            return self.scalar_from(self._entry(f"%base{k}", offset), kind)
        place = self.w.put(f"getelementptr i8, ptr %arg{k}, i64 {offset}")
        return self.scalar_from(place, kind)

    def at_index(self, node: Node) -> str:
        (k, entry), size = node.data, SIZES[node.type]
        scaled = self.w.put(f"mul i64 {self.read(node.args[0])}, {size}")
        offset = self.w.put(f"add i64 {scaled}, {entry * size}")
        return self.of_argument(k, node.type, offset)

    def scalar_from(self, place: str, kind: str) -> str:
        """Load a number that no thread changes."""
        made = self.w.put(f"load {MEMORY[kind]}, ptr {place}, !invariant.load !0")
        return self.w.put(f"icmp ne i8 {made}, 0") if kind == "i1" else made

    def store_result(self, k: int, kind: str, value: str, offset: str) -> None:
        self.part.rets.add(k)
        T, value = for_memory(self.w, kind, value)
        place = self._entry(f"%place{k}", offset)
        self.w.do(f"store {T} {value}, ptr {place}")


# Text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A function of the module: its arrays in order, and its instructions."""

    arrays: tuple[str, ...]
    lines: list[str]
    work: int


@dataclass(frozen=True)
class Text:
    """Functions and declarations of a module, for the card or for the host."""

    prepare: Function | None
    states: Function | None
    others: list[str]


@with_room
def text_of(program: ClosedJaxpr, batched: Sequence[bool], is_linear: bool) -> tuple[Kernel, Text]:
    """What a kernel needs, and its text.

    **Raises** `NotCovered` with the reason for which there is none.
    """
    if routine_of(program) is not None:
        raise NotCovered(SPARSE)
    scalars = once(program, batched, is_linear)
    plan = Plan(scalars.graph, scalars.results)
    counts = [0, 0]
    for x in plan.live.values():
        counts[x.varies] += x.data.operations if x.op == "call" else 1
    many = any(batched)
    if counts[many] > MOST:
        raise NotCovered(f"{counts[many]} operations, more than {MOST}, on a GPU")
    module, memory = Functions(), Memory()
    passes: list[Pass] = [WholePass(scalars, plan, module, 0, shared_places(plan, memory))]
    if many:
        passes.append(ThreadPass(scalars, plan, module, 0, passes[0].offsets, varies=True))
    for own in passes:
        own.write()
        assert len(own.parts) == 1
    shared = memory.size if many else 0
    first = _prepare(passes[0], shared) if shared or not many else None
    last = _states(passes[1], program, shared) if many else None
    of_first, of_last = passes[0].parts[0], passes[-1].parts[0]
    kernel = Kernel(
        "",
        None,
        tuple(sorted(of_last.args)),
        tuple(sorted(of_first.args)) if first else (),
        tuple(sorted(of_last.rets)),
        shared,
        last.work if last else 0,
        first.work if first else 0,
        *counts[::-1],
    )
    if max(len(x.arrays) for x in (first, last) if x) > MOST_ARRAYS:
        raise NotCovered(f"more than {MOST_ARRAYS} arrays on a GPU")
    if max(kernel.work, kernel.shared_work) > MOST_WORK:
        raise NotCovered(f"more than {MOST_WORK} bytes of memory for a thread on a GPU")
    functions = functions_of(module, function_text)
    functions += [callee.text for callee in module.callees.values()]
    functions += [own.text(module, *which) for own, *which in list(module.routines)]
    return kernel, Text(first, last, [*module.globals, *module.declared, *functions])


def _scratch(own: Pass) -> tuple[list[str], int]:
    """Instructions for the memory of a thread, and its bytes if they are in the card's memory."""
    size = max(8, own.scratch.size)
    if size <= LOCAL:
        return [f"  %scratch = alloca [{size} x i8], align 16"], 0
    work = -(-size // 16) * 16
    return [
        f"  %work_offset = mul i64 %thread, {work}",
        "  %scratch = getelementptr i8, ptr %work, i64 %work_offset",
    ], work


def _prepare(own: Pass, shared: int) -> Function:
    """The function of one thread."""
    part = own.parts[0]
    scratch, work = _scratch(own)
    names = [f"arg{k}" for k in sorted(part.args)]
    names += ["shared"] if shared else [f"ret{k}" for k in sorted(part.rets)]
    lines = [*scratch, *part.lines()]
    return Function((*names, *(["work"] if work else [])), lines, work)


def _states(own: Pass, program: ClosedJaxpr, shared: int) -> Function:
    """The function of a thread for state `%state`."""
    part, lines = own.parts[0], []
    scratch, work = _scratch(own)
    for k in sorted(part.args):
        if own.plan.graph.batched[k]:
            lines += _own_entry(f"base{k}", f"arg{k}", program.in_avals[k])
    for k in sorted(part.rets):
        lines += _own_entry(f"place{k}", f"ret{k}", program.out_avals[k])
    names = [f"arg{k}" for k in sorted(part.args)]
    names += ["shared"] if shared else []
    names += [f"ret{k}" for k in sorted(part.rets)]
    lines = [*lines, *scratch, *part.lines()]
    return Function((*names, *(["work"] if work else [])), lines, work)


def _own_entry(name: str, start: str, aval: Any) -> list[str]:
    return [
        f"  %{name}_offset = mul i64 %state, {aval.dtype.itemsize}",
        f"  %{name} = getelementptr i8, ptr %{start}, i64 %{name}_offset",
    ]


NUMBERS = ("tid", "ctaid", "ntid", "nctaid")
METADATA = ["!0 = !{}", '!1 = !{!"branch_weights", i32 1, i32 1000}']


def _for_card(text: Text) -> str:
    """The module for a card."""
    lines = [*text.others]
    lines += [f"declare i32 @llvm.nvvm.read.ptx.sreg.{x}.x()" for x in NUMBERS]
    for name, own in (("prepare", text.prepare), ("states", text.states)):
        if own is None:
            continue
        arrays = ", ".join(f"ptr addrspace(1) noalias %{x}_at" for x in own.arrays)
        lines += [f"define ptx_kernel void @{name}({arrays}) {{", "first:"]
        lines += [f"  %{x} = addrspacecast ptr addrspace(1) %{x}_at to ptr" for x in own.arrays]
        lines += _numbered(own) if name == "states" else ["  %thread = add i64 0, 0", *_begins()]
        lines += own.lines
        lines += _next_state(own) if name == "states" else ["  ret void"]
        lines.append("}")
    return "\n".join([*lines, *METADATA])


def _begins() -> list[str]:
    return ["  br label %entry", "entry:"]


def _numbered(own: Function) -> list[str]:
    """Numbers of the thread and of its first state."""
    lines = [f"  %{x} = call i32 @llvm.nvvm.read.ptx.sreg.{x}.x()" for x in NUMBERS]
    lines += [
        f'  %count = call i64 asm "mov.u64 $0, {COUNT};", "=l"()',
        *(f"  %{x}_wide = zext i32 %{x} to i64" for x in NUMBERS),
        "  %before = mul i64 %ctaid_wide, %ntid_wide",
        "  %thread = add i64 %before, %tid_wide",
        "  %some = icmp slt i64 %thread, %count",
    ]
    if not own.work:
        lines += ["  br i1 %some, label %entry, label %leave", "leave:", "  ret void", "entry:"]
        return [*lines, "  %state = add i64 %thread, 0"]
    return [
        *lines,
        "  %threads = mul i64 %nctaid_wide, %ntid_wide",
        "  br i1 %some, label %one, label %leave",
        "leave:",
        "  ret void",
        "one:",
        "  %state = phi i64 [%thread, %first], [%following, %done]",
        *_begins(),
    ]


def _next_state(own: Function) -> list[str]:
    if not own.work:
        return ["  ret void"]
    return [
        "  br label %done",
        "done:",
        "  %following = add i64 %state, %threads",
        "  %more = icmp slt i64 %following, %count",
        "  br i1 %more, label %one, label %leave",
    ]


def ptx_of(text: str) -> str:
    """PTX of a module in LLVM's intermediate representation."""
    import llvmlite.binding as llvm

    with _compiling:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        module = llvm.parse_assembly(text)
        module.triple = TRIPLE
        machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
            cpu=ARCHITECTURE, features=FEATURES, opt=3
        )
        module.data_layout = str(machine.target_data)
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        manager = llvm.create_new_module_pass_manager()
        for name in PASSES:
            getattr(manager, f"add_{name}_pass")()
        manager.run(module, builder)
        return machine.emit_assembly(module)


_compiling = threading.Lock()


@lru_cache(maxsize=256)
def reason_on_gpu(program: ClosedJaxpr) -> str | None:
    """Reason for which there is no program of scalars for a thread, or None."""
    return SPARSE if routine_of(program) is not None else reason_of(program)


@lru_cache(maxsize=256)
def kernel_of(program: ClosedJaxpr, batched: tuple[bool, ...], is_linear: bool = False) -> Kernel:
    """The kernel of a program, from the cache if that holds its text."""
    try:
        kernel, text = text_of(program, batched, is_linear)
    except NotCovered as reason:
        return Kernel("", str(reason))
    source = _for_card(text)
    name = f"{name_of(source, target())}.ptx"
    contents = held(name)
    if contents is None:
        ptx = ptx_of(source)
        keep(name, zlib.compress(ptx.encode(), 1))
    else:
        ptx = zlib.decompress(contents).decode()
    return replace(kernel, ptx=ptx)
