"""This checkout beside an earlier one: steps, gradients, a fit and a sweep, measured in turn.

    git worktree add FOLDER COMMIT
    python -m benchmarks.before_after FOLDER [--only ROW ...] [--rounds N] [--quick]

Every row runs in a new process of one checkout, then in a new process of the other one, `N` times.
Models, states, integrators, tolerances and numbers of steps are the same in both. Times of runs are
the smallest CPU times of a process, of all its threads, over calls and rounds: unlike wall-clock
times they depend little on other load. Compile times are CPU times to trace and compile, cold: no
cache on disk. Memory is that of XLA's temporaries. Prints Markdown; robots need the extra `peers`.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

H = 1e-3  # [s]
SLOWER, COMPILING = 1.05, 0.7  # Largest ratios that are wanted.
LONG = 0.1  # [s] Least length of a timing.
MARK = "before_after:"


class Times(NamedTuple):
    """CPU and wall-clock seconds to compile and of one unit of work, and temporary bytes."""

    compile_cpu: float
    compile_wall: float
    run_cpu: float
    run_wall: float
    memory: int | None


class Row(NamedTuple):
    """A measurement, given the number of calls.

    - `unit`: what is timed.
    - `gradient`: whether its memory counts.
    """

    measure: Callable[[int], Times]
    unit: str
    gradient: bool = False


def clocks() -> tuple[float, float]:
    """CPU time of this process, and wall-clock time [s]."""
    return time.process_time(), time.perf_counter()


def timed(run: Callable[[], Any], times: int = 1) -> tuple[float, float]:
    """CPU and wall-clock seconds of a call, the means of several."""
    import jax

    cpu, wall = clocks()
    for _ in range(times):
        jax.block_until_ready(run())
    after_cpu, after_wall = clocks()
    return (after_cpu - cpu) / times, (after_wall - wall) / times


def optimized() -> None:
    """Optimize what has run once; earlier versions of the package do so at once."""
    with suppress(ImportError, AttributeError):
        import scalarjit

        scalarjit.optimize()


def least(run: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Smallest times of several calls after two that do not count.

    Short calls are timed together: CPU times of less than some clock ticks are wrong.
    """
    timed(run)
    optimized()
    times = math.ceil(LONG / timed(run)[1])
    cpu, wall = zip(*(timed(run, times) for _ in range(calls)), strict=True)
    return min(cpu), min(wall)


def program(function: Callable, args: tuple[Any, ...], units: int, calls: int) -> Times:
    """Compile a function, and time its calls."""
    import equinox as eqx

    cpu, wall = clocks()
    compiled = eqx.filter_jit(function).lower(*args).compile()
    after_cpu, after_wall = clocks()
    analysis = getattr(compiled, "compiled", compiled).memory_analysis()
    run = least(lambda: compiled(*args), calls)
    return Times(
        after_cpu - cpu,
        after_wall - wall,
        *(x / units for x in run),
        None if analysis is None else analysis.temp_size_in_bytes,
    )


def robot(name: str, batch: int, steps: int) -> Callable[[int], Times]:
    """Steps of semi-implicit Euler of one robot, or of a batch."""

    def measure(calls: int) -> Times:
        import jaxmbd as mbd
        from benchmarks.peers import robots
        from benchmarks.peers import steps as peers

        one = robots.load(name)
        states = robots.random_states(one, max(batch, 1))
        function = peers.semi_implicit_batch if batch else peers.semi_implicit

        def roll(system: Any, state: mbd.State) -> mbd.State:
            return function(system, state, steps)

        start = states if batch else mbd.State(states.q[0], states.v[0])
        return program(roll, (one.system, start), steps * max(batch, 1), calls)

    return measure


def moved(mechanism: str, formulation: str) -> tuple[Any, Any]:
    """A system and its start: `"four-bar"`, or the number of links of a chain."""
    import jaxmbd as mbd
    from benchmarks import chains, loops

    if mechanism == "four-bar":
        model = loops.four_bar(0.2, 0.5, 0.45, 0.6)
        start: tuple[Any, ...] = ({"A": 1.0, "B": -1.0, "D": 1.0}, {"A": 20.0}, 0.0, ["A"])
    else:
        model, start = chains.chain(int(mechanism)), ({"hinge0": 0.3},)
    system = mbd.formulate(model, getattr(mbd, formulation)())
    return system, mbd.assemble(system, *start)


