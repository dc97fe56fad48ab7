"""Cost of chains of revolute joints against their length, in every formulation.

    python benchmarks/chains.py [--out FILE.md]

For each length and formulation: numbers of velocities and constraints, time to build the equations,
size of the lowered program, and of the accelerations and of an implicit step the time to compile
and the median time to run, on one machine in one run. For a short chain also a rollout and its
gradients, and steps of modified Newton in maximal coordinates. Results are Markdown; compile times
are cold, without a compilation cache. Takes about half an hour, most of it in the dense steps of
the longest chains.
"""

import argparse
import math
import os
import platform
import statistics
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import equinox as eqx
import jax
import jax.numpy as jnp

import jaxmbd as mbd
import scalarjit
from jaxmbd.system.constraints import n_constraints

LENGTHS = (3, 10, 50, 200, 1000)
LONGEST = 200  # For all that need dense solves.
LINEAR = ("joint", "maximal")  # Accelerations of these need none,
LONGEST_STEP = 200  # but implicit steps do, except in maximal coordinates.
CHORD_LENGTHS, CHORD_STEPS = (10, 50, 200, 1000), 200
EXPLICIT = {"joint": mbd.JointCoordinates(), "maximal": mbd.MaximalCoordinates()}


def rods(n):
    """Each link's particles are at its two ends."""
    ends = [f"hinge{i}" for i in range(n)]
    return {f"link{i}": (ends[i], ends[i + 1] if i + 1 < n else [1.0, 0, 0]) for i in range(n)}


FORMULATIONS = {
    "joint": lambda n: mbd.JointCoordinates(),
    "joint, from particles": lambda n: mbd.VelocityTransformation(mbd.PointCoordinates("zx")),
    "maximal": lambda n: mbd.MaximalCoordinates(),
    "natural, springs": lambda n: mbd.NaturalCoordinates(1e6),
    "natural, rigid": lambda n: mbd.NaturalCoordinates(rigid=True),
    "particles": lambda n: mbd.PointCoordinates(),
    "particles of a plane": lambda n: mbd.PointCoordinates("zx"),
    "rods of a plane": lambda n: mbd.PointCoordinates("zx", rods(n)),
}


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


def median_time(function, *args, repeats=15, enough=5.0):
    """Median seconds of a compiled function, after one call that is not counted."""
    jax.block_until_ready(function(*args))
    scalarjit.optimize()
    times = []
    while len(times) < repeats and sum(times) < enough:
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def compiled(function, *args):
    """A function compiled for its arguments, size of its program, and seconds to compile it."""
    lowered = eqx.filter_jit(function).lower(*args)
    size = len(lowered.as_text())
    began = time.perf_counter()
    return lowered.compile(), size, time.perf_counter() - began


def chain_row(n, name):
    """One line of the first table."""
    began = time.perf_counter()
    system = mbd.formulate(chain(n), FORMULATIONS[name](n))
    state = mbd.assemble(system, {"hinge0": 0.3})
    built = time.perf_counter() - began

    def evaluate(system, state):
        return mbd.accelerations(system, 0.0, state)[0]

    integrator = mbd.GeneralizedAlpha(0.9)
    if name == "natural, springs":
        integrator = mbd.SimoGonzalez()

    def step(system, state):
        return mbd.rollout(system, state, 1e-3, 1, integrator)

    function, size, took = compiled(evaluate, system, state)
    run = f"{1e3 * median_time(function, system, state):.3g}"
    of_step = "- | -"
    if n <= LONGEST_STEP or name == "maximal":
        function, _, by = compiled(step, system, state)
        of_step = f"{by:.1f} | {1e3 * median_time(function, system, state):.3g}"
    unknowns = f"{system.nv} | {n_constraints(system)}"
    cells = f"{unknowns} | {built:.2f} | {size / 1e3:.0f} | {took:.2f} | {run} | {of_step}"
    return f"| {n} | {name} | {cells} |"


def gradient_row(name, n=2, steps=1000):
    """One line of the second table: a rollout, and its gradients by all velocities."""
    system = mbd.formulate(chain(n), EXPLICIT[name])
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


def chord_row(n, tolerance):
    """One line of the third table: many steps from rest, each with factors of one before."""
    system = mbd.formulate(chain(n), mbd.MaximalCoordinates())
    state = mbd.assemble(system, {"hinge0": 0.3})
    newton = mbd.nonlinear.Newton(tolerance)
    integrator = mbd.GeneralizedAlpha(0.9, newton=newton)

    def end(steps, system, state):
        return mbd.rollout(system, state, 1e-3, steps, integrator).q[-1]

    cells, times = [], []
    for steps in (1, 1 + CHORD_STEPS):
        began = time.perf_counter()
        function = eqx.filter_jit(partial(end, steps)).lower(system, state).compile()
        cells.append(f"{time.perf_counter() - began:.1f}")
        times.append(median_time(function, system, state, repeats=5, enough=20.0))
    each = (times[1] - times[0]) / CHORD_STEPS
    return each, f"| {n} | {tolerance or 'default'} | {cells[1]} | {1e3 * each:.3g} |"


def chord_table():
    """Lines of the third table, and exponents of cost against links, for two tolerances."""
    lines, exponents = [], []
    for tolerance in (None, 1e-8):
        each = {}
        for n in CHORD_LENGTHS:
            each[n], line = chord_row(n, tolerance)
            lines.append(line)
            print(line, flush=True)
        exponents.append(math.log(each[1000] / each[50]) / math.log(1000 / 50))
    return lines, exponents


def main():
    """Run everything and print it, or write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    jax.config.update("jax_enable_x64", True)
    rows = []
    for n in LENGTHS:
        for name in FORMULATIONS if n <= LONGEST else LINEAR:
            rows.append(chain_row(n, name))
            print(rows[-1], flush=True)
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{jax.default_backend()}, Python {platform.python_version()}, jax {jax.__version__}, "
        "float64.",
        "",
        "| links | coordinates | nv | constraints | build [s] | program [kB] "
        "| accelerations: compile [s] | run [ms] | step: compile [s] | run [ms] |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "A rollout of 1000 Runge–Kutta steps of order 5, its gradient in reverse mode, and in "
        "forward mode with respect to all initial velocities:",
        "",
        "| links | coordinates | compile [s] | run [ms] | reverse: compile [s] | run [ms] "
        "| forward: compile [s] | run [ms] |",
        "|---|---|---|---|---|---|---|---|",
        *map(gradient_row, EXPLICIT),
    ]
    rows, exponents = chord_table()
    lines += [
        "",
        f"Maximal coordinates, `GeneralizedAlpha(0.9)` with modified Newton, {CHORD_STEPS} "
        f"steps of 1 ms from rest. Exponents of cost against links, 50 to 1000: {exponents[0]:.2f} "
        f"with the default tolerance, {exponents[1]:.2f} with 1e-8.",
        "",
        "| links | tolerance | compile [s] | a step [ms] |",
        "|---|---|---|---|",
        *rows,
    ]
    text = "\n".join(lines) + "\n"
    if out is None:
        print(text)
    else:
        out.write_text(text)


if __name__ == "__main__":
    main()
