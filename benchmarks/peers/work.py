"""Error of the end of a motion against the time of the run, by several methods and by MuJoCo's."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Array, Float, Int

import jaxmbd as mbd
from benchmarks import loops
from benchmarks.peers import robots
from benchmarks.peers.fits import exponent
from benchmarks.peers.protocol import Contender, Entry, Options, Result, compiled, race
from jaxmbd import Frame
from jaxmbd.integrators.abstract import AbstractIntegrator
from jaxmbd.system.abstract import AbstractSystem

TITLE = "Work and precision"
LINKS, DAMPING = 5, 0.1  # -, [N m s/rad] of a hinge.
AGREE = 1e-6  # Of the reference with MuJoCo's finest RK4.
FLOOR, CEILING = 1e-11, 1e-1  # Errors between which exponents are fitted.
DOPRI8 = diffrax.Dopri8()
AXES = "010", "001"  # Of hinges, in turn.
LINK = """
<body name="rod{i}" pos="{at} 0 0">
  <joint name="hinge{i}" axis="{axis}" damping="{damping}"/>
  <inertial pos="0.5 0 0" mass="1" diaginertia="{inertia}"/>
  {rest}
</body>
"""
WORLD = """
<mujoco>
  <option gravity="0 0 -9.81"><flag contact="disable" constraint="disable"/></option>
  <worldbody>{links}</worldbody>
</mujoco>
"""


class Way(NamedTuple):
    """A method, and the steps of its coarsest run; every further run has twice as many."""

    formulation: Any
    integrator: AbstractIntegrator
    steps: int


class Case(NamedTuple):
    """A mechanism with its start, the end of its motion [s], and how it is moved.

    - `peers`: `{name: (MuJoCo's integrator, steps of the coarsest run)}`, the most accurate one
      last, and `peer` their model.
    - `reference`: steps of the reference solution, by Dopri8 in joint coordinates.
    """

    model: mbd.Model
    start: Callable[[AbstractSystem], mbd.State]
    t1: float
    ways: dict[str, Way]
    reference: int
    peers: dict[str, tuple[mujoco.mjtIntegrator, int]]
    peer: Callable[[], mujoco.MjModel] | None


End = Float[np.ndarray, "2 n"]  # Angles [rad] and rates [rad/s] of the hinges, sorted by name.


def chain() -> mbd.Model:
    """Rods of 1 kg and 1 m on hinges about y and z in turn, with friction."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0, radius=0.05), [0.5, 0, 0])
    carriers = [mbd.ground, *(Frame(f"rod{i}", [1.0, 0, 0]) for i in range(LINKS - 1))]
    hinges = {
        f"hinge{i}": mbd.joints.Revolute(carrier, f"rod{i}", [int(x) for x in AXES[i % 2]])
        for i, carrier in enumerate(carriers)
    }
    friction = {f"oil{i}": mbd.forces.ViscousFriction(f"hinge{i}", DAMPING) for i in range(LINKS)}
    bodies = {f"rod{i}": rod for i in range(LINKS)}
    return mbd.Model(bodies, hinges, {"gravity": mbd.forces.Gravity(), **friction})


def peer_chain() -> mujoco.MjModel:
    """The same for MuJoCo."""
    moments = np.diagonal(mbd.inertia.rod(1.0, 1.0, radius=0.05).symmetric_inertia())
    inertia, links = " ".join(repr(float(x)) for x in moments), ""
    for i in reversed(range(LINKS)):
        at, axis = min(i, 1), " ".join(AXES[i % 2])
        links = LINK.format(i=i, at=at, axis=axis, damping=DAMPING, inertia=inertia, rest=links)
    return mujoco.MjModel.from_xml_string(WORLD.format(links=links))


def four_bar() -> mbd.Model:
    """Four hinges of space, without weight and friction."""
    return loops.four_bar(*loops.LINKAGES["a = 0.2, b = 0.5, c = 0.45, d = 0.6 m"])