def motion(
    mechanism: str, formulation: str, integrator: str, steps: int, gradient: bool = False
) -> Callable[[int], Times]:
    """Steps of a mechanism; or the gradient of their end by the initial velocities."""

    def measure(calls: int) -> Times:
        import jax
        import jax.numpy as jnp

        import jaxmbd as mbd

        system, state = moved(mechanism, formulation)
        method = getattr(mbd, integrator)()

        def roll(system: Any, state: mbd.State) -> mbd.State:
            return mbd.rollout(system, state, H, steps, method)

        def slope(system: Any, state: mbd.State) -> Any:
            def loss(v: Any) -> Any:
                return jnp.sum(roll(system, mbd.State(state.q, v)).q[-1] ** 2)

            return jax.value_and_grad(loss)(state.v)

        return program(slope if gradient else roll, (system, state), steps, calls)

    return measure


def fit(calls: int, records: int = 1) -> Times:
    """Residuals and their Jacobian by four parameters of a double pendulum, as `identify` does.

    **Arguments:** `records`: number of equal records of 500 steps.
    """
    import importlib
    import importlib.util

    import jax.numpy as jnp
    import numpy as np

    import jaxmbd as mbd
    from benchmarks.chains import chain

    package, place = "jaxmbd.identification", ("identify", "_linearize")
    if importlib.util.find_spec(f"{package}.minimum") is not None:  # Not in earlier commits.
        place = "minimum", "linearize"
    module = importlib.import_module(f"{package}.{place[0]}")
    original, found = getattr(module, place[1]), []

    class Stop(Exception):
        pass

    def record(*args: Any) -> Any:
        found.append(args)
        raise Stop

    system = mbd.formulate(chain(2), mbd.JointCoordinates())
    start = mbd.assemble(system, {"hinge0": 0.3})
    states = mbd.rollout(system, start, 2 * H, 500, mbd.ExplicitRK())
    ts = 2 * H * np.arange(501)
    q = np.concatenate([np.asarray(start.q)[None], np.asarray(states.q)])[: len(ts)]
    readings = {f"hinge{k}": q[:, k] for k in range(2)}
    experiment = mbd.Experiment(ts, readings, guess={f"hinge{k}": float(q[0, k]) for k in range(2)})
    bodies = list(chain(2).bodies)
    chosen = {f"{what} of {k}": f"bodies.{k}.{what}" for k in bodies for what in ("mass",)}
    entries = mbd.transforms.Entries(0)
    chosen |= {f"centre of {k}": mbd.Parameter(f"bodies.{k}.com", entries) for k in bodies}
    setattr(module, place[1], record)
    try:
        mbd.identify(chain(2), records * [experiment], chosen, substeps=1)
    except Stop:
        setattr(module, place[1], original)

    def run() -> Any:
        return [jnp.asarray(x) for x in original(*found[0])]

    return Times(*timed(run), *least(run, calls), None)


def sweep(calls: int) -> Times:
    """Scenarios of a six-axis arm in chunks of 64, after the first chunk."""
    import jaxmbd as mbd
    from benchmarks.sweep import STUDIES
    from jaxmbd import distributions

    function, laws = STUDIES["arm"]
    drawn = distributions.sample(laws, 64 * 5)
    first = {name: x[:64] for name, x in drawn.items()}

    def run(drawn: Any) -> tuple[float, float]:
        return timed(lambda: mbd.sweep(function, drawn, chunk=64, progress=False) and None)

    compiling = run(first)
    once, more = ([run(x) for _ in range(calls)] for x in (first, drawn))
    cpu, wall = (min(t[i] for t in more) - min(t[i] for t in once) for i in (0, 1))
    return Times(*compiling, cpu / 256, wall / 256, None)


