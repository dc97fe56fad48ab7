"""Throughput of identification and of sweeps, whose work is many runs of one small mechanism."""

from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

import jaxmbd as mbd
from benchmarks import coverage, sweep
from benchmarks.peers.protocol import Contender, Entry, Options, Result, Target, compiled, race
from jaxmbd.identification.misfit import Misfit
from jaxmbd.sweeps.chunks import run_chunk
from jaxmbd.sweeps.scenario_program import Program

TITLE = "Identification and sweeps"
ABOUT = (
    "Residuals, and Jacobians, of an identification: a double pendulum with five parameters, "
    "initial states too, two records of 51 instants with an encoder and a gyroscope, Tsitouras' "
    "method. Scenarios of `sweep`, alone and in chunks: 200 steps of 1 ms of Tsitouras' method, "
    "the masses and a length of their own, the whole path kept; the four-bar has four hinges of "
    "space, the arm six. What is counted is one evaluation of the residuals, or one scenario."
)
CHUNKS = (64, 256)
SCENARIO = 0.7  # Milliseconds of a scenario of the four-bar in the smaller chunks.


def identification(options: Options) -> list[Entry]:
    """Residuals, and their Jacobians by all free numbers."""
    misfit = mbd.misfit(
        coverage.pendulum(coverage.FIRST_GUESS),
        coverage.records(0, 0.0),
        coverage.SELECT,
        noise=coverage.NOISE,
        sensors=coverage.SENSORS,
        fit_initial_states=True,
    )

    def residuals(misfit: Misfit, x: Float[Array, "n"]) -> Float[Array, "r"]:
        return misfit.residuals(x)

    def jacobian(misfit: Misfit, x: Float[Array, "n"]) -> Float[Array, "r n"]:
        return jax.jacfwd(misfit.residuals)(x)

    start = misfit.start
    ways = {"residuals": residuals, "Jacobian": jacobian}
    settings = {"integrator": "Tsit5"}
    contenders = [
        compiled(function, misfit, start).contender(name, misfit, start, work=1, settings=settings)
        for name, function in ways.items()
    ]
    case = {"analysis": "identify", "unknowns": start.size}
    return race(TITLE, case, contenders, options.repeats)


def scenarios(name: str, options: Options) -> list[Entry]:
    """Scenarios of one study, one by one and in chunks."""
    function, laws = sweep.STUDIES[name]
    sizes = CHUNKS[: 1 if options.quick else None]
    drawn = mbd.distributions.sample(laws, max(sizes))
    contenders = [contender(function, drawn, size) for size in (1, *sizes)]
    return race(TITLE, {"analysis": f"sweep, {name}"}, contenders, options.repeats)


def contender(function: Any, drawn: dict[str, np.ndarray], size: int) -> Contender:
    """A chunk of so many scenarios, its program made beforehand."""
    rows = {name: x[:size] for name, x in drawn.items()}
    program = Program(function, {name: x[:1] for name, x in drawn.items()}, size)
    settings = {"integrator": "Tsit5", "step [s]": sweep.H, "dtype": "float64"}
    return Contender(f"chunk of {size}", partial(run_chunk, program, rows), size, settings)


def run(options: Options) -> Result:
    """All of them."""
    entries = identification(options)
    targets = []
    for name in sweep.STUDIES:
        found = scenarios(name, options)
        entries += found
        if name == "four-bar":
            median = next(entry.median for entry in found if entry.name == f"chunk of {CHUNKS[0]}")
            what = f"{name}, a scenario in chunks of {CHUNKS[0]}, ms"
            targets.append(Target(what, 1e3 * median, "≤", SCENARIO))
    return Result(TITLE, ABOUT, "evaluation or scenario", entries, targets, {})
