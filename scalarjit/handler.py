"""The handler of generated code that XLA calls, in LLVM's intermediate representation.

XLA's foreign function interface calls a C function with one argument, the address of a call frame
(`XLA_FFI_CallFrame` in `xla/ffi/api/c_api.h`, which jaxlib installs). The offsets below are those
of version 0.3 of that interface on machines with addresses of 64 bits. The handler reports this
version when XLA asks for it, and XLA rejects the registration if it does not support it. Each call
checks the sizes of the structures that it reads.
"""

from collections.abc import Sequence
from typing import NamedTuple

from . import threads
from .ir import Module

# Version of the interface. XLA supports a version for 12 months or more after its successor.
MAJOR, MINOR = 0, 3

# Offsets in bytes.
FRAME = {"extension": 8, "api": 16, "context": 24, "stage": 32, "args": 40, "rets": 80}
FRAME_SIZE = 168
LIST = {"count": 16, "entries": 32}  # Of arguments and of results.
BUFFER = {"data": 24, "rank": 32, "dims": 40}
EXTENSION = {"type": 8, "metadata": 24}
METADATA = {"size": 8, "extension": 16, "major": 24, "minor": 28, "traits": 32}
ERROR_CREATE, EXECUTE, METADATA_TYPE = 48, 3, 1
INVALID, EXHAUSTED = 3, 8

# Memory that calls take from the stack; larger amounts come from the heap.
MAX_STACK = 65_536


class Sizes(NamedTuple):
    """Numbers of arguments and results, bytes of memory, and lanes (0: one state).

    - `work`: operations on a vector.
    """

    n_args: int
    n_rets: int
    shared: int
    scratch: int
    lanes: int
    work: int


def handler_text(sizes: Sizes, module: Module) -> str:
    """The functions `handler` and what it needs."""
    texts = [TEXTS, _head(sizes), _arrays(sizes), *_calls(sizes, module)]
    if sizes.lanes:
        texts.insert(1, threads.threads_text(sizes.scratch, FRAME["context"], FRAME["api"], module))
    return "\n".join(texts)


TEXT = "scalarjit: a call frame of unknown version"
NO_MEMORY = "scalarjit: no memory for intermediate values"


def states_text(
    head: str, once: Sequence[str], before: Sequence[str] = (), of_state: Sequence[str] = ()
) -> list[str]:
    """The functions of a handler that call other code, for each state or once a call.

    **Arguments:** `head`: their arguments; `once`: instructions of one call; `before`: those before
    the loop over states; `of_state`: those of `%state` of `%count`. Without these there is no loop.
    """
    lines = [f"define internal void @shared({head}) {{", *([] if of_state else once)]
    lines += ["  ret void", "}"]
    if not of_state:
        return lines
    return [
        *lines,
        f"define internal void @vary({head}, i64 %first, i64 %end, i64 %count) {{",
        "entry:",
        *before,
        "  br label %one",
        "one:",
        "  %state = phi i64 [%first, %entry], [%next, %one]",
        *of_state,
        "  %next = add i64 %state, 1",
        "  %more = icmp slt i64 %next, %end",
        "  br i1 %more, label %one, label %done",
        "done:",
        "  ret void",
        "}",
    ]


def _string(name: str, text: str) -> str:
    return f'@{name} = private unnamed_addr constant [{len(text) + 1} x i8] c"{text}\\00"'


FAIL = f"""
define internal ptr @fail(ptr %frame, ptr %message, i32 %code) {{
  %api_at = getelementptr i8, ptr %frame, i64 {FRAME["api"]}
  %api = load ptr, ptr %api_at
  %create_at = getelementptr i8, ptr %api, i64 {ERROR_CREATE}
  %create = load ptr, ptr %create_at
  %error = alloca [32 x i8], align 8
  store i64 32, ptr %error
  %e1 = getelementptr i8, ptr %error, i64 8
  store ptr null, ptr %e1
  %e2 = getelementptr i8, ptr %error, i64 16
  store ptr %message, ptr %e2
  %e3 = getelementptr i8, ptr %error, i64 24
  store i32 %code, ptr %e3
  %made = call ptr %create(ptr %error)
  ret ptr %made
}}"""
TEXTS = "\n".join([_string("message", TEXT), _string("no_memory", NO_MEMORY), FAIL])


