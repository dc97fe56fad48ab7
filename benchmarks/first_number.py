"""First calls of the analyses of a mechanism, in a new process and in one with its caches.

    python -m benchmarks.first_number [--only NAME ...]

Processor times by analysis, of one process without files on disk, and of another one that finds
what jaxmbd keeps by default; JAX's own cache stays off. Prints Markdown, with targets of the sums.

Then, each in a process without files: the first gradient of 100 steps of generalized-α of 10 links
in maximal coordinates, as in `benchmarks.compile`; the memory that stays for each new structure,
the mean over chains of 3 to 8 links that are simulated one after another and forgotten; seconds to
run notebooks.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.protocol import Target
from benchmarks.peers.report import table, target_row
from benchmarks.second_process import MARK, in_process, in_two_processes

IMPORT = "import"
# Sums that are wanted [s of processor time], in the first and in the second process.
WANTED = {"pendulum": (8.0, 4.0), "four-bar": (15.0, 5.0), "Panda": (15.0, 5.0)}


def _mechanism(name: str) -> tuple[Any, dict[str, float], str | None]:
    """A model, where it starts, and the path of the mass of the gradient, if there is one."""
    import jaxmbd as mbd

    def rod(mass: float, length: float) -> Any:
        return mbd.inertia.shifted(mbd.inertia.rod(mass, length), [0.5 * length, 0.0, 0.0])

    def hinge(parent: Any, child: Any) -> Any:
        return mbd.joints.Revolute(parent, child, axis=[0.0, 1.0, 0.0])

    if name == "Panda":
        import example_robot_data

        folder = Path(example_robot_data.__file__).parents[4]
        return mbd.io.from_urdf(next(folder.glob("**/panda.urdf"))), {}, None
    loads: dict[str, Any] = {"gravity": mbd.forces.Gravity()}
    if name == "pendulum":
        loads["bearing"] = mbd.forces.ViscousFriction("hinge", 0.1)
        bodies, joints = {"rod": rod(1.0, 1.0)}, {"hinge": hinge(mbd.ground, "rod")}
        return mbd.Model(bodies, joints, loads), {"hinge": 0.3}, "bodies.rod.mass"
    loads["bearing"] = mbd.forces.ViscousFriction("d", 0.1)
    bodies = {"crank": rod(1.0, 0.2), "coupler": rod(2.0, 0.5), "rocker": rod(1.5, 0.45)}
    end = mbd.Frame("rocker", [0.45, 0.0, 0.0])
    joints = {
        "a": hinge(mbd.ground, "crank"),
        "b": hinge(mbd.Frame("crank", [0.2, 0.0, 0.0]), "coupler"),
        "c": hinge(mbd.Frame("coupler", [0.5, 0.0, 0.0]), end),
        "d": hinge(mbd.Frame("ground", [0.6, 0.0, 0.0]), "rocker"),
    }
    return mbd.Model(bodies, joints, loads), {"a": -1.0, "b": 0.5, "d": -2.0}, "bodies.crank.mass"


def first_calls(name: str) -> dict[str, float]:
    """Processor times of the first calls, by analysis [s]."""
    times: dict[str, float] = {}

    def lap(what: str, fn: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = fn()
        jax.block_until_ready(found.states if hasattr(found, "states") else found)
        times[what] = time.process_time() - began
        return found

    began = time.process_time()
    import jax

    import jaxmbd as mbd

    times[IMPORT] = time.process_time() - began
    model, start, mass = _mechanism(name)
    system = lap("formulate", lambda: mbd.formulate(model))
    state = lap("assemble", lambda: mbd.assemble(system, start))
    motion = lap("simulate", lambda: mbd.simulate(model, start, t1=2.0))
    lap("reactions", lambda: motion.reactions[next(iter(model.joints))])
    lap("energy", lambda: motion.energy.total)
    method = mbd.GeneralizedAlpha(0.9)
    lap(
        "simulate, generalized-α",
        lambda: mbd.simulate(system, state, t1=0.5, dt=1e-3, integrator=method),
    )
    rest = lap("equilibrium", lambda: mbd.equilibrium(system, state))
    linear = lap("linearize", lambda: mbd.linearize(system, 0.0, rest.state))
    lap("modes", lambda: linear.modes())
    if mass is not None:

        def end(value: Any) -> Any:
            own = model.replace({mass: value})
            return mbd.rollout(own, start, dt=0.01, n_steps=200).q[-1, 0]

        lap("gradient of a rollout", lambda: jax.value_and_grad(end)(1.0))
    return times


def first_gradient() -> float:
    """Processor time of the first gradient of a motion in maximal coordinates [s]."""
    import equinox as eqx
    import jax

    from benchmarks import compile

    model = compile.MODELS["maximal coordinates, GeneralizedAlpha"]
    functions, args = compile.programs(model, 10)
    began = time.process_time()
    jax.block_until_ready(eqx.filter_jit(functions[compile.GRADIENT])(*args))
    return time.process_time() - began


def memory_of_structures() -> float:
    """Resident memory that stays for each new structure [MB]."""
    import ctypes

    import jaxmbd as mbd
    from benchmarks.chains import chain

    def resident() -> float:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # Of the C library of GNU.
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return 1e-6 * pages * os.sysconf("SC_PAGE_SIZE")

    def used(n: int) -> float:
        mbd.simulate(chain(n), {"hinge0": 0.3}, t1=0.1).states.q.block_until_ready()
        return resident()

    first, *later = [used(n) for n in (2, 3, 4, 5, 6, 7, 8)]
    return (later[-1] - first) / len(later)


def notebook(name: str) -> float:
    """Seconds to run a notebook."""
    import nbformat

    from docs import execute_notebooks

    read = nbformat.read(execute_notebooks.NOTEBOOKS / f"{name}.ipynb", 4)
    began = time.perf_counter()
    execute_notebooks.execute(read)
    return time.perf_counter() - began


# What else is measured, and the most that is wanted.
FURTHER: dict[str, tuple[Callable[[], float], float]] = {
    "first gradient, 10 links, maximal [s]": (first_gradient, 8.0),
    "memory of a new structure [MB]": (memory_of_structures, 5.0),
    "notebook first_steps [s]": (partial(notebook, "first_steps"), 10.0),
    "notebook four_bar [s]": (partial(notebook, "four_bar"), 15.0),
}


def main() -> None:
    """Measure all, or one of them as a worker."""
    parser = argparse.ArgumentParser(description="First calls of analyses in a new process.")
    names = [*WANTED, *FURTHER]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        measure = partial(first_calls, given.worker)
        if given.worker in FURTHER:
            measure, _ = FURTHER[given.worker]
        print(MARK + json.dumps(measure()))
        return
    from benchmarks.machine import machine

    print(machine())
    for name in (x for x in given.only if x in WANTED):
        first, second = in_two_processes("first_number", name, jax_cache=False)
        print(f"\n| {name} | first process [s] | second process [s] |\n|---|---|---|")
        for what, found in first.items():
            print(f"| {what} | {found:.1f} | {second[what]:.1f} |")
        sums, wanted = [sum(x.values()) for x in (first, second)], WANTED[name]
        print(f"| **sum** | {sums[0]:.1f} | {sums[1]:.1f} |")
        met = ["met" if x <= y else "not met" for x, y in zip(sums, wanted, strict=True)]
        print(f"| wanted | {wanted[0]:.0f}: {met[0]} | {wanted[1]:.0f}: {met[1]} |", flush=True)
    further = {x: in_process("first_number", x) for x in given.only if x in FURTHER}
    if further:
        rows = [target_row(Target(x, y, "≤", FURTHER[x][1])) for x, y in further.items()]
        print("\n".join(["", *table(["", "found", "wanted", "met"], rows)]))


if __name__ == "__main__":
    main()
