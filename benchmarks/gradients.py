"""Gradients through implicit steps: time, agreement and memory.

    python -m benchmarks.gradients [--repeats N]

A chain of three hinges, moved by the generalized-α method in joint and in maximal coordinates: by
`rollout`, without and with checkpoints, and by `simulate` with recursive ones. Prints Markdown;
compile times are cold, without a compilation cache. Takes ten minutes, most of them to compile.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxmbd as mbd
import scalarjit
from benchmarks.machine import machine

DT = 1e-3  # [s]
STEPS = 1000
GROWTH = 4
LENGTHS = (250, 250 * GROWTH, 250 * GROWTH**2)
INPUTS = (1.1, 0.9, 0.5)  # Share of the last link's mass, angle [rad], rate [rad/s].
FORMULATIONS = {"joint": mbd.JointCoordinates(), "maximal": mbd.MaximalCoordinates()}
METHOD = mbd.GeneralizedAlpha(0.8)
Loss = Callable[[Float[Array, "3"]], Float[Array, ""]]


def chain() -> mbd.Model:
    """Three rods of 1 kg and 0.5 m."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), [0.25, 0, 0])
    tips = [mbd.ground, *(mbd.Frame(f"rod{k}", [0.5, 0, 0]) for k in range(3))]
    return mbd.Model(
        {f"rod{k}": rod for k in range(3)},
        {f"hinge{k}": mbd.joints.Revolute(tips[k], f"rod{k}", [0, 1, 0]) for k in range(3)},
        {"gravity": mbd.forces.Gravity()},
        frames={"tip": tips[3]},
    )


def by_rollout(system: Any, start: mbd.State, n: int) -> mbd.State:
    """The end of `n` steps, by `rollout`."""
    states = mbd.rollout(system, start, dt=DT, n_steps=n, integrator=METHOD)
    return jax.tree.map(lambda x: x[-1], states)


def by_simulate(system: Any, start: mbd.State, n: int) -> mbd.State:
    """The end of `n` steps, by `simulate`; only a few states are kept for the reverse pass."""
    solution = mbd.simulate(
        system,
        start,
        t1=n * DT,
        dt=DT,
        integrator=METHOD,
        saveat=diffrax.SaveAt(t1=True),
        adjoint=diffrax.RecursiveCheckpointAdjoint(),
    )
    return jax.tree.map(lambda x: x[-1], solution.states)


def by_blocks(system: Any, start: mbd.State, n: int) -> mbd.State:
    """The end of `n` steps, by `rollout` with checkpoints."""
    states = mbd.rollout(system, start, dt=DT, n_steps=n, integrator=METHOD, checkpoint=True)
    return jax.tree.map(lambda x: x[-1], states)


WAYS = {"rollout": by_rollout, "rollout, checkpoint": by_blocks, "simulate": by_simulate}


def loss(coordinates: str, way: str, n: int) -> Loss:
    """Final position of the tip as a function of a mass, an initial angle and an initial rate."""
    model = chain()

    def end(inputs: Float[Array, "3"]) -> Float[Array, ""]:
        share, angle, rate = inputs
        own = eqx.tree_at(lambda m: m.bodies["rod2"].mass, model, replace_fn=lambda m: m * share)
        system = mbd.formulate(own, FORMULATIONS[coordinates])
        start = mbd.assemble(system, {"hinge0": angle}, {"hinge1": rate})
        tip = system.frames(n * DT, WAYS[way](system, start, n).q)["tip"].p
        return tip[0] + 0.5 * tip[2]

    return end


def compiled(function: Callable) -> tuple[Any, float]:
    """The compiled function, and the seconds to trace and compile it."""
    began = time.perf_counter()
    done = jax.jit(function).lower(jnp.array(INPUTS)).compile()
    return done, time.perf_counter() - began


def interleaved(functions: dict[str, Callable], repeats: int) -> dict[str, float]:
    """Median seconds of each, called in turn, after one call that is not counted."""
    inputs = jnp.array(INPUTS)
    times: dict[str, list[float]] = {name: [] for name in functions}
    for k in range(repeats + 1):
        if k == 1:
            scalarjit.optimize()
        for name, function in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(function(inputs))
            if k > 0:
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(all_of) for name, all_of in times.items()}


