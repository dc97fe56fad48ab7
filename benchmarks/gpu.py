"""A drill for one GPU: are generated kernels right, how fast are they, and what does a study take.

    python -m benchmarks.gpu --out FOLDER [--reference FILE.npz] [--minutes 7.5]
    python -m benchmarks.gpu --out FOLDER --rehearse

needs jaxmbd, JAX for CUDA, and the file of `python -m benchmarks.gpu_cases`, no network. Results
go to FOLDER/gpu.json after each measurement, and to FOLDER/gpu.svg at the end. A measurement that
fails is written down with its reason, and the drill goes on. What does not end in time is left out.
`--rehearse` does the same on the CPU with few states, kernels emulated state after state.

- `motions`: ns for a step of a state, in batches of several sizes, by kernels and by plain JAX; the
  error against the CPU in double precision; and by how many units in the last place the first and
  the last 64 states differ from those that the same instructions gave on a CPU.
- `limits`: bandwidth of memory, and fused products and sums a second.
- `studies`: a Monte Carlo study of 1e6 scenarios, an identification with 1,000 starts.
"""

import argparse
import json
import os
import subprocess
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # Before JAX looks for devices.

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
import scalarjit
from benchmarks import gpu_cases
from benchmarks.gpu_cases import STATES, STEPS, TYPES, Case, H
from scalarjit import cuda_call
from scalarjit.cuda_tuning import CANDIDATES, Launch, on_trial

REFERENCE = Path(__file__).parent / "gpu_reference.npz"
REPEATS, ENOUGH = 5, 0.5  # Runs that are timed, and seconds after which there is no other one.
WORKERS = 4  # Threads that compile.
STUDIES = 90.0  # Seconds that are left for the studies and the figure.


@dataclass(frozen=True)
class Job:
    """A measurement: a function of a mechanism, on a number of states."""

    case: str
    what: str
    kind: str
    way: str
    count: int
    launch: Launch | None = None


@dataclass(frozen=True)
class Scale:
    """Sizes of the drill."""

    batches: tuple[int, ...] = (1, 4096, 65_536, 1_048_576)
    double: tuple[int, ...] = (4096, 262_144)
    gradient: tuple[int, ...] = (4096, 262_144)
    plain: tuple[int, ...] = (4096, 65_536)
    plain_cases: tuple[str, ...] = ("double pendulum", "UR5", "four-bar")
    launches: tuple[Launch, ...] = CANDIDATES
    array: int = 1 << 28
    scenarios: int = 1_000_000
    chunk: int = 131_072
    starts: int = 1000


SMALL = (1, 100), (70,), (70,), (70,), ("double pendulum",)
REHEARSAL = Scale(*SMALL, CANDIDATES[:2], 1 << 18, 200, 100, 3)


def jobs_of(cases: dict[str, Case], scale: Scale) -> list[Job]:
    """All measurements, those first without which the others mean little."""
    names = list(cases)
    middle = scale.batches[min(1, len(scale.batches) - 1)]
    jobs = [Job(x, "motion", "float32", "kernel", middle) for x in names]
    jobs += [Job(x, "motion", "float64", "kernel", scale.double[0]) for x in names]
    jobs += [Job(x, "gradient", "float32", "kernel", scale.gradient[0]) for x in names]
    largest = [n for n in scale.batches[::-1] if n != middle]
    jobs += [Job(x, "motion", "float32", "kernel", n) for n in largest[:2] for x in names]
    jobs += [Job(x, "motion", "float64", "kernel", n) for n in scale.double[1:] for x in names]
    jobs += [Job(x, "gradient", "float32", "kernel", n) for n in scale.gradient[1:] for x in names]
    jobs += [Job(x, "gradient", "float64", "kernel", scale.gradient[0]) for x in names]
    plain = [x for x in scale.plain_cases if x in names]
    jobs += [Job(x, "motion", "float32", "plain", n) for n in scale.plain for x in plain]
    first = "UR5" if "UR5" in names else names[0]
    jobs += [
        Job(first, "motion", "float32", "kernel", scale.batches[-1], launch)
        for launch in scale.launches
    ]
    jobs += [Job(x, "motion", "float32", "kernel", n) for n in largest[2:] for x in names]
    jobs += [Job(x, "gradient", "float32", "plain", scale.plain[0]) for x in plain]
    return jobs


