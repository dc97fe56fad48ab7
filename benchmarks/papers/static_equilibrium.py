"""The static equilibria of the paper on joint coordinates: energy drainage beside Newton's method.

    python -m benchmarks.papers.static_equilibrium [--out docs/static]

Section 8 of Omar (2014), "Static analysis of large-scale multibody system using joint coordinates
and spatial algebra operator": a pendulum that starts horizontally, and a chain of 50 links that
starts at 5° from the vertical with 1° more from link to link. First the paper's own way, a motion
whose accelerations follow its eq. (50), v̇ - 2 ω v - ω² (qₙ - qₙ₋₁), in explicit steps until the
kinetic energy is small; then `equilibrium` with drainage in implicit steps, with Newton's method,
and with both. Prints Markdown and draws the paper's figs 5 to 10 as one figure. Takes some minutes.

The paper gives the mass of a link, and the potential energy at the pendulum's rest, from which the
length is 1.5 m. It gives neither ω nor steps nor the kinetic energy at which it stops. Chosen here:
ω as parts of the lowest natural frequency, semi-implicit Euler of `STEP`, and `TARGET` of the
largest kinetic energy.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.
os.environ.setdefault("JAX_ENABLE_X64", "1")  # Before modules make arrays.

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import jaxmbd as mbd
from benchmarks.machine import machine
from benchmarks.peers.protocol import compiled
from jaxmbd import Frame
from jaxmbd.system.abstract import AbstractSystem

MASS, LENGTH, GRAVITY = 1.7595, 1.5, 9.81  # [kg], [m], [m/s²]
REST = -12.9455  # Potential energy of the pendulum at rest [J], of the paper.
PARTS = (0.25, 1.0, 4.0)  # ω by the lowest natural frequency.
STEP = 1e-3  # [s] of the paper's way.
TARGET = 1e-10  # Kinetic energy at which it stops, by the largest one.
REPEATS, ENOUGH = 15, 10.0  # Timed calls, and seconds after which no more are made.


class Start(NamedTuple):
    """Start of a chain, and the limit of steps of the paper's method."""

    first: float  # Angle of the first link from the vertical [°].
    other: float  # Angle of every other link from the one before [°].
    n: int
    end: float  # [s]
    every: int  # Steps from one state that is kept to the next.


STARTS = {"pendulum": Start(90.0, 0.0, 1, 60.0, 10), "chain of 50": Start(5.0, 1.0, 50, 300.0, 50)}


def chain(n: int) -> mbd.Model:
    """`n` uniform links on hinges about y, hanging from the origin; gravity is along -z."""
    link = mbd.inertia.rod(MASS, LENGTH)
    tail, head = [-LENGTH / 2, 0.0, 0.0], [LENGTH / 2, 0.0, 0.0]
    carriers = [mbd.ground, *(Frame(f"link{i}", head) for i in range(n - 1))]
    return mbd.Model(
        {f"link{i}": link for i in range(n)},
        {
            f"hinge{i}": mbd.joints.Revolute(carrier, Frame(f"link{i}", tail), [0, 1, 0])
            for i, carrier in enumerate(carriers)
        },
        {"gravity": mbd.forces.Gravity([0.0, 0.0, -GRAVITY])},
    )


def started(system: AbstractSystem, start: Start) -> mbd.State:
    """The chain at its start; a link along x is at 90° from the vertical."""
    first = np.radians(90.0 - start.first)
    others = {f"hinge{i}": -np.radians(start.other) for i in range(1, start.n)}
    return mbd.assemble(system, {"hinge0": first, **others})


def squared_frequencies(n: int) -> Float[np.ndarray, "n"]:
    """Eigenvalues of small oscillations about the vertical [1/s²], in angles of the links."""
    reach = LENGTH * (np.tri(n, k=-1) + 0.5 * np.eye(n))  # From angles to places of centres.
    M = MASS * reach.T @ reach + MASS * LENGTH**2 / 12.0 * np.eye(n)
    weights = MASS * GRAVITY * reach.sum(axis=0)
    L = np.linalg.cholesky(M)
    half = np.linalg.solve(L, np.diag(np.sqrt(weights)))
    return np.linalg.svd(half, compute_uv=False)[::-1] ** 2


def angles(system: AbstractSystem, q: Array) -> Float[Array, "n"]:
    """Angles of the links from the vertical [rad], the first link first."""
    frames = system.frames(0.0, q)
    along = jnp.stack([frames[f"link{i}"].R[:, 0] for i in range(len(system.mechanism.rigid.mass))])
    return jnp.arctan2(along[:, 0], -along[:, 2])


