"""First calls in a new process: without caches on disk, and with those that another process filled.

    python -m benchmarks.second_process [--only METHOD ...]

A rollout of 100 steps of a chain of 10 links, and its value and gradient by the initial velocities.
Processor time of the first call, without imports and `formulate`. Prints Markdown.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

MARK = "measured: "


def first_calls(name: str) -> list[float]:
    """Processor times of the first calls of a rollout and of its gradient [s]."""
    import equinox as eqx
    import jax

    import jaxmbd as mbd
    from benchmarks import compile

    joint, maximal = mbd.JointCoordinates(), mbd.MaximalCoordinates()
    compile.MODELS["joint coordinates, GeneralizedAlpha"] = compile.Model(
        joint, mbd.GeneralizedAlpha(), compile.Budget(10.0, 25.0), (10, 10)
    )
    compile.MODELS["maximal coordinates, EnergyMomentum"] = compile.Model(
        maximal, mbd.EnergyMomentum(), compile.Budget(10.0, 25.0), (10, 10)
    )
    functions, args = compile.programs(compile.MODELS[name], 10)
    times = []
    for function in functions.values():
        began = time.process_time()
        jax.block_until_ready(eqx.filter_jit(function)(*args))
        times.append(time.process_time() - began)
    return times


METHODS = (
    "joint coordinates, Tsit5",
    "joint coordinates, GeneralizedAlpha",
    "maximal coordinates, GeneralizedAlpha",
    "maximal coordinates, EnergyMomentum",
)


def in_two_processes(module: str, name: str, jax_cache: bool = True) -> tuple[Any, Any]:
    """Measurements of a worker without files on disk, and of one with files of another worker.

    `jax_cache`: whether JAX's own cache, which is off by default, is one of them. What fills them
    runs first: it writes the bytecode of all modules, too, as an installation does.
    """
    with tempfile.TemporaryDirectory() as folder:
        _, first, second = (
            in_process(module, name, where, jax_cache) for where in (folder, None, folder)
        )
    return first, second


def in_process(module: str, name: str, folder: str | None = None, jax_cache: bool = False) -> Any:
    """Measurements of a worker in a new process, with files in a folder or without any."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "JAX_ENABLE_X64": "1"}
    for own in ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(own, None)
    environment["SCALARJIT_CACHE"] = ""
    if folder is not None:
        environment["SCALARJIT_CACHE"] = f"{folder}/programs"
    if folder is not None and jax_cache:
        environment["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/jax"
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        environment["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{module}", "--worker", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")


def main() -> None:
    """Measure all methods, or one of them as a worker."""
    parser = argparse.ArgumentParser(description="First calls in a new process.")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(MARK + json.dumps(first_calls(given.worker)))
        return
    from benchmarks.machine import machine

    print(f"{machine()}\n\n| | | without caches [s] | with caches [s] | ratio |")
    print("|---|---|---|---|---|")
    for name in given.only:
        without, with_caches = in_two_processes("second_process", name)
        for way, a, b in zip(("rollout", "value and gradient"), without, with_caches, strict=True):
            print(f"| {name} | {way} | {a:.1f} | {b:.1f} | {b / a:.2f} |", flush=True)


if __name__ == "__main__":
    main()
