"""Accelerations of trees by generated code, by XLA and by MuJoCo, on one core.

    python -m benchmarks.accelerations [--batch N] [NAME ...]

Names are those of `benchmarks.peers.robots`, which need the extra `peers`, or `chain`, ten links.
Prints Markdown: the time to trace and compile, without the caches on disk, and the time of one
state in a batch and alone in a loop. `mujoco.rollout` and `mj_step` make whole steps, which are
little more than the accelerations, and take no time to compile. Times are the shortest of several
calls in turn; the process keeps to one core where the system allows it. Operations are those on
scalars that depend on the state.
"""

import argparse
import importlib.util
import os
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Before BLAS loads.
os.environ["SCALARJIT_CACHE"] = ""
if hasattr(os, "sched_setaffinity"):  # Before XLA counts the cores.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
import scalarjit
from benchmarks.chains import chain
from benchmarks.machine import machine
from jaxmbd.system.abstract import AbstractSystem
from scalarjit.rows import as_nodes
from scalarjit.scalars import scalars_of

LINKS, ALONE, REPEATS, SECONDS = 10, 1000, 5, 1.0
PEERS = all(importlib.util.find_spec(name) for name in ("mujoco", "example_robot_data"))


def shortest(run: Callable[[], Any]) -> float:
    """The shortest time of a call, in seconds, of those in about a second."""
    jax.block_until_ready(run())
    scalarjit.optimize()
    times: list[float] = []
    while len(times) < REPEATS or sum(times) < SECONDS:
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return min(times)


def accelerations(system: AbstractSystem, state: mbd.State) -> jax.Array:
    """Accelerations at t = 0."""
    return mbd.accelerations(system, 0.0, state)[0]


def alone(system: AbstractSystem, state: mbd.State) -> jax.Array:
    """Accelerations of one state after another, each of which depends on the one before."""

    def one(v: jax.Array, _: None) -> tuple[jax.Array, None]:
        return v + 1e-9 * accelerations(system, mbd.State(state.q, v)), None

    return jax.lax.scan(one, state.v, None, length=ALONE)[0]


def own(system: AbstractSystem, states: mbd.State, on: bool) -> tuple[list[float], np.ndarray]:
    """Seconds to compile both programs, microseconds of a state in a batch and alone, results."""
    first = jax.tree.map(lambda x: x[0], states)
    batch = jax.jit(jax.vmap(accelerations, in_axes=(None, 0)))
    with scalarjit.enabled(on):
        start = time.perf_counter()
        many = batch.lower(system, states).compile()
        compiling = time.perf_counter() - start
        one = jax.jit(alone).lower(system, first).compile()
    times = (
        shortest(lambda: many(system, states)) / len(states.q),
        (shortest(lambda: one(system, first)) / ALONE),
    )
    return [compiling, *(1e6 * x for x in times)], np.asarray(many(system, states))


def operations(system: AbstractSystem, state: mbd.State) -> int:
    """Operations on scalars of the generated accelerations that depend on the state."""

    def of_arrays(q: jax.Array, v: jax.Array, system: AbstractSystem) -> jax.Array:
        return accelerations(system, mbd.State(q, v))

    found = scalarjit.native_of(of_arrays, state.q, state.v, system)
    assert found is not None
    program = found.program
    batched = (True, True, *(False for _ in program.jaxpr.invars[2:]))
    nodes = [x for result in scalars_of(program, batched).results for x in as_nodes(result).flat]
    seen = set()
    while nodes:
        node = nodes.pop()
        if node.varies and node.index not in seen:
            seen.add(node.index)
            nodes.extend(node.args)
    return len(seen)


def rows(name: str, size: int) -> Iterator[str]:
    """Rows of the table of one mechanism."""
    robot = None
    if name == "chain":
        system = mbd.formulate(chain(LINKS), mbd.JointCoordinates())
        moved, rates = np.random.default_rng(0).uniform(-1.0, 1.0, (2, size, system.nv))
        zero = mbd.assemble(system).q
        retract = jax.jit(jax.vmap(lambda dv: system.retract(zero, dv)))
        states = mbd.State(retract(moved), jnp.asarray(rates))
    else:
        from benchmarks.peers import robots

        robot = robots.load(name)
        system, states = robot.system, robots.random_states(robot, size)
    found = {on: own(system, states, on) for on in (False, True)}
    for on, label in ((False, "XLA"), (True, "generated code")):
        numbers = " | ".join(f"{x:.3g}" for x in found[on][0])
        count = operations(system, jax.tree.map(lambda x: x[0], states)) if on else ""
        yield f"| {name} | {label} | {count} | {numbers} |"
    if robot is not None:
        from benchmarks.peers import steps

        many, one = (
            make(robot, states, n) for make, n in ((steps.in_rollout, 1), (steps.in_mujoco, ALONE))
        )
        times = shortest(many.run) / size, shortest(one.run) / ALONE
        yield f"| {name} | MuJoCo | | | {1e6 * times[0]:.3g} | {1e6 * times[1]:.3g} |"
    error = np.abs(found[True][1] - found[False][1]).max() / np.abs(found[False][1]).max()
    assert error < 1e-9, f"{name}: results differ by {error:.1e}"


def main() -> None:
    """Print the table."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("names", nargs="*", default=["chain", *(["UR5", "Go2"] if PEERS else [])])
    options = parser.parse_args()
    print(f"{machine()} One of the cores, a batch of {options.batch} states.\n")
    print("| | | operations | compile [s] | batch [µs a state] | alone [µs a state] |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in options.names:
        for row in rows(name, options.batch):
            print(row, flush=True)


if __name__ == "__main__":
    main()
