"""Kernels that a step launches on an H100, counted in programs compiled without one.

    pip install jax-cuda13-plugin jax-cuda13-pjrt  # in the version of jax
    python -m benchmarks.gpu_launches [--plain] [--only NAME ...]

XLA compiles for a described device, and nothing runs. A launch costs about 2 µs for any batch, so
that the number of launches limits steps of small mechanisms. Loops without a known number of passes
count as one pass. `--plain` compiles programs without generated code. Prints Markdown; needs Python
3.12.
"""

import argparse
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu,cuda")  # Before JAX looks for devices.

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxmbd as mbd
import scalarjit
from benchmarks.chains import chain
from jaxmbd.accelerators import accelerator_programs
from scalarjit.cuda_call import CALL

STATES, LINKS, STEP = 4096, 10, 1e-3

DEVICE = """gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32
shared_memory_per_block: 49152 shared_memory_per_core: 233472 threads_per_core_limit: 2048
core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
clock_rate_ghz: 1.98 device_memory_size: 84978434048 shared_memory_per_block_optin: 232448
cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
registers_per_block_limit: 65536 } platform_name: "CUDA" dnn_version_info { major: 9 }
device_description_str: "NVIDIA H100 80GB HBM3" """

LAUNCHED = frozenset(
    [
        *("fusion", "custom-call", "copy", "copy-start", "dot", "sort", "scatter", "gather"),
        *("dynamic-update-slice", "dynamic-slice", "reduce", "concatenate", "pad", "transpose"),
        *("triangular-solve", "cholesky", "iota", "broadcast", "select"),
    ]
)


class Launches(NamedTuple):
    """Kernels of a compiled program, generated ones and those of libraries, and seconds."""

    total: int
    generated: int
    of_libraries: int
    open_loops: int
    compiling: float


def compiled(fn: Callable[..., Any], *args: Any, plain: bool = False) -> str:
    """Text of `fn(*args)`, compiled for the described device."""
    topology = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=DEVICE, topology="1x1x1"
    )
    sharding = NamedSharding(Mesh(np.array(topology.devices[:1]), ("x",)), PartitionSpec())
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    with accelerator_programs(True) if plain else scalarjit.emulated_gpu():
        traced = jax.jit(fn, in_shardings=sharding).trace(*shapes)
        lowered = traced.lower(lowering_platforms=("cuda",))
    text = lowered.compile().as_text()
    assert text is not None
    return text


def launches(fn: Callable[..., Any], *args: Any, plain: bool = False) -> Launches:
    """Compile `fn(*args)` for the described device, and count."""
    began = time.perf_counter()
    kinds, open_loops = count(compiled(fn, *args, plain=plain))
    libraries = sum(n for kind, n in kinds.items() if kind not in LAUNCHED | {CALL})
    total = kinds.total()
    return Launches(total, kinds[CALL], libraries, open_loops, time.perf_counter() - began)


def count(text: str) -> tuple[Counter[str], int]:
    """Kernels by operation or library call, and the number of loops of unknown length."""
    entry, computations = _computations(text)
    open_loops: set[str] = set()

    @cache
    def within(name: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for line in computations.get(name, []):
            operation = re.search(r"[\s)}\]]([a-z][a-z0-9-]*)\(", line.split(" = ", 1)[1])
            kind = operation.group(1) if operation else ""
            if kind == "while":
                passes = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
                parts = re.findall(r"(?:body|condition)=%?([\w.-]+)", line)
                open_loops.update(() if passes else parts[:1])
                for part in parts:
                    for inner, n in within(part).items():
                        total[inner] += n * (int(passes.group(1)) if passes else 1)
            elif kind in ("conditional", "call"):
                for part in re.findall(r"%([\w.-]+)", line.split("(", 1)[1].split("), ", 1)[-1]):
                    total.update(within(part) if part in computations else Counter())
            elif kind in LAUNCHED:
                target = re.search(r'custom_call_target="([^"]+)"', line)
                total[target.group(1) if target else kind] += 1
        return total

    return within(entry), len(open_loops)


def _computations(text: str) -> tuple[str, dict[str, list[str]]]:
    entry, name, computations = "", "", {}
    for line in text.splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{", line)
        if head:
            name = head.group(2)
            entry = name if head.group(1) else entry
            computations[name] = []
        elif line.startswith(" ") and " = " in line:
            computations[name].append(line.strip())
    return entry, computations


def _joint() -> tuple[Any, mbd.State]:
    return _system(mbd.JointCoordinates())


def _maximal() -> tuple[Any, mbd.State]:
    return _system(mbd.MaximalCoordinates())


def _system(formulation: Any) -> tuple[Any, mbd.State]:
    system = mbd.formulate(chain(LINKS), formulation, dtype=jnp.float32)
    return system, mbd.assemble(system, {})


Program = tuple[Callable[..., Any], mbd.State]


def _moved(make: Callable[[], Any], integrator: Any, gradient: bool = False) -> Program:
    system, state = make()

    def end(state: mbd.State) -> jax.Array:
        return mbd.rollout(system, state, STEP, 1, integrator).q[-1]

    def slope(state: mbd.State) -> mbd.State:
        return jax.grad(lambda state: jnp.sum(end(state)))(state)

    return jax.vmap(slope if gradient else end), _many(state)


def _accelerations() -> Program:
    system, state = _joint()
    return jax.vmap(lambda s: mbd.accelerations(system, 0.0, s)[0]), _many(state)


def _many(state: mbd.State) -> mbd.State:
    return jax.tree.map(lambda x: jnp.stack([x] * STATES), state)


WORK: dict[str, Callable[[], Program]] = {
    "accelerations, joint": _accelerations,
    "step of midpoint, joint": lambda: _moved(_joint, diffrax.Midpoint()),
    "gradient of a step of midpoint": lambda: _moved(_joint, diffrax.Midpoint(), gradient=True),
    "step of GeneralizedAlpha, joint": lambda: _moved(_joint, mbd.GeneralizedAlpha()),
    "step of GeneralizedAlpha, maximal": lambda: _moved(_maximal, mbd.GeneralizedAlpha()),
}


def main() -> None:
    """Compile and print the table."""
    parser = argparse.ArgumentParser(description="Kernels that a step launches on an H100.")
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--plain", action="store_true")
    arguments = parser.parse_args()
    print(f"{STATES} states of a chain of {LINKS} links in float32, JAX {jax.__version__}:\n")
    print("| program | launches | generated | of libraries | open loops | compile [s] |")
    print("|---|---|---|---|---|---|")
    for name in arguments.only:
        fn, states = WORK[name]()
        found = launches(fn, states, plain=arguments.plain)
        cells = [name, found.total, found.generated, found.of_libraries, found.open_loops]
        print(f"| {' | '.join(map(str, cells))} | {found.compiling:.0f} |", flush=True)


if __name__ == "__main__":
    main()
