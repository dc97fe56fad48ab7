"""The platform of Attia's paper on equivalent particles, in every formulation.

    python -m benchmarks.papers.equivalent_particles [--out docs/static]

Three legs of two rods each hold a platform in a plane, all joints being revolute. It starts from
rest, under its weight and a force of 10 N along x at its centre. The same steps move it in
particles, in joint coordinates by way of these, and in spatial formulations; compared are the
motion and the reactions at the joints that close the loops: the paper cuts legs 2 and 3 at the
base, the spanning tree here, of shortest paths, at the platform. Prints Markdown and draws the
paper's fig. 4 with the reactions. Takes some minutes.

The paper gives masses and inertias. Lengths, base, posture and direction of gravity are chosen
here: rods of 2 m, whose inertia about their centres then is the paper's 1/3 kg m², an equilateral
platform of 2 m a side, which as a plate of even thickness has the paper's 1 kg m², an equilateral
base of 6 m a side with the same centre, legs bent to the same side, gravity along -y.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.
os.environ.setdefault("JAX_ENABLE_X64", "1")  # Before modules make arrays.

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

import jaxmbd as mbd
from benchmarks.machine import machine
from jaxmbd import Frame
from jaxmbd.forces import AppliedForce, Gravity
from jaxmbd.joints import PointOnLine, Revolute
from jaxmbd.system import constraints
from jaxmbd.system.abstract import AbstractSystem

END, STEP = 4.0, 0.001  # [s]
EVERY = 10  # Steps from one state that is looked at to the next.
LENGTH = 2.0  # Of a rod [m].
CORNERS = np.array([[-1.0, -(3.0**-0.5)], [1.0, -(3.0**-0.5)], [0.0, 2.0 * 3.0**-0.5]])
BASE = 3.0 * CORNERS
CUT = ("ankle2", "ankle3")
RODS = {
    f"{rod}{leg}": ends
    for leg in (1, 2, 3)
    for rod, ends in (
        ("lower", (f"hip{leg}", f"knee{leg}")),
        ("upper", (f"knee{leg}", f"ankle{leg}")),
    )
}


def platform(spatial: bool = False) -> tuple[mbd.Model, dict[str, Any]]:
    """The mechanism and the joint coordinates of its start.

    With `spatial`, nothing is held twice in space, and the platform is thick enough to be made of
    spatial particles; the motion is the same.
    """
    across = 0.55 if spatial else 0.5
    bodies = {"platform": mbd.RigidBody(3.0, [across, across, 1.0])}
    joints, start = {}, {}
    for leg, (base, corner) in enumerate(zip(BASE, CORNERS, strict=True), 1):
        lower, upper = f"lower{leg}", f"upper{leg}"
        bodies |= dict.fromkeys((lower, upper), mbd.inertia.rod(1.0, LENGTH))
        # Revolute joints that close the loops would hold the plane again, which open legs hold.
        ankle = PointOnLine if spatial and f"ankle{leg}" in CUT else Revolute
        tail, head = [-LENGTH / 2, 0, 0], [LENGTH / 2, 0, 0]
        joints |= {
            f"hip{leg}": Revolute(Frame("ground", [*base, 0]), Frame(lower, tail)),
            f"knee{leg}": Revolute(Frame(lower, head), Frame(upper, tail)),
            f"ankle{leg}": ankle(Frame(upper, head), Frame("platform", [*corner, 0])),
        }
        # An isosceles triangle on the line from the base to the corner, its knee to the left.
        line = corner - base
        along = np.arctan2(line[1], line[0])
        bend = np.arccos(0.5 * np.linalg.norm(line) / LENGTH)
        start[f"hip{leg}"] = along + bend
        start[f"knee{leg}"] = -2.0 * bend
        if leg == 1:
            start["ankle1"] = bend - along  # So that the platform is not turned.
    forces = {"weight": Gravity([0, -9.81, 0]), "push": AppliedForce("platform", [10.0, 0, 0])}
    return mbd.Model(bodies, joints, forces), start


class Case(NamedTuple):
    """A row of the table."""

    spatial: bool
    formulation: Any
    integrator: Any = None


RIGID_STEPS, SPRING_STEPS = (
    f"NaturalCoordinates({given}), SimoGonzalez" for given in ("rigid=True", "1e8")
)
CASES = {
    'PointCoordinates("xy"), rods of two': Case(False, mbd.PointCoordinates("xy", RODS)),
    'PointCoordinates("xy")': Case(False, mbd.PointCoordinates("xy")),
    'VelocityTransformation(PointCoordinates("xy"))': Case(
        False, mbd.VelocityTransformation(mbd.PointCoordinates("xy"))
    ),
    "MaximalCoordinates()": Case(True, mbd.MaximalCoordinates()),
    "JointCoordinates()": Case(True, mbd.JointCoordinates()),
    "NaturalCoordinates(rigid=True)": Case(True, mbd.NaturalCoordinates(rigid=True)),
    "PointCoordinates()": Case(True, mbd.PointCoordinates()),
    RIGID_STEPS: Case(True, mbd.NaturalCoordinates(rigid=True), mbd.SimoGonzalez()),
    SPRING_STEPS: Case(True, mbd.NaturalCoordinates(1e8), mbd.SimoGonzalez()),
}


class Motion(NamedTuple):
    """Recorded quantities of a motion, every `EVERY` steps."""

    place: Float[np.ndarray, "n 3"]  # x, y [m] and angle [rad] of the platform.
    held: dict[str, Float[np.ndarray, "n 2"]]  # Forces on the platform along its axes [N].
    coordinates: int
    constraints: int
    took: float  # [s] per step, without compilation.


@eqx.filter_jit
def look(system: AbstractSystem, states: mbd.State) -> tuple:
    """Place of the platform, and forces at the cut joints, of every state."""

    def one(state: mbd.State) -> tuple:
        X = system.frames(0.0, state.q)["platform"]
        place = jnp.array([X.p[0], X.p[1], jnp.arctan2(X.R[1, 0], X.R[0, 0])])
        found = mbd.reactions(system, 0.0, state)
        return place, {name: found[name][:2] for name in CUT}

    return jax.lax.map(one, states)


def follow(case: Case, h: float) -> Motion:
    """The motion with steps of length `h`."""
    model, guess = platform(case.spatial)
    system = mbd.formulate(model, case.formulation)
    first, n = mbd.assemble(system, guess), round(END / h)

    def run() -> mbd.State:
        return jax.block_until_ready(mbd.rollout(system, first, h, n, case.integrator))

    states = run()
    began = time.perf_counter()
    states = run()
    took = (time.perf_counter() - began) / n
    every = round(EVERY * STEP / h)
    states = jax.tree.map(
        lambda x, rest: jnp.concatenate([x[None], rest[every - 1 :: every]]), first, states
    )
    place, held = jax.tree.map(np.asarray, look(system, states))
    place = np.concatenate([place[:, :2], np.unwrap(place[:, 2:], axis=0)], axis=1)
    return Motion(place, held, system.nq, constraints.n_constraints(system), took)


def apart(a: Motion, b: Motion) -> tuple[float, float]:
    """Largest difference of x and y [m], and of the forces [N]."""
    moved = np.abs(a.place - b.place)[:, :2].max()
    return float(moved), float(max(np.abs(a.held[name] - b.held[name]).max() for name in CUT))


def row(name: str, motion: Motion, first: Motion) -> str:
    """A line of the table."""
    cells = [name, f"{motion.coordinates}", f"{motion.constraints}"]
    cells += ["-", "-"] if motion is first else [f"{x:.1e}" for x in apart(motion, first)]
    return f"| {' | '.join([*cells, f'{1e6 * motion.took:.0f}'])} |"


def draw(motion: Motion) -> Figure:
    """The trajectory, and over time the motion and the forces at the cut joints."""
    ts = np.linspace(0.0, END, len(motion.place))
    figure = Figure(figsize=(8.0, 7.0), layout="constrained")
    path, moved, turned, held = figure.subplot_mosaic(
        [["path", "moved"], ["path", "turned"], ["held", "held"]], height_ratios=[1, 1, 1.2]
    ).values()
    x, y, angle = motion.place.T
    path.plot(x, y, color="tab:blue", lw=1.0)
    for t in range(round(END) + 1):
        k = int(np.argmin(np.abs(ts - t)))
        path.plot(x[k], y[k], "o", color="black", ms=3)
        path.annotate(
            f"{t} s",
            (x[k], y[k]),
            (4, 4),
            textcoords="offset points",
            fontsize=8,
            bbox={"fc": "white", "ec": "none", "pad": 0.5},
        )
    path.set_aspect("equal", adjustable="datalim")
    path.set_title("Fig. 4: path of the platform's centre", fontsize=9)
    path.set_xlabel("$x$ [m]")
    path.set_ylabel("$y$ [m]")
    moved.plot(ts, x, lw=1.0, label="$x$")
    moved.plot(ts, y, lw=1.0, label="$y$")
    moved.set_ylabel("[m]")
    moved.legend(frameon=False)
    turned.plot(ts, np.degrees(angle), color="tab:green", lw=1.0)
    turned.set_ylabel("angle [°]")
    for name, colour in zip(CUT, ("tab:blue", "tab:red"), strict=True):
        for column, style in enumerate(("-", ":")):
            label = f"{name}, along {'xy'[column]}"
            held.plot(ts, motion.held[name][:, column], style, color=colour, lw=1.0, label=label)
    held.set_title("Forces of the cut joints on the platform, along its axes", fontsize=9)
    held.set_ylabel("[N]")
    held.legend(loc="upper left", bbox_to_anchor=(0.0, -0.22), frameon=False, ncols=4)
    for panel in (moved, turned, held):
        panel.set_xlim(0.0, END)
        panel.set_xlabel("time [s]")
    for panel in (path, moved, turned, held):
        panel.grid(True, lw=0.3)
    return figure


def main() -> None:
    """Run everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/static"), help="of the figure")
    out = parser.parse_args().out
    print(f"{machine()}\n")
    head, *others = CASES
    first = follow(CASES[head], STEP)
    moved, held = apart(first, follow(CASES[head], STEP / 2.0))
    print(f"{END:g} s, steps of {1e3 * STEP:g} ms, of Tsitouras' method of order 5 where ", end="")
    print(
        "the row names no other.\nDifferences are the largest ones from the first row; half ",
        end="",
    )
    print(f"the step changes that by\n{moved:.1e} m and {held:.1e} N, with forces up to ", end="")
    print(f"{max(np.abs(force).max() for force in first.held.values()):.0f} N.\n")
    print("| formulation | coordinates | constraints | x, y [m] | forces at the cut ", end="")
    print("joints [N] | step [µs] |\n|---|---|---|---|---|---|")
    print(row(head, first, first), flush=True)
    found = {}
    for name in others:
        found[name] = follow(CASES[name], STEP)
        print(row(name, found[name], first), flush=True)
    moved, held = apart(found[RIGID_STEPS], found[SPRING_STEPS])
    print(f"\nWith SimoGonzalez, springs differ from constraints by {moved:.1e} m ", end="")
    print(f"and {held:.1e} N;\nthe rest of these rows' differences is the step's.")
    mpl.rcParams.update({"svg.hashsalt": "platform", "font.size": 9})
    out.mkdir(parents=True, exist_ok=True)
    draw(first).savefig(out / "platform.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