def differences(function: Loss, h: float = 1e-3) -> Float[np.ndarray, "3"]:
    """The gradient by central differences of order 4."""
    x = jnp.array(INPUTS)

    def slope(e: Float[Array, "3"]) -> float:
        near, far = function(x + e) - function(x - e), function(x + 2 * e) - function(x - 2 * e)
        return float(8 * near - far) / (12 * h)

    return np.array([slope(e) for e in h * jnp.eye(3)])


def rows(coordinates: str, repeats: int) -> tuple[list[str], list[str]]:
    """Lines of the first and of the second table."""
    losses = {way: loss(coordinates, way, STEPS) for way in WAYS}
    functions, compiling = {}, {}
    for way, end in losses.items():
        for mode, function in (("forward", end), ("reverse", jax.value_and_grad(end))):
            functions[f"{way} {mode}"], compiling[f"{way} {mode}"] = compiled(function)
    times = interleaved(functions, repeats)
    cost = []
    for way in WAYS:
        run, back = (times[f"{way} {mode}"] for mode in ("forward", "reverse"))
        seconds = [f"{compiling[f'{way} {mode}']:.1f}" for mode in ("forward", "reverse")]
        cells = [coordinates, way, seconds[0], f"{1e3 * run:.1f}", seconds[1], f"{1e3 * back:.1f}"]
        cost.append(f"| {' | '.join(cells)} | {back / run:.2f} |")
    inputs = jnp.array(INPUTS)
    plain, blocks, checkpointed = (np.array(functions[f"{way} reverse"](inputs)[1]) for way in WAYS)
    forward = np.array(compiled(jax.jacfwd(losses["rollout"]))[0](inputs))
    slopes = differences(functions["rollout forward"])
    largest = np.abs(plain).max()
    off = [
        np.abs(other - plain).max() / largest for other in (forward, blocks, checkpointed, slopes)
    ]
    gradient = ", ".join(f"{g:.6f}" for g in plain)
    return cost, [f"| {coordinates} | {gradient} | {' | '.join(f'{x:.1e}' for x in off)} |"]


def memory_row(coordinates: str, way: str) -> str:
    """One line of the third table."""
    sizes = []
    for n in LENGTHS:
        program, _ = compiled(jax.value_and_grad(loss(coordinates, way, n)))
        sizes.append(program.memory_analysis().temp_size_in_bytes)
    first, second = np.diff(sizes)
    exponent = np.log(second / first) / np.log(GROWTH)
    cells = " | ".join(f"{size / 1e3:.1f}" for size in sizes)
    return f"| {coordinates} | {way} | {cells} | {exponent:.2f} |"


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="of each timed run")
    repeats = parser.parse_args().repeats
    jax.config.update("jax_enable_x64", True)
    print(f"{machine()}\n")
    cost, agreement = zip(*(rows(name, repeats) for name in FORMULATIONS), strict=True)
    print(f"{STEPS} steps of {1e3 * DT:g} ms. Compile times include tracing.\n")
    print("| coordinates | by | forward: compile [s] | run [ms] | value and gradient: ", end="")
    print("compile [s] | run [ms] | ratio |\n|---|---|---|---|---|---|---|")
    print(*itertools.chain(*cost), sep="\n")
    print("\nLargest difference from the gradient of `rollout` in reverse mode, relative to its")
    print("largest entry; inputs are a mass, an angle and a rate.\n")
    print("| coordinates | gradient | forward mode | checkpoint | simulate | differences |")
    print("|---|---|---|---|---|---|")
    print(*itertools.chain(*agreement), sep="\n")
    print(
        "\nTemporary memory of value and gradient [kB], and p of the curve a + b nᵖ through it.\n"
    )
    lengths = " | ".join(f"{n} steps" for n in LENGTHS)
    print(f"| coordinates | by | {lengths} | p |\n|---|---|---|---|---|---|")
    for coordinates in FORMULATIONS:
        for way in WAYS:
            print(memory_row(coordinates, way), flush=True)


if __name__ == "__main__":
    main()