ALPHA = "GeneralizedAlpha"
JOINT, MAXIMAL = "JointCoordinates", "MaximalCoordinates"
ROWS = {
    "UR5, semi-implicit Euler": Row(robot("UR5", 0, 1000), "step"),
    "Go2, semi-implicit Euler": Row(robot("Go2", 0, 1000), "step"),
    "UR5, batch of 1024": Row(robot("UR5", 1024, 20), "step of a state"),
    "Go2, batch of 1024": Row(robot("Go2", 1024, 20), "step of a state"),
    "10 links, joint, generalized-α": Row(motion("10", JOINT, ALPHA, 100), "step"),
    "10 links, maximal, generalized-α": Row(motion("10", MAXIMAL, ALPHA, 100), "step"),
    "50 links, joint, generalized-α": Row(motion("50", JOINT, ALPHA, 20), "step"),
    "50 links, maximal, generalized-α": Row(motion("50", MAXIMAL, ALPHA, 20), "step"),
    "four-bar, joint, generalized-α": Row(motion("four-bar", JOINT, ALPHA, 100), "step"),
    "four-bar, maximal, generalized-α": Row(motion("four-bar", MAXIMAL, ALPHA, 100), "step"),
    "10 links, joint, Tsit5": Row(motion("10", JOINT, "ExplicitRK", 100), "step"),
    "gradient, 10 links, joint, Tsit5": Row(
        motion("10", JOINT, "ExplicitRK", 100, True), "step", True
    ),
    "gradient, 10 links, joint, generalized-α": Row(
        motion("10", JOINT, ALPHA, 100, True), "step", True
    ),
    "gradient, 10 links, maximal, generalized-α": Row(
        motion("10", MAXIMAL, ALPHA, 100, True), "step", True
    ),
    "gradient, four-bar, maximal, generalized-α": Row(
        motion("four-bar", MAXIMAL, ALPHA, 100, True), "step", True
    ),
    "residuals and Jacobian of a fit": Row(fit, "evaluation"),
    "sweep of an arm": Row(sweep, "scenario"),
}


def process(folder: Path, name: str, calls: int) -> Times:
    """The times of one row, in a new process of the checkout in a folder."""
    environment = os.environ | {
        "OPENBLAS_NUM_THREADS": "1",
        "JAX_ENABLE_X64": "1",
        "SCALARJIT_CACHE": "",
        "JAXMBD_NATIVE_CACHE": "",  # Of earlier checkouts.
        "PYTHONPATH": str(folder),
    }
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    # Without -P, the folder of this file would precede that of the checkout.
    command = [sys.executable, "-P", "-W", "ignore", __file__, "--worker", name]
    command += ["--calls", str(calls)]
    return times_of(command, f"{name} in {folder}", cwd=folder, env=environment)


def times_of(command: list[str], what: str, **options: Any) -> Times:
    """The times that a worker prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return Times(*json.loads(line.removeprefix(MARK)))
    raise RuntimeError(f"{what} failed:\n{done.stderr[-2000:]}")


def best(times: list[Times]) -> Times:
    """The smallest of each number."""
    memory = [x.memory for x in times if x.memory is not None]
    smallest = (min(x) for x in zip(*(t[:-1] for t in times), strict=True))
    return Times(*smallest, min(memory) if memory else None)


def line(name: str, row: Row, before: Times, after: Times) -> str:
    """A row of the table."""
    speed, wall = after.run_cpu / before.run_cpu, after.run_wall / before.run_wall
    compiling = after.compile_cpu / before.compile_cpu
    marks = "slower " * (speed > SLOWER) + "compile " * (compiling > COMPILING)
    memory = ""
    if row.gradient and before.memory and after.memory is not None:
        memory = f"{before.memory / 1e3:.0f} / {after.memory / 1e3:.0f}"
        marks += "memory" * (after.memory > before.memory)
    return (
        f"| {name} | {row.unit} | {1e6 * before.run_cpu:.3g} | {1e6 * after.run_cpu:.3g} "
        f"| {speed:.2f} | {wall:.2f} | {before.compile_cpu:.1f} | {after.compile_cpu:.1f} "
        f"| {compiling:.2f} | {memory} | {marks.strip() or '-'} |"
    )


def main() -> None:
    """Measure all rows, or one of them as a worker."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="the earlier checkout")
    parser.add_argument("--only", nargs="+", default=list(ROWS), help="parts of names of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of one call")
    parser.add_argument("--worker", choices=ROWS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(MARK + json.dumps(ROWS[arguments.worker].measure(arguments.calls)))
        return
    if arguments.folder is None:
        parser.error("the folder of the earlier checkout is missing")
    rounds, calls = (1, 1) if arguments.quick else (arguments.rounds, arguments.calls)
    folders = arguments.folder.resolve(), Path(__file__).resolve().parents[1]
    print(
        "| row | unit | before [µs CPU] | after [µs CPU] | ratio | ratio of wall-clock times "
        "| compile before [s CPU] | after | ratio | temporaries of gradients before / after [kB] "
        "| misses |\n|---|---|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name, row in ROWS.items():
        if not any(part in name for part in arguments.only):
            continue
        times: tuple[list[Times], list[Times]] = ([], [])
        for k in range(rounds):
            turns = list(zip(times, folders, strict=True))
            for own, folder in turns[::-1] if k % 2 else turns:
                own.append(process(folder, name, calls))
        print(line(name, row, *map(best, times)), flush=True)


if __name__ == "__main__":
    main()