@dataclass
class Drill:
    """The run: its results so far, and the time that is left."""

    out: Path
    minutes: float
    rehearses: bool
    began: float
    found: dict[str, Any]

    def left(self) -> float:
        return 60 * self.minutes - (time.perf_counter() - self.began)

    def note(self, part: str, row: dict[str, Any]) -> None:
        """Write down a result at once: a drill may be cut short."""
        row = {key: float(f"{x:.4g}") if isinstance(x, float) else x for key, x in row.items()}
        self.found.setdefault(part, []).append(row)
        self.found["seconds"] = round(time.perf_counter() - self.began, 1)
        (self.out / "gpu.json").write_text(json.dumps(self.found, indent=1) + "\n")
        print(part, json.dumps(row), flush=True)

    def tried(self, part: str, name: str, fn: Callable[[], dict[str, Any]]) -> None:
        """Note what a function returns, or why it failed."""
        try:
            self.note(part, {"name": name} | fn())
        except Exception as error:
            text = traceback.format_exc(limit=-4)
            self.note("failures", {"name": name, "error": repr(error)[:300], "where": text[-900:]})

    def kernels(self) -> AbstractContextManager:
        return scalarjit.emulated_gpu() if self.rehearses else nullcontext()


# Motions and gradients ----------------------------------------------------------------------------


def prepared(drill: Drill, case: Case, job: Job) -> tuple[Any, float]:
    """A compiled function, and the seconds that it took."""
    began = time.perf_counter()
    way = "emulated" if drill.rehearses and job.way == "kernel" else job.way
    run = gpu_cases.compiled(case, TYPES[job.kind], job.what, way, job.count)
    return run, time.perf_counter() - began


def timed(run: Callable[..., Any], *args: Any) -> tuple[Any, float, float]:
    """Results, seconds of the first call, and the least seconds of the others."""
    began = time.perf_counter()
    found = jax.block_until_ready(run(*args))
    first, times = time.perf_counter() - began, []
    while len(times) < REPEATS and sum(times) < ENOUGH:
        began = time.perf_counter()
        jax.block_until_ready(run(*args))
        times.append(time.perf_counter() - began)
    return found, first, min(times)


def measured(drill: Drill, case: Case, job: Job, run: Any, compiling: float) -> dict[str, Any]:
    """Time and errors of a compiled function."""
    text = run.as_text() or ""
    calls = text.count(cuda_call.CALL) + text.count("scalarjit_emulated_")
    found, first, least = timed(run, case.states(TYPES[job.kind], job.count))
    row: dict[str, Any] = asdict(job) | {"kernels": calls}
    row |= {"compile [s]": compiling, "first call [s]": first, "call [ms]": 1e3 * least}
    row["ns a step"] = 1e9 * least / (job.count * STEPS)
    for name, own in (("cpu", "float64"), ("emulated", job.kind)):
        wanted = [case.results.get(f"{job.what}/{own}/{name}/{key}") for key in "qv"]
        if any(x is None for x in wanted):
            continue
        ends = [(np.asarray(found.q), np.asarray(found.v))]
        worst = [difference(x, y, name == "emulated") for x, y in zip(ends[0], wanted, strict=True)]
        row["error" if name == "cpu" else "last places"] = max(worst)
    return row


def difference(found: np.ndarray, wanted: Any, in_places: bool) -> float:
    """Largest difference of the first and last states, relative to all, or in last places."""
    n = len(found)
    rows = np.unique(np.concatenate([np.arange(min(n, STATES)), np.arange(max(0, n - STATES), n)]))
    x, y = found[rows], wanted[rows % STATES]
    if not np.all(np.isfinite(x)):
        return float("inf")
    if in_places:
        unit = np.spacing(np.maximum(np.abs(y), np.finfo(y.dtype).tiny))
        return float(np.max(np.abs(x - y) / unit, initial=0.0))
    return float(np.max(np.abs(x.astype(float) - y), initial=0.0) / np.max(np.abs(y)))


