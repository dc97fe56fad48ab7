"""Division of large batches among the threads of XLA, in LLVM's intermediate representation.

Threads take one chunk of vectors after another from a counter. The calling thread does the same and
then waits for chunks that others have begun, but never for a task to begin: tasks may run late, in
the calling thread, or not at all as long as it waits. A block on the heap holds the counters; the
last one who needs it frees it. Late tasks find no chunk left and touch nothing else.
"""

import sys

from .ir import Module

# Operations on vectors in a call from which it is divided, and chunks for each thread.
MANY_OPERATIONS, CHUNKS = 200_000, 4

# Offsets of the block: counters of chunks taken and done, and of users; sizes; addresses.
TAKEN, DONE, USERS, N_CHUNKS, PER_CHUNK, VECTORS, COUNT = range(0, 56, 8)
SHARED, ARGS, RETS, SIZE = 56, 64, 72, 80

# Of functions in the table of XLA's interface.
DESTROY, SCHEDULE, N_THREADS = 64, 136, 144


def enough(work: int) -> int:
    """Number of vectors from which a call is divided."""
    return max(2, MANY_OPERATIONS // max(1, work))


def threads_text(scratch: int, context: int, api: int, module: Module) -> str:
    """Functions `divided`, and what it needs.

    **Arguments:**

    - `scratch`: bytes that the functions of a program need.
    - `context`, `api`: offsets in a call frame.
    """
    module.declare("declare ptr @malloc(i64)")
    module.declare("declare void @free(ptr)")
    return "\n".join([_work(), _task(scratch), _query(context, api), _divided(context, api)])


def _load(name: str, kind: str, offset: int) -> str:
    return f"""  %{name}_at = getelementptr i8, ptr %block, i64 {offset}
  %{name} = load {kind}, ptr %{name}_at"""


def _work() -> str:
    """Take chunks until none is left."""
    return f"""
define internal void @work(ptr %block, ptr %scratch) {{
entry:
  %taken = getelementptr i8, ptr %block, i64 {TAKEN}
  %done = getelementptr i8, ptr %block, i64 {DONE}
{_load("chunks", "i64", N_CHUNKS)}
{_load("per", "i64", PER_CHUNK)}
{_load("vectors", "i64", VECTORS)}
{_load("count", "i64", COUNT)}
{_load("shared", "ptr", SHARED)}
{_load("args", "ptr", ARGS)}
{_load("rets", "ptr", RETS)}
  br label %take
take:
  %k = atomicrmw add ptr %taken, i64 1 seq_cst
  %some = icmp slt i64 %k, %chunks
  br i1 %some, label %run, label %end
run:
  %first = mul i64 %k, %per
  %next = add i64 %first, %per
  %beyond = icmp sgt i64 %next, %vectors
  %last = select i1 %beyond, i64 %vectors, i64 %next
  call void @vary(ptr %args, ptr %rets, ptr %shared, ptr %scratch,
    i64 %first, i64 %last, i64 %count)
  %more = atomicrmw add ptr %done, i64 1 seq_cst
  br label %take
end:
  ret void
}}
define internal void @leave(ptr %block) {{
  %users = getelementptr i8, ptr %block, i64 {USERS}
  %before = atomicrmw sub ptr %users, i64 1 seq_cst
  %last = icmp eq i64 %before, 1
  br i1 %last, label %free, label %end
free:
  call void @free(ptr %block)
  br label %end
end:
  ret void
}}"""


def _task(scratch: int) -> str:
    """Function of the other threads: each runs on its own memory, or ends if it gets none."""
    return f"""
define internal void @task(ptr %block) {{
  %memory = call ptr @malloc(i64 {scratch + 64})
  %none = icmp eq ptr %memory, null
  br i1 %none, label %end, label %run
run:
  %address = ptrtoint ptr %memory to i64
  %higher = add i64 %address, 63
  %aligned = and i64 %higher, -64
  %scratch = inttoptr i64 %aligned to ptr
  call void @work(ptr %block, ptr %scratch)
  call void @free(ptr %memory)
  br label %end
end:
  call void @leave(ptr %block)
  ret void
}}"""


def _query(context: int, api: int) -> str:
    """The number of threads, 1 without a pool; and a task handed to the pool, if it takes it."""
    destroy = f"""  %destroy_at = getelementptr i8, ptr %api, i64 {DESTROY}
  %destroy = load ptr, ptr %destroy_at
  %given = alloca [24 x i8], align 8
  store i64 24, ptr %given
  %g1 = getelementptr i8, ptr %given, i64 8
  store ptr null, ptr %g1
  %g2 = getelementptr i8, ptr %given, i64 16
  store ptr %error, ptr %g2
  call void %destroy(ptr %given)"""
    head = f"""  %api_at = getelementptr i8, ptr %frame, i64 {api}
  %api = load ptr, ptr %api_at
  %context_at = getelementptr i8, ptr %frame, i64 {context}
  %context = load ptr, ptr %context_at
  %call = alloca [40 x i8], align 8
  %c1 = getelementptr i8, ptr %call, i64 8
  store ptr null, ptr %c1
  %c2 = getelementptr i8, ptr %call, i64 16
  store ptr %context, ptr %c2
  %c3 = getelementptr i8, ptr %call, i64 24"""
    return f"""
define internal i64 @threads(ptr %frame) {{
{head}
  %number = alloca i64, align 8
  store i64 1, ptr %number
  store i64 32, ptr %call
  store ptr %number, ptr %c3
  %ask_at = getelementptr i8, ptr %api, i64 {N_THREADS}
  %ask = load ptr, ptr %ask_at
  %error = call ptr %ask(ptr %call)
  %ok = icmp eq ptr %error, null
  br i1 %ok, label %end, label %failed
failed:
{destroy}
  store i64 1, ptr %number
  br label %end
end:
  %found = load i64, ptr %number
  ret i64 %found
}}
define internal void @schedule(ptr %frame, ptr %block) {{
{head}
  store i64 40, ptr %call
  store ptr @task, ptr %c3
  %c4 = getelementptr i8, ptr %call, i64 32
  store ptr %block, ptr %c4
  %ask_at = getelementptr i8, ptr %api, i64 {SCHEDULE}
  %ask = load ptr, ptr %ask_at
  %error = call ptr %ask(ptr %call)
  %ok = icmp eq ptr %error, null
  br i1 %ok, label %end, label %failed
failed:
{destroy}
  call void @leave(ptr %block)
  br label %end
end:
  ret void
}}"""


def _store(kind: str, value: str, offset: int) -> str:
    return f"""  %at{offset} = getelementptr i8, ptr %block, i64 {offset}
  store {kind} {value}, ptr %at{offset}"""


def _divided(context: int, api: int) -> str:
    """Compute all vectors in this and in other threads; false if that was not possible."""
    waits = "  %ignored = call i32 @sched_yield()\n" if sys.platform != "win32" else ""
    declared = "declare i32 @sched_yield()\n" if waits else ""
    return f"""
{declared}define internal i1 @divided(ptr %frame, ptr %args, ptr %rets,
    ptr %shared, ptr %scratch, i64 %vectors, i64 %count) {{
entry:
  %threads = call i64 @threads(ptr %frame)
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %make, label %refused
refused:
  ret i1 false
make:
  %block = call ptr @malloc(i64 {SIZE})
  %none = icmp eq ptr %block, null
  br i1 %none, label %refused, label %fill
fill:
  %wanted = mul i64 %threads, {CHUNKS}
  %sum0 = add i64 %vectors, %wanted
  %sum1 = sub i64 %sum0, 1
  %per = udiv i64 %sum1, %wanted
  %sum2 = add i64 %vectors, %per
  %sum3 = sub i64 %sum2, 1
  %chunks = udiv i64 %sum3, %per
{_store("i64", "0", TAKEN)}
{_store("i64", "0", DONE)}
{_store("i64", "%threads", USERS)}
{_store("i64", "%chunks", N_CHUNKS)}
{_store("i64", "%per", PER_CHUNK)}
{_store("i64", "%vectors", VECTORS)}
{_store("i64", "%count", COUNT)}
{_store("ptr", "%shared", SHARED)}
{_store("ptr", "%args", ARGS)}
{_store("ptr", "%rets", RETS)}
  br label %other
other:
  %k = phi i64 [1, %fill], [%next, %other]
  call void @schedule(ptr %frame, ptr %block)
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %threads
  br i1 %more, label %other, label %own
own:
  call void @work(ptr %block, ptr %scratch)
  br label %wait
wait:
  %done = load atomic i64, ptr %at{DONE} seq_cst, align 8
  %all = icmp sge i64 %done, %chunks
  br i1 %all, label %end, label %again
again:
{waits}  br label %wait
end:
  call void @leave(ptr %block)
  ret i1 true
}}"""
