"""One step a call from Python: `Stepper` beside MuJoCo's `mj_step`.

    python -m benchmarks.stepper [--batch N] [NAME ...]

Names are those of `benchmarks.peers.robots` (extra `peers`). A step is Euler's method: one
evaluation of the accelerations here, and MuJoCo's Euler there. Each call sets torques of all
hinges. Times are the shortest of several runs of calls in turn. Prints Markdown.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import diffrax
import equinox as eqx
import jax
import mujoco
import numpy as np

import jaxmbd as mbd
import scalarjit
from benchmarks.machine import machine
from benchmarks.peers import robots

CALLS, ROUNDS = 500, 10


def with_torques(robot: robots.Robot) -> tuple[mbd.Model, list[str]]:
    """The model with a torque on each hinge, and the names of the hinges."""
    model = robots.model_of(robot.name)
    hinges = [name for name, joint in model.joints.items() if joint.sizes() == (1, 1)]
    torques = {f"torque of {name}": mbd.forces.JointTorque(name, 0.0) for name in hinges}
    return eqx.tree_at(lambda m: m.forces, model, {**model.forces, **torques}), hinges


def microseconds(calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    """The shortest time of each call, measured in turn."""
    shortest = dict.fromkeys(calls, np.inf)
    for call in calls.values():
        call()
    scalarjit.optimize()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            shortest[name] = min(shortest[name], (time.perf_counter() - start) / CALLS)
    return {name: 1e6 * x for name, x in shortest.items()}


def rows(name: str, batch: int) -> Iterator[str]:
    """Rows of the table of one robot."""
    robot = robots.load(name)
    model, hinges = with_torques(robot)
    system = mbd.formulate(model, mbd.JointCoordinates())
    states = robots.random_states(robot, batch)
    first = jax.tree.map(lambda x: x[0], states)
    made = {}
    for label, many in (("", None), (f", {batch} motions", batch)):
        began = time.perf_counter()
        stepper = mbd.Stepper(system, diffrax.Euler(), robots.STEP, inputs=hinges, batch=many)
        made[label] = stepper, time.perf_counter() - began
    made[""][0].reset(first)
    made[f", {batch} motions"][0].reset(states)
    peer, data = robot.mujoco, mujoco.MjData(robot.mujoco)
    (data.qpos[:], *_), (data.qvel[:], *_) = robots.mujoco_states(robot, states)
    u = np.zeros(len(hinges))
    us = np.zeros((batch, len(hinges)))
    applied = np.zeros(peer.nv)

    def step_there() -> None:
        data.qfrc_applied[:] = applied
        mujoco.mj_step(peer, data)

    one, many = (stepper for stepper, _ in made.values())

    def step_many() -> None:
        many.step(us)
        _ = many.q

    times = microseconds({"one": lambda: one.step(u), "many": step_many, "there": step_there})
    there = times["there"]
    way = one.reason or "generated code"
    compiling = [took for _, took in made.values()]
    for n, key, took in ((1, "one", compiling[0]), (batch, "many", compiling[1])):
        each = times[key] / n
        yield (
            f"| {name} | {n} | {way if n == 1 else 'XLA'} | {took:.1f} | {times[key]:.2f} | "
            f"{there:.2f} | {each / there:.2f} |"
        )


def main() -> None:
    """Print the table."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("names", nargs="*", default=["UR5", "Go2"])
    options = parser.parse_args()
    print(f"{machine()} MuJoCo {mujoco.__version__}.\n")
    print(
        "| robot | motions | program | compile [s] | call [µs] | `mj_step` [µs] | ratio a motion |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.names:
        for row in rows(name, options.batch):
            print(row, flush=True)


if __name__ == "__main__":
    main()
