"""Sweeps: scenarios a second by the size of a chunk, with and without files and failures.

    python -m benchmarks.sweep [--scenarios N] [--chunks 64 256 1024]

A four-bar of four hinges of space, and an arm of six hinges with gravity, 200 steps of 1 ms with
masses and geometry of their own in every scenario. Their path is kept. Prints Markdown.
"""

import argparse
import functools
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxmbd as mbd
from benchmarks import loops
from benchmarks.machine import machine
from jaxmbd import Frame, distributions, inertia, joints

STEPS, H = 200, 1e-3
ALONE = 100  # Scenarios that are computed one by one, to compare.
RARE = 100  # One scenario in so many fails.
Scenario = dict[str, Float[Array, "..."]]


def four_bar(scenario: Scenario) -> dict[str, Array]:
    """Angles of crank and rocker; lengths of coupler and rocker, and masses differ."""
    model = loops.four_bar(*loops.LINKAGES["a = 0.2, b = 0.5, c = 0.45, d = 0.6 m"])
    pin = jnp.stack([scenario["coupler"], *2 * [jnp.zeros(())]])
    model = eqx.tree_at(
        lambda m: (m.joints["C"].predecessor.p, *(m.bodies[k].mass for k in model.bodies)),
        model,
        (pin, *scenario["masses"]),
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    start = mbd.assemble(system, {"A": 1.0, "B": -1.0, "D": 1.0}, {"A": 20.0}, hold=["A"])
    return {"path": mbd.rollout(system, start, dt=H, n_steps=STEPS).q}


def arm(scenario: Scenario) -> dict[str, Array]:
    """Path of the flange; masses and one length differ."""
    axes = [(0, 0, 1), (0, 1, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1)]
    link = inertia.shifted(inertia.rod(1.0, 0.3, radius=0.03), [0.15, 0, 0])
    ends = [mbd.ground, *(Frame(f"link {k}", [0.3, 0, 0]) for k in range(6))]
    model = mbd.Model(
        {f"link {k}": link for k in range(6)},
        {f"hinge {k}": joints.Revolute(ends[k], f"link {k}", axes[k]) for k in range(6)},
        {"gravity": mbd.forces.Gravity()},
        frames={"flange": ends[6]},
    )
    model = eqx.tree_at(
        lambda m: (m.frames["flange"].p, *(m.bodies[f"link {k}"].mass for k in range(6))),
        model,
        (jnp.stack([scenario["tool"], *2 * [jnp.zeros(())]]), *scenario["masses"]),
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    start = mbd.assemble(system, {f"hinge {k}": 0.3 * (-1) ** k for k in range(6)})
    states = mbd.rollout(system, start, dt=H, n_steps=STEPS)
    frames = jax.vmap(lambda q: system.frames(0.0, q)["flange"].p)
    return {"path": frames(states.q)}


STUDIES = {
    "four-bar": (
        four_bar,
        {
            "coupler": distributions.Normal(0.5, 0.005),
            "masses": distributions.LogNormal(np.ones(3), 0.1),
        },
    ),
    "arm": (
        arm,
        {
            "tool": distributions.Normal(0.3, 0.005),
            "masses": distributions.LogNormal(np.ones(6), 0.1),
        },
    ),
}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Result of a function, and the seconds that it takes."""
    began = time.perf_counter()
    found = function()
    return found, time.perf_counter() - began


def row(fn: Callable, drawn: dict[str, np.ndarray], chunk: int, **options: Any) -> str:
    """Seconds to the first chunk and to the end, scenarios a second after the first chunk."""
    n = len(drawn["masses"])
    first = {name: x[:chunk] for name, x in drawn.items()}
    _, before = timed(lambda: mbd.sweep(fn, first, chunk=chunk, progress=False))
    found, total = timed(lambda: mbd.sweep(fn, drawn, chunk=chunk, progress=False, **options))
    rate = (n - chunk) / (total - before)
    return f"{before:.1f} | {total:.1f} | {rate:.0f} | {found.attrs['n_failed']}"


def alone(fn: Callable, drawn: dict[str, np.ndarray]) -> float:
    """Scenarios a second of a loop over a compiled function."""
    compiled = eqx.filter_jit(fn)
    jax.block_until_ready(compiled({name: jnp.asarray(x[0]) for name, x in drawn.items()}))

    def run() -> None:
        for i in range(ALONE):
            jax.block_until_ready(compiled({n: jnp.asarray(x[i]) for n, x in drawn.items()}))

    return ALONE / timed(run)[1]


def main() -> None:
    """Run both studies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenarios", type=int, default=10_000)
    parser.add_argument("--chunks", type=int, nargs="+", default=[64, 256, 1024])
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{machine()} {arguments.scenarios} scenarios of {STEPS} steps.\n")
    print("| | chunk | first chunk [s] | all [s] | scenarios a second after it | failed |")
    print("|---|---|---|---|---|---|")
    for name, (fn, laws) in STUDIES.items():
        drawn = distributions.sample(laws, arguments.scenarios)
        print(f"| {name}, one by one | | | | {alone(fn, drawn):.0f} | |", flush=True)
        for chunk in arguments.chunks:
            print(f"| {name} | {chunk} | {row(fn, drawn, chunk)} |", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            kept = row(fn, drawn, 256, folder=folder)
            print(f"| {name}, into files | 256 | {kept} |", flush=True)
            again = timed(functools.partial(mbd.sweep, fn, drawn, folder=folder, progress=False))[1]
            print(f"| {name}, from files | 256 | | {again:.1f} | | |", flush=True)
    fn, laws = STUDIES["four-bar"]
    drawn = distributions.sample(laws, arguments.scenarios)
    drawn["coupler"][RARE - 1 :: RARE] = 3.0
    print(f"| four-bar, some cannot close | 256 | {row(fn, drawn, 256)} |")


if __name__ == "__main__":
    main()
