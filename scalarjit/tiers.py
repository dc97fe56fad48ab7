"""Code that runs at once, and is optimized once that pays.

LLVM takes 3 to 7 times as long to optimize code as to make code that works, which in turn takes
1.2 to 2.5 times as long to run. Most code of an analysis runs a few times. So code is first made
without optimization, and measures the time in it by the processor's counter of cycles. Once that is
a tenth of what LLVM would take, a thread optimizes the code, and further calls go there. Both have
the same results, bit for bit.

The thread waits in the meantime. Code tells it through a pipe that its time has come.
"""

import atexit
import ctypes
import os
import platform
import sys
import threading
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from .machine_code import CELLS, Loaded, compiled, has_vectors

# Cycles in code for each line of its text, after which it is optimized. LLVM takes about 100,000,
# but in a thread of its own, and code that has run for so long is likely to go on.
CYCLES = 10_000

# Lines of a function on vectors from which code is optimized at once: the first code keeps all its
# values on the stack, 64 bytes each, and that of threads of XLA is limited.
MOST_OF_VECTORS = 25_000


class Stored(NamedTuple):
    """Code as it is in files: machine code, and what is still to be optimized.

    - `rest`: its text, which is a tenth as long as this; empty if there is none.
    """

    code: bytes
    rest: bytes

    def packed(self) -> bytes:
        return len(self.code).to_bytes(8, "little") + self.code + self.rest

    @classmethod
    def unpacked(cls, contents: bytes) -> "Stored":
        size = 8 + int.from_bytes(contents[:8], "little")
        return cls(contents[8:size], contents[size:])


def first_code(text: str, name: str) -> Stored:
    """Code of a module whose handler gets this name, optimized only where that cannot wait."""
    if not _can_wait() or _longest_on_vectors(text) > MOST_OF_VECTORS:
        return Stored(compiled(text, name, optimized=True), b"")
    code = compiled(_counting(_in_short_blocks(text)), name, optimized=False)
    return Stored(code, zlib.compress(text.encode(), 1))


def _longest_on_vectors(text: str) -> int:
    """Lines of the longest function of a module that computes on vectors."""
    functions = text.split("\ndefine ")
    return max((own.count("\n") for own in functions if has_vectors(own)), default=0)


# Instructions of a block. Without optimizations, LLVM selects calls one by one, sums of a product
# among them, and counts the rest of the block each time: first code of a four-bar, 270,000 lines,
# takes 1.6 s in place of 2.3.
SHORT_BLOCK = 200


def _in_short_blocks(text: str) -> str:
    """A module whose long blocks are divided."""
    functions = text.split("\ndefine ")
    # Memory of the stack belongs to the first block.
    divided = [x if "alloca" in x else _divided(x) for x in functions[1:]]
    return "\ndefine ".join([functions[0], *divided])


def _divided(function: str) -> str:
    lines = function.split("\n")
    begins = [k for k, line in enumerate(lines) if line.endswith(":")]
    cuts: dict[int, str] = {}
    ends: dict[str, str] = {}  # For each block that is divided, its last part.
    for first, after in pairwise([*begins, len(lines)]):
        at = first + SHORT_BLOCK
        while at < after:
            if lines[at].startswith("  %") and " = phi " not in lines[at]:
                cuts[at] = ends[lines[first][:-1]] = f"part.{at}"
                at += SHORT_BLOCK
            else:
                at += 1
    for k in begins if cuts else []:
        while " = phi " in lines[(k := k + 1)]:
            for begin, end in ends.items():
                lines[k] = lines[k].replace(f"%{begin}]", f"%{end}]")
    for at, name in cuts.items():
        lines[at] = f"  br label %{name}\n{name}:\n{lines[at]}"
    return "\n".join(lines)


def _can_wait() -> bool:
    """True where programs may read a counter of cycles, and write to a pipe as in POSIX."""
    return sys.platform != "win32" and platform.machine().lower() in ("x86_64", "amd64")


# The variable `cells` is the address of the optimized handler, the cycles so far, and the pipe.


