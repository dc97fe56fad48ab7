"""Reverse mode over many steps within a memory budget: what it takes, and what it costs in time.

    python -m benchmarks.memory [--steps N] [--repeats N]

A chain of three hinges with friction, in joint coordinates, moved by `rollout` in steps of 1 ms of
Tsitouras' method of order 5: the gradient of where it ends, by a mass, an angle and a rate. Every
row is a process of its own, for the sake of its resident memory: by how much it rises in a second
run, as read from /proc on Linux with the C library of GNU. Prints Markdown. The first row takes
6 GB; all together take ten minutes.
"""

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxmbd as mbd
import scalarjit
from benchmarks.machine import machine
from jaxmbd.motion import rollout as checkpoints

DT = 1e-3  # [s]
INPUTS = (1.1, 0.4, 0.8)
plans: list[tuple[tuple[int, ...], int]] = []  # Lengths of blocks, and bytes, as estimated.


class Told(mbd.MemoryBudget):
    """A budget that says what follows from it."""

    def lengths(self, n_steps: int, step: int, start: int, result: int) -> tuple[int, ...]:
        found = super().lengths(n_steps, step, start, result)
        plans.append((found, checkpoints.saved_bytes(found, step, start) + 2 * n_steps * result))
        return found


WAYS = {
    "MemoryBudget(8e9)": Told(8e9),
    "True": True,
    "MemoryBudget(20e6)": Told(20e6),
    "MemoryBudget(10e6)": Told(10e6),
}
HEAD = (
    "| `checkpoint` | blocks | estimate [MB] | temporary [MB] | resident [MB] | forward [s] | "
    "value and gradient [s] | ratio | compile [s] | difference |"
)


def chain() -> mbd.Model:
    """Three rods of 1 kg and 0.5 m, whose friction brings them to rest."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), [0.25, 0, 0])
    tips = [mbd.ground, *(mbd.Frame(f"rod{k}", [0.5, 0, 0]) for k in range(3))]
    hinges = {f"hinge{k}": mbd.joints.Revolute(tips[k], f"rod{k}", [0, 1, 0]) for k in range(3)}
    friction = {f"oil{k}": mbd.forces.ViscousFriction(f"hinge{k}", 0.3) for k in range(3)}
    return mbd.Model(
        {f"rod{k}": rod for k in range(3)}, hinges, {"gravity": mbd.forces.Gravity()} | friction
    )


def loss(way: str, n: int) -> Callable[[Array], Array]:
    """The sum of the last angles, as a function of a mass, an initial angle and an initial rate."""
    model = chain()

    def end(inputs: Float[Array, "3"]) -> Float[Array, ""]:
        share, angle, rate = inputs
        own = eqx.tree_at(lambda m: m.bodies["rod2"].mass, model, replace_fn=lambda m: m * share)
        system = mbd.formulate(own, mbd.JointCoordinates())
        start = mbd.assemble(system, {"hinge0": angle}, {"hinge1": rate})
        states = mbd.rollout(system, start, dt=DT, n_steps=n, checkpoint=WAYS[way])
        return jnp.sum(states.q[-1])

    return end


def resident(what: str) -> int:
    """Bytes that this process has in memory (`VmRSS`), or has had (`VmHWM`)."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return 1024 * int(found.group(1))


def timed(function: Callable[[], Any], repeats: int) -> float:
    """Median seconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(way: str, n: int, repeats: int) -> dict[str, Any]:
    """Everything about one row."""
    plans.clear()
    inputs, end = jnp.array(INPUTS), loss(way, n)
    began = time.perf_counter()
    back = jax.jit(jax.value_and_grad(end)).lower(inputs).compile()
    compiling = time.perf_counter() - began
    forward = jax.jit(end).lower(inputs).compile()
    _, gradient = jax.block_until_ready(back(inputs))  # What runs for the first time takes more.
    scalarjit.optimize()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # Forgets the most that was resident.
    before = resident("VmRSS")
    back_time = timed(lambda: back(inputs), repeats)
    rise = resident("VmHWM") - before
    memory = back.memory_analysis()
    assert memory is not None
    return {
        "plan": plans[0] if plans else (checkpoints.halved(n), None),
        "temporary": memory.temp_size_in_bytes,
        "resident": rise,
        "forward": timed(lambda: forward(inputs), repeats),
        "back": back_time,
        "compile": compiling,
        "gradient": np.asarray(gradient).tolist(),
    }


def in_process(way: str, n: int, repeats: int) -> dict[str, Any]:
    """The same, in a new process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--row", way]
    command += ["--steps", str(n), "--repeats", str(repeats)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def line(way: str, found: dict[str, Any], reference: Float[np.ndarray, "3"]) -> str:
    """One line of the table; the gradient is compared with that of the first one."""
    lengths, estimate = found["plan"]
    off = np.abs(np.array(found["gradient"]) - reference).max() / np.abs(reference).max()
    cells = [
        f"`{way}`",
        " × ".join(map(str, lengths)),
        "" if estimate is None else f"{estimate / 1e6:,.1f}",
        f"{found['temporary'] / 1e6:,.1f}",
        f"{found['resident'] / 1e6:,.1f}",
        f"{found['forward']:.1f}",
        f"{found['back']:.1f}",
        f"{found['back'] / found['forward']:.1f}",
        f"{found['compile']:.0f}",
        f"{off:.0e}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run every row and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=1, help="of each timed run")
    parser.add_argument("--row", choices=list(WAYS), help="this row only, as JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.row is not None:
        print(json.dumps(measure(given.row, given.steps, given.repeats)))
        return
    print(f"{machine()} {given.steps} steps of {1e3 * DT:g} ms.\n")
    print(f"{HEAD}\n{'|---' * HEAD.count(' | ')}|---|")
    reference = None
    for way in WAYS:
        found = in_process(way, given.steps, given.repeats)
        reference = np.array(found["gradient"]) if reference is None else reference
        print(line(way, found, reference), flush=True)


if __name__ == "__main__":
    main()