class Motion(NamedTuple):
    """Recorded quantities of the paper's method."""

    times: Float[np.ndarray, "k"]  # [s]
    angles: Float[np.ndarray, "k n"]  # [rad]
    kinetic: Float[np.ndarray, "k"]  # [J]
    potential: Float[np.ndarray, "k"]  # [J]
    end: int | None  # Number of rows until it stops; None if it does not.


@eqx.filter_jit
def drained(
    system: AbstractSystem, state: mbd.State, omega: Float[Array, ""], every: int, rows: int
) -> tuple[Array, Array, Array]:
    """Angles, kinetic and potential energies of the motion after eq. (50), every `every` steps."""

    def step(_: Any, carry: tuple[mbd.State, Array]) -> tuple[mbd.State, Array]:
        state, increment = carry
        vdot = mbd.accelerations(system, 0.0, state)[0]
        v = state.v + STEP * (vdot - 2.0 * omega * state.v - omega**2 * increment)
        return mbd.State(system.retract(state.q, STEP * v), v), STEP * v

    def row(carry: tuple[mbd.State, Array], _: None) -> tuple[Any, tuple[Array, Array, Array]]:
        energy = mbd.energy(system, 0.0, carry[0])
        kept = angles(system, carry[0].q), energy.kinetic, energy.field
        return jax.lax.fori_loop(0, every, step, carry), kept

    return jax.lax.scan(row, (state, jnp.zeros_like(state.v)), None, length=rows)[1]


def paper(system: AbstractSystem, start: Start, omega: float) -> Motion:
    """The paper's way."""
    rows = round(start.end / STEP / start.every) + 1
    state = started(system, start)
    found = drained(system, state, jnp.asarray(omega), start.every, rows)
    turned, kinetic, potential = map(np.asarray, found)
    slow = kinetic <= TARGET * kinetic.max()
    slow[: kinetic.argmax()] = False  # At the start it is at rest, too.
    end = int(slow.argmax()) if slow.any() else None
    return Motion(STEP * start.every * np.arange(rows), turned, kinetic, potential, end)


def ways(lowest: float) -> dict[str, Any]:
    """Methods of `equilibrium` by the names of their rows."""
    drains = {f"drainage, ω = {part:g} ω₁": mbd.Drainage(omega=part * lowest) for part in PARTS}
    return {
        "drainage": mbd.Drainage(),
        **drains,
        "Newton": mbd.StaticNewton(),
        "auto": "auto",
    }


class Solved(NamedTuple):
    """A row of the second table."""

    found: Any
    took: float  # Median [s].
    compiling: float  # [s]


def solved(system: AbstractSystem, state: mbd.State, method: Any) -> Solved:
    """`equilibrium`, timed by calls of the compiled function."""

    def run(system: AbstractSystem, state: mbd.State) -> Any:
        return mbd.equilibrium(system, state, method=method, throw=False)

    program = compiled(run, system, state)
    found = program(system, state)
    return Solved(found, median_time(lambda: program(system, state)), program.compiling)


def median_time(run: Callable[[], Any]) -> float:
    """Median duration of some calls, after one that is not counted [s]."""
    times: list[float] = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - began)
        if sum(times) > ENOUGH and len(times) > 1:
            break
    return float(np.median(times[1:]))


def paper_row(name: str, part: float, motion: Motion) -> str:
    """A line of the first table."""
    if motion.end is None:
        ends = ["> " + f"{motion.times[-1]:.0f}", "", f"{np.abs(motion.angles[-1]).max():.1e}"]
        return f"| {' | '.join([name, f'{part:g} ω₁', *ends, f'{motion.potential[-1]:.6g}'])} |"
    cells = [name, f"{part:g} ω₁", f"{motion.times[motion.end]:.2f}"]
    cells.append(f"{round(motion.times[motion.end] / STEP)}")
    cells.append(f"{np.abs(motion.angles[motion.end]).max():.1e}")
    return f"| {' | '.join([*cells, f'{motion.potential[motion.end]:.8g}'])} |"


def solved_row(name: str, way: str, system: AbstractSystem, row: Solved, exact: float) -> str:
    """A line of the second table."""
    found = row.found
    energy = float(mbd.energy(system, 0.0, found.state).field)
    lowest = float(found.eigenvalues[0])
    drain, newton = (int(n) for n in found.steps)
    good = found.result == mbd.RESULTS.successful
    cells = [name, way, f"{drain}", f"{newton}", f"{1e3 * row.took:.3g}", f"{row.compiling:.1f}"]
    cells += [f"{float(jnp.abs(angles(system, found.state.q)).max()):.1e}", f"{energy:.8g}"]
    cells += ["yes" if bool(found.stable) and bool(good) else "no", f"{lowest / exact - 1.0:.0e}"]
    return f"| {' | '.join(cells)} |"


