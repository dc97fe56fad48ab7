"""Static equilibrium of a chain of 50 links, and its natural frequencies there, beside Exudyn."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.papers.static_equilibrium import (
    GRAVITY,
    LENGTH,
    MASS,
    STARTS,
    Start,
    angles,
    chain,
    squared_frequencies,
    started,
)
from benchmarks.peers.exudyn_equilibrium import Case, HangingChain, degrees_from
from benchmarks.peers.protocol import (
    Contender,
    Entry,
    Options,
    Program,
    Result,
    Target,
    compiled,
    race,
    ratio,
)
from jaxmbd.system.abstract import AbstractSystem

TITLE = "Static equilibrium of a chain"
ABOUT = (
    "The chain of 50 links of `papers.static_equilibrium`, from its start to rest, each to its own "
    "tolerance, and squares of natural frequencies there. Rows of jaxmbd have the eigenvalues of "
    "the stiffness, which say whether it is stable, and the reactions of all joints. Variants are "
    "chains of other densities in one batch, by `vmap`; the last rows are chains of one shape. "
    "Exudyn: minimal coordinates, Newton's method with a sparse Jacobian by differences, one "
    "thread."
)
FORMULATIONS = {"joint": mbd.JointCoordinates(), "maximal": mbd.MaximalCoordinates()}
METHODS = {"drainage": mbd.Drainage(), "Newton": mbd.StaticNewton(), "auto": "auto"}
WAYS = {"joint": ("drainage", "Newton", "auto"), "maximal": ("Newton", "auto")}
DEFAULT, LINEARIZED = "jaxmbd, joint, auto", "jaxmbd, joint, linearize and modes"
BOTH = "Exudyn, both"  # Equilibrium and eigenvalues, which those of jaxmbd have.
TIMES_EXUDYN, MODES = 2.0, 4.0  # MODES: milliseconds.
AGREE = 1e-7  # [rad] from the vertical; and of the eigenvalues, by their size, 100 times that.


def found_by(method: Any, system: AbstractSystem, state: mbd.State) -> Any:
    """The equilibrium, by a function to compile."""
    return mbd.equilibrium(system, state, method=method, throw=False)


def checked(name: str, turned: Any, eigenvalues: Any, n: int) -> None:
    """**Raises** `ValueError` where the chain does not hang, or swings otherwise."""
    off = float(np.abs(turned).max())
    exact = squared_frequencies(n)[: np.isfinite(eigenvalues).sum()]
    wrong = float(np.abs(np.asarray(eigenvalues)[: len(exact)] / exact - 1.0)[:3].max())
    if off > AGREE or wrong > 100.0 * AGREE:
        raise ValueError(f"{name}: {off:.1e} rad from the vertical, eigenvalues {wrong:.1e} off")


def own(formulation: str, method: str, start: Start) -> Contender:
    """jaxmbd: a search, its result checked."""
    system = mbd.formulate(chain(start.n), FORMULATIONS[formulation])
    state = started(system, start)
    program: Program = compiled(partial(found_by, METHODS[method]), system, state)
    found = program(system, state)
    name = f"jaxmbd, {formulation}, {method}"
    checked(name, angles(system, found.state.q), found.eigenvalues, start.n)
    steps = [int(n) for n in found.steps]
    return program.contender(name, system, state, work=1, settings={"steps": steps})


def modes(start: Start) -> Contender:
    """jaxmbd: linearization at rest, and its modes with shapes and shares of energy."""
    system = mbd.formulate(chain(start.n), mbd.JointCoordinates())
    state = mbd.equilibrium(system, started(system, start)).state

    def run() -> Any:
        return mbd.linearize(system, 0.0, state).modes()

    values = np.abs(run().eigenvalues) ** 2
    checked("jaxmbd, modes", np.zeros(1), values, start.n)
    return Contender(LINEARIZED, run, 1, {"dtype": "float64"})


def peers(start: Start) -> list[Contender]:
    """Exudyn: the search, the eigenvalues, and both."""
    hinges = degrees_from(start.first, start.other, start.n)
    chains = [HangingChain(Case(MASS, LENGTH, GRAVITY, hinges)) for _ in range(3)]
    for one in chains:
        one.solve()
        checked("Exudyn", one.angles, one.eigenvalues(), start.n)
    alone, after, both = chains

    def solve_and_judge() -> None:
        both.solve()
        both.eigenvalues()

    settings = {"steps": alone.n_iterations, "dtype": "float64", "threads": 1}
    return [
        Contender("Exudyn, SolveStatic", alone.solve, 1, settings, prepare=alone.prepare),
        Contender("Exudyn, ComputeODE2Eigenvalues", after.eigenvalues, 1, settings),
        Contender(BOTH, solve_and_judge, 1, settings, prepare=both.prepare),
    ]


def variants(start: Start, count: int) -> Contender:
    """jaxmbd: chains of other densities in one batch; **raises** `ValueError` unless all hang."""
    system = mbd.formulate(chain(start.n), FORMULATIONS["joint"])
    state = started(system, start)
    densities = jnp.linspace(0.5, 2.0, count)

    def find(system: AbstractSystem, state: mbd.State, densities: Any) -> Any:
        def one(density: Any) -> Any:
            of = lambda s: (s.mechanism.rigid.mass, s.mechanism.rigid.inertia)  # noqa: E731
            changed = eqx.tree_at(of, system, tuple(density * x for x in of(system)))
            found = found_by(mbd.StaticNewton(), changed, state)
            return angles(changed, found.state.q), found.eigenvalues

        return jax.vmap(one)(densities)

    name = f"jaxmbd, joint, Newton, each of {count} variants"
    program: Program = compiled(find, system, state, densities)
    turned, eigenvalues = program(system, state, densities)
    for row in (0, count - 1):
        checked(name, turned, eigenvalues[row], start.n)
    return program.contender(name, system, state, densities, work=count, settings={})


def longer(options: Options) -> list[Entry]:
    """Chains of the same shape with more links, in maximal coordinates."""
    entries: list[Entry] = []
    for n in (5, 10) if options.quick else (50, 1000):
        start = STARTS["chain of 50"]._replace(n=n, other=50.0 / n)
        case = {"links": n, "shape": "an arc of 50°"}
        entries += race(TITLE, case, [own("maximal", "Newton", start)], options.repeats)
    return entries


def run(options: Options) -> Result:
    """All of them in one race, and longer chains."""
    start = STARTS["chain of 50"]
    if options.quick:
        start = start._replace(n=5)
    contenders = [own(name, how, start) for name, hows in WAYS.items() for how in hows]
    contenders += [variants(start, options.sized(1000, 8)), modes(start), *peers(start)]
    case = {"links": start.n, "shape": "5°, then 1° each"}
    found = race(TITLE, case, contenders, options.repeats)
    times = ratio(found, BOTH, DEFAULT)
    (linear,) = (entry.median for entry in found if entry.name == LINEARIZED)
    targets = [
        Target(f"{start.n} links, {DEFAULT}, times {BOTH}", times, "≥", TIMES_EXUDYN),
        Target(f"{start.n} links, linearize and modes, ms", 1e3 * linear, "≤", MODES),
    ]
    return Result(TITLE, ABOUT, "equilibrium", found + longer(options), targets, {})
