"""Calls of kernels for GPUs in programs of JAX, and their emulation on the CPU."""

import hashlib
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from .cuda import COUNT, METADATA, Function, Kernel, kernel_of, text_of
from .cuda_tuning import Launch, launch_of, limited
from .handler import Sizes, handler_text, states_text
from .machine_code import Loaded, compiled
from .module import Functions
from .registered import capsule

# The custom call by which XLA launches a function in PTX.
CALL = "__gpu$xla.gpu.ptx"
# Most threads of a kernel whose memory is the card's: each computes one state after another.
RESIDENT = 132 * 512


def called(
    *arrays: Any,
    program: ClosedJaxpr,
    batched: tuple[bool, ...],
    is_linear: bool,
    on_host: bool,
) -> list[Any]:
    """Results of the kernel of a program, in a program of JAX for the GPU, or for the CPU."""
    kernel, many = kernel_of(program, batched, is_linear), any(batched)
    count = next((x.shape[0] for x, own in zip(arrays, batched, strict=True) if own), 1)
    lead = (count,) if many else ()
    shapes = [jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype) for x in program.out_avals]
    results = [jnp.zeros(x.shape, x.dtype) for x in shapes]
    if count == 0 or not kernel.rets:
        return results
    launch = _Launch(kernel, program, batched, is_linear, count, on_host)
    chosen = [shapes[k] for k in kernel.rets]
    if not many:
        given = [arrays[k] for k in kernel.shared_args]
        found = launch("prepare", given, [False] * len(given), chosen, False)
    else:
        given, own = [arrays[k] for k in kernel.args], [batched[k] for k in kernel.args]
        if kernel.shared:
            of_shared = [arrays[k] for k in kernel.shared_args]
            buffer = [jax.ShapeDtypeStruct((kernel.shared,), np.uint8)]
            given += launch("prepare", of_shared, [False] * len(of_shared), buffer, False)[:1]
            own.append(False)
        found = launch("states", given, own, chosen, True)
    for k, x in zip(kernel.rets, found, strict=False):
        results[k] = x
    return results


@dataclass(frozen=True)
class _Launch:
    """Calls of the functions of a kernel."""

    kernel: Kernel
    program: ClosedJaxpr
    batched: tuple[bool, ...]
    is_linear: bool
    count: int
    on_host: bool

    def __call__(
        self, name: str, given: list[Any], own: list[bool], shapes: list[Any], of_states: bool
    ) -> list[Any]:
        """Results of a function; arrays that are a thread's `own` have the batch last in memory."""
        shapes = list(shapes)
        layouts = [_layout(x, mine) for x, mine in zip(given, own, strict=True)]
        of_results = [_layout(x, of_states) for x in shapes]
        chosen = launch_of(self.kernel.ptx, self.count) if of_states else Launch(1)
        block = chosen.block
        grid = -(-self.count // block) if of_states else 1
        work = self.kernel.work if of_states else self.kernel.shared_work
        if work:
            if not self.on_host:
                grid = min(grid, -(-RESIDENT // block))
            shapes.append(jax.ShapeDtypeStruct((grid * block, work), np.uint8))
            of_results.append((0, 1))
        options: dict[str, Any] = {}
        target = CALL
        if self.on_host:
            target = _host_target(self.program, self.batched, self.is_linear, name)
        else:
            options = {
                "name": name,
                "kernel_type": "ptx",
                "kernel_data": limited(self.kernel.ptx, chosen.registers).replace(
                    str(COUNT), str(self.count)
                ),
                **{
                    f"grid_{axis}": np.int32(x) for axis, x in zip("xyz", (grid, 1, 1), strict=True)
                },
                **{
                    f"block_{axis}": np.int32(x)
                    for axis, x in zip("xyz", (block, 1, 1), strict=True)
                },
                "shared_mem_bytes": np.int32(0),
            }
        run = jax.ffi.ffi_call(target, shapes, input_layouts=layouts, output_layouts=of_results)
        return list(run(*given, **options))


def _layout(x: Any, own: bool) -> tuple[int, ...]:
    """Axes of an array from the slowest to the fastest."""
    axes = tuple(range(len(x.shape)))
    return (*axes[1:], 0) if own and axes else axes


# Emulation ----------------------------------------------------------------------------------------
# The same instructions, layouts and launches on the CPU, one state after another.


@lru_cache(maxsize=256)
def _host_target(
    program: ClosedJaxpr, batched: tuple[bool, ...], is_linear: bool, name: str
) -> str:
    """Name by which XLA calls a function of a kernel on the CPU."""
    kernel, text = text_of(program, batched, is_linear)
    own = text.states if name == "states" else text.prepare
    assert own is not None
    source = _host_text(own, text.others, kernel.operations, name == "states")
    found = f"scalarjit_emulated_{hashlib.sha256(source.encode()).hexdigest()[:40]}"
    with _loading:
        if found not in _loaded:
            loaded = Loaded(compiled(source, found, optimized=True), found)
            jax.ffi.register_ffi_target(found, capsule(loaded.handler), platform="cpu")
            _loaded[found] = loaded
    return found


_loaded: dict[str, Loaded] = {}
_loading = threading.Lock()


def _host_text(own: Function, others: list[str], operations: int, of_states: bool) -> str:
    """A module for the CPU with one function of a kernel, and the handler that XLA calls."""
    written = ("ret", "work") if of_states else ("ret", "work", "shared")
    results = [x for x in own.arrays if x.startswith(written)]
    module = Functions()
    sizes = Sizes(len(own.arrays) - len(results), len(results), 0, 0, int(of_states), operations)
    handler = handler_text(sizes, module)
    lists: dict[str, list[str]] = {"args": [], "rets": results}
    lists["args"] = [x for x in own.arrays if x not in results]
    loads = [
        line
        for which, names in lists.items()
        for k, x in enumerate(names)
        for line in (
            f"  %{x}_at = getelementptr ptr, ptr %{which}, i64 {k}",
            f"  %{x} = load ptr, ptr %{x}_at",
        )
    ]
    given = ", ".join(f"ptr %{x}" for x in own.arrays)
    given += ", " if given else ""
    head = "ptr %args, ptr %rets, ptr %shared_none, ptr %scratch_none"
    numbers = "i64 %state, i64 %thread, i64 %count"
    lines = [*others, f"define internal void @one({given}{numbers}) {{", "entry:"]
    lines += [*own.lines, "  ret void", "}"]
    one = [*loads, f"  call void @one({given}i64 0, i64 0, i64 1)"]
    of_state = [f"  call void @one({given}i64 %state, i64 %state, i64 %count)"]
    lines += states_text(head, one, loads, of_state if of_states else [])
    declared = [x for x in module.declared if x not in others]
    return "\n".join([*declared, *lines, handler, *METADATA])