def motions(drill: Drill, cases: dict[str, Case], jobs: list[Job]) -> None:
    """All measurements; threads compile what comes next."""
    pool = ThreadPoolExecutor(WORKERS)
    waiting: list[tuple[Job, Future]] = []
    rest = [job for job in jobs if job.launch is None]
    while (rest or waiting) and drill.left() > STUDIES:
        while rest and len(waiting) < 2 * WORKERS:
            job = rest.pop(0)
            waiting.append((job, pool.submit(prepared, drill, cases[job.case], job)))
        job, future = waiting.pop(0)

        def one(job: Job = job, future: Future = future) -> dict[str, Any]:
            run, compiling = future.result(timeout=max(1.0, drill.left() - STUDIES))
            return measured(drill, cases[job.case], job, run, compiling)

        drill.tried("motions", job.case, one)
    pool.shutdown(wait=False, cancel_futures=True)
    for job in (job for job in jobs if job.launch is not None):
        if drill.left() > STUDIES:
            drill.tried("launches", job.case, lambda job=job: of_launch(drill, cases, job))
    for job in [*(x for x, _ in waiting), *rest]:
        drill.found.setdefault("left out", []).append(asdict(job))


def of_launch(drill: Drill, cases: dict[str, Case], job: Job) -> dict[str, Any]:
    """The same with other numbers of threads in a block and of registers."""
    assert job.launch is not None
    with on_trial(job.launch):
        run, compiling = prepared(drill, cases[job.case], job)
    return measured(drill, cases[job.case], job, run, compiling)


# Limits of the card -------------------------------------------------------------------------------


def bandwidth(drill: Drill, scale: Scale) -> dict[str, Any]:
    """Bytes read and written a second by an array plus one."""
    x = jnp.zeros(scale.array, jnp.float32)
    least = timed(jax.jit(lambda x: x + 1.0), x)[2]
    return {"GB/s": 2 * x.nbytes / least / 1e9}


def products(drill: Drill, scale: Scale, kind: str) -> dict[str, Any]:
    """Fused products and sums a second, in a kernel without memory: 16 chains in each thread."""
    count, rounds, chains = scale.scenarios, 1000, 16

    def many(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, rounds, lambda _, y: y * x[0] + x[1], jnp.tile(x[2:], chains))

    given = jnp.tile(jnp.asarray([0.5, 0.25, 1.0], TYPES[kind]), (count, 1))
    with drill.kernels():
        fn = jax.vmap(scalarjit.jit(many))
        run = jax.jit(fn).lower(given).compile()
    found, first, least = timed(run, given)
    wrong = float(jnp.max(jnp.abs(found - 0.5)))
    rate = count * rounds * chains / least
    return {"kind": kind, "1e9 products and sums/s": rate / 1e9, "first [s]": first, "error": wrong}


# Studies ------------------------------------------------------------------------------------------


def pendulum() -> mbd.Model:
    """A double pendulum with friction in its bearings."""
    model = gpu_cases.chain(2)
    bearings = {
        f"bearing{k}": mbd.forces.ViscousFriction(f"hinge{k}", 0.2 * (k + 1)) for k in range(2)
    }
    return eqx.tree_at(lambda m: m.forces, model, dict(model.forces) | bearings)


def monte_carlo(drill: Drill, scale: Scale) -> dict[str, Any]:
    """Ends of motions of 1 s with random masses and friction, by `sweep`."""
    model = pendulum()

    def scenario(drawn: dict[str, jax.Array]) -> dict[str, jax.Array]:
        own = eqx.tree_at(
            lambda m: [m.bodies["link1"].mass, *(f.coefficient for f in _bearings(m))],
            model,
            [drawn["mass"], *drawn["friction"]],
        )
        system = mbd.formulate(own, mbd.JointCoordinates())
        start = mbd.State(jnp.array([1.0, 0.5]), jnp.zeros(2), jnp.zeros(0))
        return {"end": mbd.rollout(system, start, H, 1000, mbd.SemiImplicitEuler()).q[-1]}

    laws = {
        "mass": mbd.distributions.Normal(1.0, 0.05),
        "friction": mbd.distributions.LogNormal(np.array([0.2, 0.4]), 0.2),
    }
    drawn = mbd.distributions.sample(laws, scale.scenarios)
    began = time.perf_counter()
    with drill.kernels():
        found = mbd.sweep(scenario, drawn, chunk=scale.chunk, progress=False)
    took = time.perf_counter() - began
    ends = np.asarray(found["end"])
    own = {"scenarios": scale.scenarios, "steps": 1000, "seconds": took}
    own |= {"failed": int(found.attrs["n_failed"]), "mean": [float(x) for x in ends.mean(axis=0)]}
    return own | {"deviation": [float(x) for x in ends.std(axis=0)]}


def _bearings(model: mbd.Model) -> list[Any]:
    return [model.forces["bearing0"], model.forces["bearing1"]]


