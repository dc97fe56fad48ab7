"""Steps of mechanisms with loops, in maximal and joint coordinates, beside Exudyn."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from benchmarks.peers import exudyn_plane
from benchmarks.peers.chains import STEP, Own, advanced, first_memory
from benchmarks.peers.fits import exponent
from benchmarks.peers.mechanisms import Mechanism, four_bar, ladder, platform
from benchmarks.peers.protocol import (
    Contender,
    Entry,
    Options,
    Result,
    Target,
    compiled,
    race,
    ratio,
    seconds,
)
from jaxmbd.joints import PointOnLine
from jaxmbd.nonlinear import Newton
from jaxmbd.system.abstract import AbstractSystem

TITLE = "Mechanisms with loops"
PATIENCE = 0.5  # [s] of one step, beyond which longer ladders are left out.
CALL = 1.0  # [s] of a call that is timed, about.
RHO_INF = 0.9
# Of the way of the last body, in maximal coordinates. Measured 8e-9 to 1.1e-5; with a quarter
# of the step it is a sixteenth, as rotations are stepped in two ways.
AGREE = 2e-5
LENGTHS = (1, 2, 5, 10, 20, 40)
WANTED = 3.0  # Times Exudyn.
STEP_TIME = 15.0  # [µs] of an explicit step with projection of the four-bar.
FROM = 5  # Loops from which exponents are fitted.
MAXIMAL, JOINT = mbd.MaximalCoordinates(), mbd.JointCoordinates()
DEFAULT = mbd.GeneralizedAlpha(RHO_INF)
MODIFIED = mbd.GeneralizedAlpha(RHO_INF, newton=Newton(tolerance=1e-8))
LIKE_PEER = "maximal, modified Newton to 1e-8"
WAYS = {
    "maximal": (MAXIMAL, DEFAULT),
    LIKE_PEER: (MAXIMAL, MODIFIED),
    "joint": (JOINT, DEFAULT),
}
EXPLICIT = {
    "joint, Tsit5, Projection": (JOINT, mbd.ExplicitRK(diffrax.Tsit5(), mbd.Projection())),
}
PEER, DENSE = "Exudyn, sparse", "Exudyn, dense"
ABOUT = (
    "Steps of 1 ms of the generalized-α method at index 3 with rho_inf 0.9, where a row names no "
    "other, from the first accelerations on, which are not counted. Constraints do not repeat one "
    "another. Exudyn: Euler parameters, modified Newton, one thread."
)


def own(name: str, mechanism: Mechanism) -> Own:
    """jaxmbd on a mechanism."""
    formulation, integrator = (WAYS | EXPLICIT)[name]
    system = mbd.formulate(mechanism.model, formulation)
    state = mechanism.start(system)

    def steps(system: AbstractSystem, state: mbd.State, memory: Any, n: Array) -> mbd.State:
        return advanced(integrator, system, state, memory, n)

    memory = eqx.filter_jit(first_memory)(integrator, system, state)
    program = compiled(steps, system, state, memory, jnp.array(1))
    settings = {"integrator": type(integrator).__name__, "step [s]": STEP}
    return Own(f"jaxmbd, {name}", program, system, state, memory, settings)


def handed_over(mechanism: Mechanism, mine: Own, solver: str) -> exudyn_plane.Case:
    """The same mechanism, from the same state, for Exudyn."""
    system, state, model = mine.system, mine.state, mechanism.model
    frames = system.frames(0.0, state.q)
    twists = system.twists(0.0, state.q, state.v)
    names = sorted(model.bodies)
    rows = {"ground": -1} | {name: k for k, name in enumerate(names)}

    def vector(x: Any) -> exudyn_plane.Vector:
        x, y, z = (float(value) for value in x)
        return x, y, z

    def body(name: str) -> exudyn_plane.Body:
        own, R, V = model.bodies[name], np.asarray(frames[name].R), np.asarray(twists[name])
        moments = vector(np.diagonal(own.symmetric_inertia()))
        angle = float(np.arctan2(R[1, 0], R[0, 0]))
        at = vector(frames[name].p)
        return exudyn_plane.Body(float(own.mass), moments, at, angle, vector(R @ V[:3]), V[5])

    def joint(name: str) -> exudyn_plane.Joint:
        own = model.joints[name]
        first, second = (rows[frame.body] for frame in (own.predecessor, own.successor))
        at = vector(frames[f"{name}.successor"].p)
        return exudyn_plane.Joint(first, second, at, isinstance(own, PointOnLine))

    return exudyn_plane.Case(
        tuple(body(name) for name in names),
        tuple(joint(name) for name in sorted(model.joints)),
        vector(model.forces["gravity"].g),
        STEP,
        RHO_INF,
        solver,
    )


def peer(name: str, plane: exudyn_plane.Plane, n_steps: int) -> Contender:
    """Exudyn on a mechanism."""
    settings = {"integrator": f"generalized-α, index 3, rho_inf {RHO_INF}", "step [s]": STEP}
    settings |= {"tolerance": 1e-8, "dtype": "float64", "threads": 1}
    return Contender(name, plane.run, n_steps, settings, prepare=lambda: plane.prepare(n_steps))


def disagreement(mine: Own, plane: exudyn_plane.Plane, n_steps: int) -> float:
    """Distance of the final centres of the last body, relative to their displacements."""
    last = max(mine.system.mechanism.topology.bodies[1:])
    end = mine.system.frames(n_steps * STEP, mine.after(n_steps).q)[last].p
    start = mine.system.frames(0.0, mine.state.q)[last].p
    plane.prepare(n_steps)
    plane.run()
    return float(np.linalg.norm(end - plane.finish()) / np.linalg.norm(end - start))


def raced(
    case: dict[str, Any], mechanism: Mechanism, names: list[str], dense: bool, options: Options
) -> list[Entry]:
    """Rows of one mechanism; **raises** `ValueError` where Exudyn's ends elsewhere."""
    mine = [own(name, mechanism) for name in names]
    slowest = max(seconds(lambda one=one: one.after(2)) / 2.0 for one in mine)
    n_steps = int(np.clip(CALL / slowest, 2, options.sized(100, 10)))
    there = {PEER: exudyn_plane.Plane(handed_over(mechanism, mine[0], "sparse"))}
    if dense:
        there[DENSE] = exudyn_plane.Plane(handed_over(mechanism, mine[0], "dense"))
    for one in mine:
        off = disagreement(one, there[PEER], n_steps)
        if "maximal" in one.name and off > AGREE:
            raise ValueError(f"{case}, {one.name}: ends {off:.1e} of its way from Exudyn's")
    contenders = [one.contender(n_steps) for one in mine]
    contenders += [peer(name, plane, n_steps) for name, plane in there.items()]
    return race(TITLE, case | {"steps a call": n_steps}, contenders, options.repeats)