def _head(sizes: Sizes) -> str:
    """Answer queries, and check versions and sizes."""
    return f"""
define ptr @handler(ptr %frame) {{
entry:
  %extension_at = getelementptr i8, ptr %frame, i64 {FRAME["extension"]}
  %extension = load ptr, ptr %extension_at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %check, label %extended
extended:
  %type_at = getelementptr i8, ptr %extension, i64 {EXTENSION["type"]}
  %type = load i32, ptr %type_at
  %asks = icmp eq i32 %type, {METADATA_TYPE}
  br i1 %asks, label %answer, label %check
answer:
  %metadata_at = getelementptr i8, ptr %extension, i64 {EXTENSION["metadata"]}
  %metadata = load ptr, ptr %metadata_at
  %v0 = getelementptr i8, ptr %metadata, i64 {METADATA["size"]}
  store i64 24, ptr %v0
  %v1 = getelementptr i8, ptr %metadata, i64 {METADATA["extension"]}
  store ptr null, ptr %v1
  %v2 = getelementptr i8, ptr %metadata, i64 {METADATA["major"]}
  store i32 {MAJOR}, ptr %v2
  %v3 = getelementptr i8, ptr %metadata, i64 {METADATA["minor"]}
  store i32 {MINOR}, ptr %v3
  %v4 = getelementptr i8, ptr %metadata, i64 {METADATA["traits"]}
  store i32 0, ptr %v4
  ret ptr null
check:
  %size = load i64, ptr %frame
  %long = icmp uge i64 %size, {FRAME_SIZE}
  %stage_at = getelementptr i8, ptr %frame, i64 {FRAME["stage"]}
  %stage = load i32, ptr %stage_at
  %executes = icmp eq i32 %stage, {EXECUTE}
  %n_args_at = getelementptr i8, ptr %frame, i64 {FRAME["args"] + LIST["count"]}
  %n_args = load i64, ptr %n_args_at
  %all_args = icmp eq i64 %n_args, {sizes.n_args}
  %n_rets_at = getelementptr i8, ptr %frame, i64 {FRAME["rets"] + LIST["count"]}
  %n_rets = load i64, ptr %n_rets_at
  %all_rets = icmp eq i64 %n_rets, {sizes.n_rets}
  %ok0 = and i1 %long, %executes
  %ok1 = and i1 %all_args, %all_rets
  %ok = and i1 %ok0, %ok1
  br i1 %ok, label %read, label %refuse
refuse:
  %made = call ptr @fail(ptr %frame, ptr @message, i32 {INVALID})
  ret ptr %made"""


def _arrays(sizes: Sizes) -> str:
    """Addresses of all arrays, and the number of states."""
    lines = ["read:"]
    for which, count in (("args", sizes.n_args), ("rets", sizes.n_rets)):
        lines += [
            f"  %{which} = alloca [{max(count, 1)} x ptr], align 8",
            f"  %{which}_list_at = getelementptr i8, ptr %frame, "
            f"i64 {FRAME[which] + LIST['entries']}",
            f"  %{which}_list = load ptr, ptr %{which}_list_at",
        ]
        for k in range(count):
            x = f"%{which}{k}"
            lines += [
                f"  {x}_at = getelementptr ptr, ptr %{which}_list, i64 {k}",
                f"  {x} = load ptr, ptr {x}_at",
                f"  {x}_data_at = getelementptr i8, ptr {x}, i64 {BUFFER['data']}",
                f"  {x}_data = load ptr, ptr {x}_data_at",
                f"  {x}_to = getelementptr ptr, ptr %{which}, i64 {k}",
                f"  store ptr {x}_data, ptr {x}_to",
            ]
    if sizes.lanes:
        lines += [
            f"  %dims_at = getelementptr i8, ptr %rets0, i64 {BUFFER['dims']}",
            "  %dims = load ptr, ptr %dims_at",
            "  %count = load i64, ptr %dims",
            "  %some = icmp sgt i64 %count, 0",
            "  br i1 %some, label %states, label %nothing",
            "nothing:",
            "  ret ptr null",
            "states:",
        ]
    return "\n".join(lines)


def _calls(sizes: Sizes, module: Module) -> list[str]:
    """LLVM lines that allocate memory, and call the functions of the program."""
    total = sizes.shared + sizes.scratch + 64
    heap = total > MAX_STACK
    lines = [f"  %stack = alloca [{total} x i8], align 64"]
    if heap:
        module.declare("declare ptr @malloc(i64)")
        module.declare("declare void @free(ptr)")
        lines = [
            f"  %stack = call ptr @malloc(i64 {total})",
            "  %none = icmp eq ptr %stack, null",
            "  br i1 %none, label %exhausted, label %taken",
            "exhausted:",
            f"  %failed = call ptr @fail(ptr %frame, ptr @no_memory, i32 {EXHAUSTED})",
            "  ret ptr %failed",
            "taken:",
        ]
    lines += [
        "  %address = ptrtoint ptr %stack to i64",
        "  %higher = add i64 %address, 63",
        "  %aligned = and i64 %higher, -64",
        "  %shared = inttoptr i64 %aligned to ptr",
        f"  %scratch = getelementptr i8, ptr %shared, i64 {sizes.shared}",
    ]
    given = "ptr %args, ptr %rets, ptr %shared, ptr %scratch"
    lines.append(f"  call void @shared({given})")
    if sizes.lanes:
        lines += [
            f"  %more = add i64 %count, {sizes.lanes - 1}",
            f"  %vectors = sdiv i64 %more, {sizes.lanes}",
            f"  %large = icmp sge i64 %vectors, {threads.enough(sizes.work)}",
            "  br i1 %large, label %divide, label %alone",
            "divide:",
            f"  %did = call i1 @divided(ptr %frame, {given}, i64 %vectors, i64 %count)",
            "  br i1 %did, label %finish, label %alone",
            "alone:",
            f"  call void @vary({given}, i64 0, i64 %vectors, i64 %count)",
            "  br label %finish",
            "finish:",
        ]
    if heap:
        lines.append("  call void @free(ptr %stack)")
    return [*lines, "  ret ptr null", "}"]