def identification(drill: Drill, scale: Scale) -> dict[str, Any]:
    """Friction of both bearings from a motion of 1 s, from many starting points."""
    model = pendulum()
    ts = np.linspace(0.0, 1.0, 101)
    guess = {"hinge0": 1.0, "hinge1": 0.5}
    motion = mbd.simulate(model, guess, t1=1.0, dt=1e-3, integrator=diffrax.Midpoint(), saveat=ts)
    angles = {f"hinge{k}": np.asarray(motion.states.q[:, k]) for k in range(2)}
    record = mbd.Experiment(ts, angles, guess=guess)
    first = [jnp.asarray(0.5), jnp.asarray(0.1)]
    wrong = eqx.tree_at(lambda m: [f.coefficient for f in _bearings(m)], model, first)
    chosen = [f"forces.bearing{k}.coefficient" for k in range(2)]
    began = time.perf_counter()
    with drill.kernels():
        fit = mbd.identify(wrong, record, chosen, starts=scale.starts, progress=False)
    took = time.perf_counter() - began
    values = [float(f.coefficient) for f in _bearings(fit.model)]
    return {"starts": scale.starts, "seconds": took, "found": values, "wanted": [0.2, 0.4]}


# Report -------------------------------------------------------------------------------------------


def card() -> str:
    """Name, memory and driver of the card."""
    query = "--query-gpu=name,memory.total,driver_version,clocks.max.sm"
    try:
        given = ["nvidia-smi", query, "--format=csv,noheader"]
        return subprocess.run(given, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "no nvidia-smi"


def figure(drill: Drill) -> dict[str, Any]:
    """ns a step against the number of states, for each mechanism."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    rows = [x for x in drill.found.get("motions", []) if "ns a step" in x]
    fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for ax, what in zip(axes, ("motion", "gradient"), strict=True):
        for name in dict.fromkeys(x["case"] for x in rows):
            for way, style in (("kernel", "o-"), ("plain", "x--")):
                own = [x for x in rows if (x["case"], x["what"], x["way"]) == (name, what, way)]
                own = sorted((x["count"], x["ns a step"]) for x in own if x["kind"] == "float32")
                if own:
                    ax.plot(*zip(*own, strict=True), style, label=f"{name}, {way}")
        ax.set(xscale="log", yscale="log", xlabel="states", title=f"{what}, float32")
    axes[0].set_ylabel("time of a step of a state [ns]")
    axes[0].legend(fontsize=6)
    fig.savefig(drill.out / "gpu.svg")
    return {"file": "gpu.svg", "measurements": len(rows)}


def run(drill: Drill, cases: dict[str, Case], scale: Scale) -> None:
    """The whole drill."""
    drill.found["environment"] = mbd.report_environment().splitlines()
    drill.found["card"] = "rehearsal on a CPU" if drill.rehearses else card()
    drill.tried("limits", "bandwidth", lambda: bandwidth(drill, scale))
    for kind in TYPES:
        drill.tried("limits", "products", lambda kind=kind: products(drill, scale, kind))
    motions(drill, cases, jobs_of(cases, scale))
    drill.tried("figures", "motions", lambda: figure(drill))
    studies = {"Monte Carlo": monte_carlo, "identification": identification}
    for name, study in studies.items():
        small = replace(scale, scenarios=scale.scenarios // 10, starts=max(2, scale.starts // 10))
        enough = drill.left() > STUDIES / 2
        own = scale if enough else small
        drill.tried("studies", name, lambda study=study, own=own: study(drill, own))


def main() -> None:
    """Run the drill, or rehearse it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--only", nargs="+", choices=gpu_cases.MODELS)
    arguments = parser.parse_args()
    began = time.perf_counter()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_enable_x64", True)
    if arguments.rehearse:
        arguments.reference = arguments.out / "reference.npz"
        gpu_cases.write(arguments.reference, arguments.only or ["double pendulum"])
    elif scalarjit.platform() != "cuda":
        parser.exit(2, "no NVIDIA GPU: add --rehearse to run the same on the CPU\n")
    cases = gpu_cases.read(arguments.reference)
    if arguments.only:
        cases = {name: cases[name] for name in arguments.only}
    drill = Drill(arguments.out, arguments.minutes, arguments.rehearse, began, {})
    run(drill, cases, REHEARSAL if arguments.rehearse else Scale())


if __name__ == "__main__":
    main()
