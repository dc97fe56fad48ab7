"""Cost of chains of revolute joints against their length, in every formulation.

    python benchmarks/chains.py [--out FILE.md]

For each length and formulation: time to build the equations, size of the lowered program, time to
compile, and median time of one evaluation of the accelerations, on one machine in one run. For a
short chain also a rollout and its gradients. Results are Markdown; compile times are cold, without
a compilation cache.
"""

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import equinox as eqx
import jax
import jax.numpy as jnp

import jaxmbd as mbd

LENGTHS = (10, 50, 500, 1000)
FORMULATIONS = {"joint": mbd.JointCoordinates(), "maximal": mbd.MaximalCoordinates()}
LONGEST_RUN = 500  # Dense multipliers of longer chains in maximal coordinates take seconds.


def chain(n):
    """`n` slender links of 1 kg and 1 m, hanging from the ground one below the other."""
    link = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])
    frames = [mbd.ground, *(mbd.Frame(f"link{i}", [1.0, 0, 0]) for i in range(n - 1))]
    return mbd.Model(
        bodies={f"link{i}": link for i in range(n)},
        joints={
            f"hinge{i}": mbd.joints.Revolute(frame, f"link{i}", [0, 1, 0])
            for i, frame in enumerate(frames)
        },
        forces={"gravity": mbd.forces.Gravity()},
    )


def median_time(function, *args, repeats=15):
    """Median seconds of a compiled function, after one call that is not counted."""
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def accelerations_row(n, name):
    """One line of the first table."""
    began = time.perf_counter()
    system = mbd.formulate(chain(n), FORMULATIONS[name])
    state = mbd.assemble(system)
    built = time.perf_counter() - began

    def evaluate(system, state):
        return mbd.accelerations(system, 0.0, state)[0]

    lowered = eqx.filter_jit(evaluate).lower(system, state)
    size = len(lowered.as_text())
    began = time.perf_counter()
    compiled = lowered.compile()
    took = time.perf_counter() - began
    run = "-"
    if name == "joint" or n <= LONGEST_RUN:
        run = f"{1e3 * median_time(compiled, system, state):.3g}"
    return f"| {n} | {name} | {built:.2f} | {size / 1e3:.0f} | {took:.2f} | {run} |"


def gradient_row(name, n=2, steps=1000):
    """One line of the second table: a rollout, and its gradients by all velocities."""
    system = mbd.formulate(chain(n), FORMULATIONS[name])
    state = mbd.assemble(system, {"hinge0": 0.3})

    def end(v):
        states = mbd.rollout(system, mbd.State(state.q, v), dt=1e-3, n_steps=steps)
        return jnp.sum(states.q[-1] ** 2)

    cells = []
    for function in (end, jax.grad(end), jax.jacfwd(end)):
        began = time.perf_counter()
        compiled = jax.jit(function).lower(state.v).compile()
        took = time.perf_counter() - began
        cells.append(f"{took:.1f} | {1e3 * median_time(compiled, state.v):.3g}")
    return f"| {n} | {name} | {' | '.join(cells)} |"


def main():
    """Run everything and print it, or write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    jax.config.update("jax_enable_x64", True)
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{jax.default_backend()}, Python {platform.python_version()}, jax {jax.__version__}, "
        "float64.",
        "",
        "| links | coordinates | build [s] | program [kB] | compile [s] | accelerations [ms] |",
        "|---|---|---|---|---|---|",
        *(accelerations_row(n, name) for n in LENGTHS for name in FORMULATIONS),
        "",
        "A rollout of 1000 Runge–Kutta steps of order 5, its gradient in reverse mode, and in "
        "forward mode with respect to all initial velocities:",
        "",
        "| links | coordinates | compile [s] | run [ms] | reverse: compile [s] | run [ms] "
        "| forward: compile [s] | run [ms] |",
        "|---|---|---|---|---|---|---|---|",
        *map(gradient_row, FORMULATIONS),
    ]
    text = "\n".join(lines) + "\n"
    if out is None:
        print(text)
    else:
        out.write_text(text)


if __name__ == "__main__":
    main()
