"""Growth of the cost of jaxmbd with bodies, steps and scenarios."""

from collections.abc import Callable

import jax

import jaxmbd as mbd
from benchmarks.peers import chains, robots, steps
from benchmarks.peers.fits import exponent
from benchmarks.peers.protocol import Contender, Entry, Options, Result, Target, compiled, race

TITLE = "Growth of cost"
BODIES = (10, 50, 200, 1000)
STEPS = (100, 1000, 10_000)
SCENARIOS = (1, 16, 256, 4096)
LINEAR = 1.15
EXPLICIT = "semi-implicit Euler, joint coordinates"


def by_bodies(n: int) -> Contender:
    """Ten steps of a chain."""
    system = mbd.formulate(chains.chain(n), mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge0": chains.ANGLE})
    program = compiled(lambda system, state: steps.semi_implicit(system, state, 10), system, state)
    return program.contender(EXPLICIT, system, state, work=10, settings=steps.SETTINGS)


def by_steps(n: int) -> Contender:
    """A UR5 for so many steps."""
    robot = robots.load("UR5")
    state = jax.tree.map(lambda x: x[0], robots.random_states(robot, 1))
    found = steps.own(robot, state, n, "float64")
    found.name, found.work = EXPLICIT, 1
    return found


def by_scenarios(n: int) -> Contender:
    """Ten steps of so many UR5."""
    robot = robots.load("UR5")
    found = steps.own(robot, robots.random_states(robot, n), 10, "float64", batched=True)
    found.name, found.work = EXPLICIT, 10
    return found


def run(options: Options) -> Result:
    """Each size on its own; what is counted is the whole step, or run, or step of the batch."""
    ways: dict[str, tuple[Callable[[int], Contender], tuple[int, ...]]] = {
        "links": (by_bodies, BODIES),
        "steps": (by_steps, STEPS),
        "scenarios": (by_scenarios, SCENARIOS),
    }
    entries: list[Entry] = []
    fits = {}
    for what, (make, sizes) in ways.items():
        costs = {}
        for n in sizes[: 2 if options.quick else None]:
            found = race(TITLE, {what: n}, [make(n)], options.repeats)
            entries += found
            costs[n] = found[0].median
        fits[what] = exponent({n: cost for n, cost in costs.items() if what != "links" or n >= 50})
    targets = [
        Target(f"exponent against {what}", p, "≤", LINEAR) for what, p in fits.items() if p == p
    ]
    about = (
        "Semi-implicit Euler in joint coordinates: one step of a chain against its links, a whole "
        "run of a UR5 against its steps, one step of a batch of UR5 against its size."
    )
    return Result(TITLE, about, "step or run", entries, targets, fits)
