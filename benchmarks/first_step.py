"""Seconds from the start of a process to its first result: cold, from JAX's cache, from an export.

    python -m benchmarks.first_step [--only CASE ...] [--repeats N]

Rollouts of 100 steps of 1 ms; each way in a process of its own, the cache and the export written by
another one before. With an export a process imports JAX alone. Exports need the package
`flatbuffers`. Ends with an error where motions differ. Prints Markdown.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.
os.environ["JAX_ENABLE_X64"] = "1"  # Before modules make arrays.

import numpy as np

H, STEPS = 1e-3, 100
AGREE = 1e-9  # Of the last coordinates.


class Case(NamedTuple):
    """A mechanism and how it is moved, by name: a process imports only what it needs."""

    mechanism: str
    formulation: str
    integrator: str


class Way(NamedTuple):
    """Conditions of a process: with or without the cache, with or without an exported program."""

    cached: bool
    exported: bool


CASES = {
    f"{case.mechanism}, {case.formulation}, {case.integrator}": case
    for case in (
        Case("10 links", "JointCoordinates", "ExplicitRK"),
        Case("10 links", "MaximalCoordinates", "GeneralizedAlpha"),
        Case("four-bar", "JointCoordinates", "GeneralizedAlpha"),
    )
}
WAYS = {
    "cold": Way(False, False),
    "cache": Way(True, False),
    "export": Way(False, True),
    "export and cache": Way(True, True),
}
WRITE = "write"


def program(case: Case) -> tuple[Callable, tuple[Any, ...]]:
    """The last state of a rollout as a function of arrays, and its arguments."""
    import jaxmbd as mbd
    from benchmarks import chains, loops

    if case.mechanism == "four-bar":
        model = loops.four_bar(0.2, 0.5, 0.45, 0.6)
        start = ({"A": 1.0, "B": -1.0, "D": 1.0}, {"A": 20.0}, 0.0, ["A"])
    else:
        model, start = chains.chain(10), ({"hinge0": 0.3},)
    system = mbd.formulate(model, getattr(mbd, case.formulation)())
    state, integrator = mbd.assemble(system, *start), getattr(mbd, case.integrator)()

    def end(q: Any, v: Any) -> tuple[Any, Any]:
        states = mbd.rollout(system, mbd.State(q, v), H, STEPS, integrator)
        return states.q[-1], states.v[-1]

    return end, (state.q, state.v)


def process(case: Case, way: Way, folder: Path, writes: bool) -> None:
    """Run one process: print seconds since its start, and the final state."""
    import jax
    from jax import export

    if way.cached:
        jax.config.update("jax_compilation_cache_dir", str(folder / "cache"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if way.exported:
        kept = export.deserialize(bytearray((folder / "program").read_bytes()))
        end, args = kept.call, json.loads((folder / "start").read_text())
        args = tuple(jax.numpy.asarray(x) for x in args)
    else:
        end, args = program(case)
    ready = time.time() - float(os.environ["STARTED"])
    q, _ = jax.block_until_ready(jax.jit(end)(*args))
    done = time.time() - float(os.environ["STARTED"])
    print(json.dumps({"ready": ready, "done": done, "q": q.tolist()}))
    if writes:
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
        exported = export.export(jax.jit(end))(*shapes)
        (folder / "program").write_bytes(exported.serialize())
        (folder / "start").write_text(json.dumps([x.tolist() for x in args]))


def started(name: str, way: str, folder: Path) -> dict[str, Any]:
    """Parse the output of a process."""
    command = [sys.executable, "-m", "benchmarks.first_step", "--child", name, way, str(folder)]
    environ = os.environ | {"STARTED": repr(time.time())}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def rows(name: str, repeats: int) -> list[str]:
    """Lines of one case; **raises** `ValueError` where a way ends elsewhere."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        expected = started(name, WRITE, Path(folder))["q"]
        # Not the process that wrote: jaxmbd may set XLA_FLAGS, which the cache tells apart.
        started(name, "export and cache", Path(folder))
        for way in WAYS:
            found = [started(name, way, Path(folder)) for _ in range(repeats)]
            if not all(np.allclose(one["q"], expected, AGREE, AGREE) for one in found):
                raise ValueError(f"{name}, {way}: another motion")
            ready, done = (
                statistics.median(one[key] for one in found) for key in ("ready", "done")
            )
            lines.append(f"| {name} | {way} | {ready:.1f} | {done - ready:.1f} | {done:.1f} |")
    return lines


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        name, way, folder = given.child
        chosen = WAYS.get(way, Way(cached=True, exported=False))
        process(CASES[name], chosen, Path(folder), way == WRITE)
        return
    from benchmarks.machine import machine

    print(f"{machine()} Medians of {given.repeats}.\n")
    print("| | program from | until it is called [s] | first call [s] | in all [s] |")
    print("|---|---|---|---|---|")
    for name in given.only:
        print("\n".join(rows(name, given.repeats)), flush=True)


if __name__ == "__main__":
    main()