def by_default(mechanism: str, found: list[Entry], formulation: str) -> Target:
    """The speed of steps with the solver's default in a formulation, beside Exudyn's."""
    times = ratio(found, PEER, f"jaxmbd, {formulation}")
    return Target(f"{mechanism}, {formulation} by default, times {PEER}", times, "≥", WANTED)


def run(options: Options) -> Result:
    """Two small mechanisms, and ladders until a step takes too long."""
    small: dict[str, Callable[[], Mechanism]] = {"four-bar": four_bar, "3-RRR": platform}
    entries, targets = [], []
    for name, make in small.items():
        found = raced({"mechanism": name}, make(), [*WAYS, *EXPLICIT], True, options)
        targets += [by_default(name, found, each) for each in ("joint", "maximal")]
        if name == "four-bar":
            (step,) = (x.median for x in found if x.name == f"jaxmbd, {next(iter(EXPLICIT))}")
            targets.append(
                Target(f"{name}, {next(iter(EXPLICIT))}, µs", 1e6 * step, "≤", STEP_TIME)
            )
        entries += found
    costs: dict[str, dict[int, float]] = {}
    going = list(WAYS)
    for n in LENGTHS[: 2 if options.quick else None]:
        found = raced({"mechanism": "ladder", "loops": n}, ladder(n), going, False, options)
        entries += found
        targets.append(by_default(f"ladder of {n}", found, "maximal"))
        for entry in found:
            costs.setdefault(entry.name, {})[n] = entry.median
        going = [name for name in going if costs[f"jaxmbd, {name}"][n] < PATIENCE]
        if "maximal" not in going:
            break
    fits = {
        f"ladder, {name}": exponent({n: t for n, t in of.items() if n >= FROM})
        for name, of in costs.items()
    }
    return Result(TITLE, ABOUT, "step", entries, targets, fits)