def cases() -> dict[str, Case]:
    """An open chain and a closed one."""
    joint, maximal = mbd.JointCoordinates(), mbd.MaximalCoordinates()
    natural = mbd.NaturalCoordinates(rigid=True)
    projected = mbd.Projection()
    euler, fast, rk4 = (
        getattr(mujoco.mjtIntegrator, f"mjINT_{name}") for name in ("EULER", "IMPLICITFAST", "RK4")
    )
    hanging = {"hinge0": 1.0, **{f"hinge{i}": 0.3 for i in range(1, LINKS)}}
    turning = {"A": 1.0, "B": -1.0, "D": 1.0}, {"A": 20.0}
    return {
        f"chain of {LINKS} hinges": Case(
            chain(),
            lambda system: mbd.assemble(system, hanging),
            1.0,
            {
                "Tsit5, joint": Way(joint, mbd.ExplicitRK(), 25),
                "Dopri8, joint": Way(joint, mbd.ExplicitRK(DOPRI8), 10),
                "GeneralizedAlpha(0.9), joint": Way(joint, mbd.GeneralizedAlpha(0.9), 50),
                "EnergyMomentum, maximal": Way(maximal, mbd.EnergyMomentum(), 50),
                "SimoGonzalez, natural": Way(natural, mbd.SimoGonzalez(), 50),
            },
            4000,
            {
                "MuJoCo, Euler": (euler, 200),
                "MuJoCo, implicitfast": (fast, 200),
                "MuJoCo, RK4": (rk4, 50),
            },
            peer_chain,
        ),
        "four-bar": Case(
            four_bar(),
            lambda system: mbd.assemble(system, *turning, hold=["A"]),
            0.5,
            {
                "Tsit5, Projection, joint": Way(joint, mbd.ExplicitRK(None, projected), 50),
                "Dopri8, Projection, joint": Way(joint, mbd.ExplicitRK(DOPRI8, projected), 25),
                "GeneralizedAlpha(0.9), joint": Way(joint, mbd.GeneralizedAlpha(0.9), 100),
                "EnergyMomentum, maximal": Way(maximal, mbd.EnergyMomentum(), 100),
                "SimoGonzalez, natural": Way(natural, mbd.SimoGonzalez(), 100),
            },
            4000,
            {},
            None,
        ),
    }


def moved(
    integrator: AbstractIntegrator,
    system: AbstractSystem,
    state: mbd.State,
    t1: Float[Array, ""],
    n: Int[Array, ""],
) -> mbd.State:
    """The state at `t1` after `n` steps, as many as are asked for at run time."""
    system, h = system.prepared(), t1 / n
    memory = integrator.start(system, jnp.zeros(()), h, state)

    def step(k: Array, carry: tuple[mbd.State, Any]) -> tuple[mbd.State, Any]:
        return integrator.advance(system, k * h, (k + 1) * h, *carry)

    return jax.lax.fori_loop(0, n, step, (state, memory))[0]


class Own(NamedTuple):
    """A method of jaxmbd on one mechanism, compiled once for any number of steps."""

    name: str
    run: Callable[[int], mbd.State]
    end: Callable[[int], End]
    contender: Callable[[int], Contender]


def own(name: str, way: Way, case: Case) -> Own:
    """A method of jaxmbd."""
    system = mbd.formulate(case.model, way.formulation)
    state, t1 = case.start(system), jnp.array(case.t1)

    def steps(system: AbstractSystem, state: mbd.State, t1: Array, n: Array) -> mbd.State:
        return moved(way.integrator, system, state, t1, n)

    program = compiled(steps, system, state, t1, jnp.array(1))

    def run(n: int) -> mbd.State:
        return program(system, state, t1, jnp.array(n))

    def end(n: int) -> End:
        found = mbd.joint_states(system, case.t1, run(n))
        return np.array([[getattr(found[k], x) for k in sorted(found)] for x in ("q", "v")])

    def contender(n: int) -> Contender:
        settings = {"integrator": name, "steps": n}
        return program.contender(name, system, state, t1, jnp.array(n), work=1, settings=settings)

    return Own(name, run, end, contender)