def draw(motions: dict[str, dict[float, Motion]]) -> Figure:
    """Angles, kinetic and potential energies: the pendulum at the left, the chain at the right."""
    figure = Figure(figsize=(9.0, 8.0), layout="constrained")
    panels = figure.subplots(3, 2, sharex="col")
    for column, (name, found) in enumerate(motions.items()):
        turned, kinetic, potential = panels[:, column]
        for (part, motion), colour in zip(
            found.items(), ("tab:orange", "tab:blue", "tab:green"), strict=True
        ):
            label = f"ω = {part:g} ω₁"
            kinetic.plot(motion.times, motion.kinetic, color=colour, lw=1.0, label=label)
            potential.plot(motion.times, motion.potential, color=colour, lw=1.0, label=label)
            if motion.angles.shape[1] == 1:
                turned.plot(motion.times, np.degrees(motion.angles), color=colour, lw=1.0)
        if found[1.0].angles.shape[1] > 1:
            draw_links(turned, found[1.0])
        numbers = (5, 6, 7) if column == 0 else (10, 8, 9)
        titles = ("angle from the vertical", "kinetic energy", "potential energy")
        for panel, number, title in zip(panels[:, column], numbers, titles, strict=True):
            panel.set_title(f"Fig. {number}: {title}, {name}", fontsize=9)
            panel.grid(True, lw=0.3)
        potential.axhline(potential_at_rest(found), color="black", lw=0.8, ls=":")
        potential.set_xlabel("time [s]")
        kinetic.legend(frameon=False)
        longest = max(STARTS[name].end if m.end is None else m.times[m.end] for m in found.values())
        turned.set_xlim(0.0, min(longest, 0.2 * STARTS[name].end))
    for panel, unit in zip(panels[:, 0], ("[°]", "[J]", "[J]"), strict=True):
        panel.set_ylabel(unit)
    return figure


def potential_at_rest(found: dict[float, Motion]) -> float:
    """Potential energy of the hanging chain [J]."""
    n = found[1.0].angles.shape[1]
    return -0.5 * n**2 * MASS * GRAVITY * LENGTH


def draw_links(panel: Axes, motion: Motion) -> None:
    """Angles of all links, from the first (dark) to the last."""
    n = motion.angles.shape[1]
    for i, x in enumerate(motion.angles.T):
        colour = mpl.colormaps["viridis"](i / (n - 1))
        panel.plot(motion.times, np.degrees(x), color=colour, lw=0.6)


def main() -> None:
    """Run everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/static"), help="of the figure")
    out = parser.parse_args().out
    print(f"{machine()}\n")
    print(f"The paper's way: semi-implicit Euler of {1e3 * STEP:g} ms, until the kinetic ", end="")
    print(f"energy is {TARGET:g} of the largest one.\n")
    print("| | ω | time [s] | steps | largest angle [rad] | potential energy [J] |")
    print("|---|---|---|---|---|---|")
    motions: dict[str, dict[float, Motion]] = {}
    systems = {name: mbd.formulate(chain(start.n)) for name, start in STARTS.items()}
    for name, start in STARTS.items():
        lowest = float(np.sqrt(squared_frequencies(start.n)[0]))
        motions[name] = {part: paper(systems[name], start, part * lowest) for part in PARTS}
        for part, motion in motions[name].items():
            print(paper_row(name, part, motion), flush=True)
    rest = potential_at_rest(motions["pendulum"])
    print(f"\nExact: {rest:.8g} J of the pendulum, in the paper {REST:g} J, and ", end="")
    print(f"{potential_at_rest(motions['chain of 50']):.8g} J of the chain.\n")
    print("`equilibrium`; times are medians of calls of the compiled function.\n")
    print("| | method | steps of drainage | of Newton | time [ms] | compile [s] | largest ", end="")
    print("angle [rad] | potential energy [J] | stable | relative error of ω₁² |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, start in STARTS.items():
        exact, system = squared_frequencies(start.n)[0], systems[name]
        state = started(system, start)
        for way, method in ways(float(np.sqrt(exact))).items():
            row = solved(system, state, method)
            print(solved_row(name, way, system, row, float(exact)), flush=True)
    mpl.rcParams.update({"svg.hashsalt": "static_equilibrium", "font.size": 9})
    out.mkdir(parents=True, exist_ok=True)
    draw(motions).savefig(out / "static_equilibrium.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