def _counting(text: str) -> str:
    """A module whose handler counts cycles, and calls the optimized one if there is one."""
    most = CYCLES * text.count("\n")
    assert "@handler(" in text
    return (
        text.replace("@handler(", "@first_handler(")
        + f"""
@{CELLS} = global [3 x i64] zeroinitializer, align 8
@own = private global ptr @{CELLS}, align 8
declare i64 @llvm.readcyclecounter()
declare i64 @write(i32, ptr, i64)
define ptr @handler(ptr %frame) {{
entry:
  %address = load atomic i64, ptr @{CELLS} acquire, align 8
  %better = icmp ne i64 %address, 0
  br i1 %better, label %optimized, label %first
optimized:
  %handler = inttoptr i64 %address to ptr
  %there = tail call ptr %handler(ptr %frame)
  ret ptr %there
first:
  %start = call i64 @llvm.readcyclecounter()
  %here = call ptr @first_handler(ptr %frame)
  %end = call i64 @llvm.readcyclecounter()
  %cycles = sub i64 %end, %start
  %cycles_at = getelementptr i8, ptr @{CELLS}, i64 8
  %before = atomicrmw add ptr %cycles_at, i64 %cycles monotonic
  %after = add i64 %before, %cycles
  %was_below = icmp ult i64 %before, {most}
  %is_above = icmp uge i64 %after, {most}
  %now = and i1 %was_below, %is_above
  br i1 %now, label %tell, label %done
tell:
  %pipe_at = getelementptr i8, ptr @{CELLS}, i64 16
  %pipe = load i64, ptr %pipe_at
  %pipe_number = trunc i64 %pipe to i32
  %written = call i64 @write(i32 %pipe_number, ptr @own, i64 8)
  br label %done
done:
  ret ptr %here
}}
"""
    )


class _Waiting(NamedTuple):
    """Code that is not optimized yet; `rest` as of `Stored`."""

    cells: ctypes.Array[ctypes.c_int64]
    name: str
    rest: bytes
    keep: Callable[[Stored], None]


class _Optimizer:
    """The thread that optimizes code."""

    def __init__(self) -> None:
        self.waiting: dict[int, _Waiting] = {}
        self.optimized: list[Loaded] = []  # For good: programs call it.
        self.one_at_a_time = threading.Lock()
        self.reader, self.writer = os.pipe()
        self.thread = threading.Thread(target=self._work, name="scalarjit", daemon=True)
        self.thread.start()
        atexit.register(self._end)

    def watch(self, loaded: Loaded, name: str, rest: bytes, keep: Callable[[Stored], None]) -> None:
        cells = (ctypes.c_int64 * 3).from_address(loaded.cells)
        self.waiting[loaded.cells] = _Waiting(cells, name, rest, keep)
        cells[2] = self.writer

    def optimize(self, address: int) -> None:
        with self.one_at_a_time:
            code = self.waiting.pop(address, None)
            if code is None:
                return
            text = zlib.decompress(code.rest).decode()
            better = Stored(compiled(text, code.name, optimized=True), b"")
            self.optimized.append(Loaded(better.code, code.name))
            code.cells[0] = self.optimized[-1].handler
        code.keep(better)

    def _work(self) -> None:
        while address := int.from_bytes(os.read(self.reader, 8), sys.byteorder):
            self.optimize(address)

    def _end(self) -> None:
        """Let LLVM finish: a process that ends meanwhile would take its memory away."""
        self.waiting.clear()
        os.write(self.writer, bytes(8))
        self.thread.join()


_optimizers: list[_Optimizer] = []


def watch(loaded: Loaded, name: str, rest: bytes, keep: Callable[[Stored], None]) -> None:
    """Optimize code that has been loaded once that pays, and then call `keep` with it."""
    if not _optimizers:
        _optimizers.append(_Optimizer())
    _optimizers[0].watch(loaded, name, rest, keep)


def optimize() -> None:
    """Optimize all code that has been called so far, and wait for it.

    Otherwise a thread does so with code that has run for some time. Call this after a first run,
    before measuring times.
    """
    for own in _optimizers:
        for address, code in list(own.waiting.items()):
            if code.cells[1]:
                own.optimize(address)
        with own.one_at_a_time:  # The thread may be at the last one.
            pass