def peer(name: str, integrator: mujoco.mjtIntegrator, case: Case, state: mbd.State) -> Own:
    """One of MuJoCo's methods, from the same start."""
    assert case.peer is not None
    model = case.peer()
    data = mujoco.MjData(model)
    model.opt.integrator = integrator
    names = [model.joint(i).name for i in range(model.njnt)]
    rows = robots.joint_rows(mbd.formulate(case.model, mbd.JointCoordinates()))
    in_q, in_v = robots.columns(rows, names)
    qpos, qvel = np.asarray(state.q)[in_q], np.asarray(state.v)[in_v]
    order = np.argsort(names)

    def run(n: int) -> mujoco.MjData:
        mujoco.mj_resetData(model, data)
        model.opt.timestep = case.t1 / n
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_step(model, data, nstep=n)
        return data

    def end(n: int) -> End:
        found = run(n)
        return np.array([found.qpos[order], found.qvel[order]])

    def contender(n: int) -> Contender:
        settings = {"integrator": name, "steps": n, "dtype": "float64", "threads": 1}
        return Contender(name, lambda: run(n), 1, settings)

    return Own(name, run, end, contender)


def error(found: End, reference: End) -> float:
    """Largest difference of an angle [rad], or of a rate by the largest rate; angles may wrap."""
    angles, rates = found - reference
    turned = np.abs(np.angle(np.exp(1j * angles))).max()
    return float(max(turned, np.abs(rates).max() / np.abs(reference[1]).max()))


def referred(case: Case) -> tuple[End, float]:
    """The reference, and how far from it half as many of its steps end."""
    stabilized = mbd.ExplicitRK(DOPRI8, mbd.Projection())
    fine = own("reference", Way(mbd.JointCoordinates(), stabilized, case.reference), case)
    reference = fine.end(case.reference)
    return reference, error(fine.end(case.reference // 2), reference)


def measured(name: str, case: Case, options: Options) -> tuple[list[Entry], float]:
    """Rows of one mechanism, and what is open in its reference; level by level, all methods."""
    reference, open_ = referred(case)
    movers = [(own(k, way, case), way.steps) for k, way in case.ways.items()]
    if case.peers:
        state = case.start(mbd.formulate(case.model, mbd.JointCoordinates()))
        there = [(peer(k, of, case, state), n) for k, (of, n) in case.peers.items()]
        finest, n = there[-1]
        off = error(finest.end(n * 2**8), reference)
        if off > AGREE:
            raise ValueError(f"{name}: {finest.name} ends {off:.1e} from the reference")
        movers += there
    entries = []
    for level in range(options.sized(6, 2)):
        runs = {mover.name: (mover, n * 2**level) for mover, n in movers}
        contenders = [mover.contender(n) for mover, n in runs.values()]
        for entry in race(TITLE, {"mechanism": name}, contenders, options.repeats):
            mover, n = runs[entry.name]
            off = error(mover.end(n), reference)
            entry.case = entry.case | {"steps": n, "error": float(f"{off:.2g}")}
            entries.append(entry)
    return sorted(entries, key=lambda entry: entry.name), open_


def fitted(entries: list[Entry]) -> dict[str, float]:
    """Exponents p of time = a error⁻ᵖ, of each method on each mechanism."""
    curves: dict[str, dict[float, float]] = {}
    for entry in entries:
        if FLOOR < entry.case["error"] < CEILING:
            name = f"{entry.case['mechanism']}, {entry.name}"
            curves.setdefault(name, {})[1.0 / entry.case["error"]] = entry.median
    return {name: exponent(curve) for name, curve in curves.items()}


def run(options: Options) -> Result:
    """Both mechanisms."""
    entries, sure = [], []
    for name, case in cases().items():
        rows, open_ = measured(name, case, options)
        entries += rows
        sure.append(f"{name} {open_:.0e}")
    about = (
        "Runs to 1 s, of the four-bar to 0.5 s, in steps of one length. The error is the largest "
        "one of an angle [rad], or of a rate by the largest rate, at the end. The reference is "
        "Dopri8 in 4000 steps; 2000 end as far from it as said: " + ", ".join(sure) + ". Exponents "
        "are those of time against 1 / error."
    )
    return Result(TITLE, about, "run", entries, [], fitted(entries))
