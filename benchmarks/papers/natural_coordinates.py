"""The three-link mechanism of the paper on natural coordinates: how stiff springs must be.

    python -m benchmarks.papers.natural_coordinates [--out docs/static]

"A three dimensional rigid body dynamic model based on finite element methodology": three blocks on
spherical joints fall from rest for 12 s, the steps being those of Simo and Gonzalez. Compares
springs of several stiffnesses and constraints with an adaptive Runge–Kutta solution in joint
coordinates, as the paper does with one by another program. Prints Markdown and draws the paper's
figs 2 to 4 as one figure. Takes some minutes.

The paper leaves open which way links 2 and 3 point and how the blocks are turned about their
lengths. Here they point up and along +y, and each is turned by the smallest rotation that takes it
there from the x axis; with link 2 down, the bottom of the swing comes at 2.0 s, not at the paper's
2.6 s.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.
os.environ.setdefault("JAX_ENABLE_X64", "1")  # Before modules make arrays.

import diffrax
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
from jaxmbd.forces import Gravity
from jaxmbd.joints import Spherical
from jaxmbd.system.abstract import AbstractSystem
from jaxmbd.system.mass_and_energy import Energy

END, STEP = 12.0, 0.005  # [s], of the paper.
STIFFNESSES = (8e4, 8e5, 1e6, 1e7, 1e8)  # [N/m], the first three of the paper.
UNTIL = (2.0, 4.0, 9.0, 12.0)  # [s], ends of the windows of the first table.
SWING = 2.0  # [s], before the bottom of the first swing.
FINE, WINDOW = 0.00125, 4.0  # [s], step and window of the second table.
CASES = {f"k = {k:.0e}".replace("e+0", "e"): mbd.NaturalCoordinates(k) for k in STIFFNESSES}
CASES["rigid"] = mbd.NaturalCoordinates(rigid=True)
SOFT, STIFF = "k = 8e4", "k = 1e6"  # Of the paper's figures.


def three_link() -> mbd.Model:
    """Blocks of 12 kg from -0.5 m to 0.5 m along their x axes, hanging from the origin."""
    names = ("link1", "link2", "link3")
    ends = (mbd.ground, *(Frame(name, [0.5, 0, 0]) for name in names[:2]))
    return mbd.Model(
        bodies=dict.fromkeys(names, mbd.inertia.box(12.0, [1.0, 0.5, 0.2])),
        joints={
            f"ball{i}": Spherical(end, Frame(name, [-0.5, 0, 0]))
            for i, (end, name) in enumerate(zip(ends, names, strict=True), 1)
        },
        forces={"gravity": Gravity([0, 0, -1.0])},
    )


def start(system: AbstractSystem) -> mbd.State:
    """Link 1 along x, link 2 along z, link 3 along y, at rest."""
    # Link 2 is turned from link 1 about -y; link 3's axes are link 2's, in another order.
    order = 2.0 * np.pi / 3.0 / np.sqrt(3.0) * np.ones(3)
    return mbd.assemble(system, {"ball2": [0, -np.pi / 2, 0], "ball3": order})


class Motion(NamedTuple):
    """Recorded quantities of a motion, from the start on."""

    centre: Float[np.ndarray, "n 3"]  # Of link 3 [m].
    energy: Energy
    spin: Float[np.ndarray, "n 3"]  # Angular momentum about the fixed point [N m s].
    took: float  # [s] per step, without compilation.


def drift(energy: Energy) -> float:
    """Largest change of total energy by the largest kinetic one."""
    total = np.asarray(energy.total)
    return float(np.abs(total - total[0]).max() / np.asarray(energy.kinetic).max())


def share(energy: Energy) -> float:
    """Largest energy of the artificial springs by the largest kinetic one."""
    return float(np.asarray(energy.artificial).max() / np.asarray(energy.kinetic).max())


@eqx.filter_jit
def look(system: AbstractSystem, states: mbd.State) -> tuple:
    """Centre of link 3, energy and angular momentum of every state."""

    def one(state: mbd.State) -> tuple:
        p = system.frames(0.0, state.q)["link3"].p
        momentum = mbd.momentum(system, 0.0, state)
        return p, mbd.energy(system, 0.0, state), momentum.angular

    return jax.vmap(one)(states)


def follow(formulation: mbd.NaturalCoordinates, h: float, end: float) -> Motion:
    """Steps of Simo and Gonzalez."""
    system = mbd.formulate(three_link(), formulation)
    first, n = start(system), round(end / h)

    def run() -> mbd.State:
        return jax.block_until_ready(mbd.rollout(system, first, h, n, mbd.SimoGonzalez()))

    states = run()
    began = time.perf_counter()
    states = run()
    took = (time.perf_counter() - began) / n
    states = jax.tree.map(lambda x, rest: jnp.concatenate([x[None], rest]), first, states)
    centre, energy, spin = look(system, states)
    return Motion(np.asarray(centre), energy, np.asarray(spin), took)


def reference() -> tuple[Float[np.ndarray, "n 3"], float]:
    """Centre of link 3 of the rigid motion at the times of steps, and the drift of its energy."""
    system = mbd.formulate(three_link(), mbd.JointCoordinates())
    solution = mbd.simulate(
        system,
        start(system),
        t1=END,
        integrator=diffrax.Dopri8(),
        controller=diffrax.PIDController(rtol=1e-11, atol=1e-11),
        saveat=np.linspace(0.0, END, round(END / STEP) + 1),
    )
    return np.asarray(solution.frames["link3"].p), drift(solution.energy)


def apart(a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "n 3"], end: float) -> float:
    """Largest difference of a coordinate until `end` [s]; rows at `STEP`."""
    rows = slice(round(end / STEP) + 1)
    return float(np.abs(a[rows] - b[rows]).max())


def single() -> dict[str, float | None]:
    """Drifts of energy in the float type of this process, by case; none where a step failed."""
    drifts = {name: drift(follow(made, STEP, END).energy) for name, made in CASES.items()}
    return {name: value if np.isfinite(value) else None for name, value in drifts.items()}


def single_elsewhere() -> dict[str, float | None]:
    """The same in float32, by a process of its own, as a process has one float type."""
    command = [sys.executable, "-m", "benchmarks.papers.natural_coordinates", "--float32"]
    told = {**os.environ, "JAX_ENABLE_X64": "0"}
    done = subprocess.run(command, env=told, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def kept_rows(found: dict[str, Motion], rigid: Float[np.ndarray, "n 3"]) -> list[str]:
    """Lines of the first table."""
    rows = []
    singles = single_elsewhere()
    for name, motion in found.items():
        cells = [name, *(f"{apart(motion.centre, rigid, end):.2e}" for end in UNTIL)]
        other = singles[name]
        cells += [f"{drift(motion.energy):.1e}", "no solution" if other is None else f"{other:.1e}"]
        turned = np.abs(motion.spin[:, 2] - motion.spin[0, 2]).max()
        cells += [
            f"{100 * share(motion.energy):.2g} %",
            f"{turned:.1e}",
            f"{1e6 * motion.took:.0f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def order_rows(rigid: Float[np.ndarray, "n 3"]) -> list[str]:
    """Lines of the second table."""
    every = round(STEP / FINE)
    centres = {
        name: follow(made, FINE, WINDOW).centre[::every] for name, made in reversed(CASES.items())
    }
    rows, before = [], None
    for k, name in zip((*STIFFNESSES, np.inf), CASES, strict=True):
        differences = np.array(
            [apart(centres[name], other, WINDOW) for other in (rigid, centres["rigid"])]
        )
        cells = [name]
        for column, difference in enumerate(differences):
            order = "-"
            if before is not None and np.isfinite(k):
                falls = before[1][column] / difference
                order = f"{np.log(falls) / np.log(k / before[0]):.2f}"
            cells += [f"{difference:.2e}", order]
        before = k, differences
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def bottom(name: str, energy: Energy) -> str:
    """Time of the first lowest position of the links, and energies of springs about it."""
    soon, first = round(SWING / STEP), slice(round(WINDOW / STEP))
    lowest = STEP * np.argmin(np.asarray(energy.field)[first])
    held = np.asarray(energy.artificial)
    return (
        f"{name}: lowest after {lowest:.2f} s; springs hold up to {held[:soon].max():.2g} J until "
        f"{SWING:g} s and {held[first].max():.2g} J until {WINDOW:g} s."
    )


def draw(found: dict[str, Motion], rigid: Float[np.ndarray, "n 3"]) -> Figure:
    """The paper's figs 2 to 4, one below the other."""
    ts = np.linspace(0.0, END, len(rigid))
    figure = Figure(figsize=(8.0, 9.0), layout="constrained")
    shown, energies, compared = figure.subplots(3, 1, sharex=True)
    colours = ("tab:blue", "tab:orange", "tab:green")
    for axis, colour, x in zip("xyz", colours, found[SOFT].centre.T, strict=True):
        shown.plot(ts, x, color=colour, lw=1.2, label=f"${axis}$")
    shown.set_title(f"Fig. 2: centre of link 3, {SOFT} N/m", fontsize=9)
    shown.set_ylabel("[m]")
    energy = found[SOFT].energy
    lines = {
        "kinetic": (energy.kinetic, "tab:blue"),
        "gravity": (energy.field, "tab:orange"),
        "artificial springs": (energy.artificial, "tab:red"),
        "total": (energy.total, "black"),
    }
    for name, (values, colour) in lines.items():
        energies.plot(ts, np.asarray(values), color=colour, lw=1.0, label=name)
    energies.set_title(f"Fig. 3: energies, {SOFT} N/m", fontsize=9)
    energies.set_ylabel("[J]")
    for axis, colour, x, exact in zip("xyz", colours, found[STIFF].centre.T, rigid.T, strict=True):
        compared.plot(ts, exact, color=colour, lw=2.6, alpha=0.35, label=f"${axis}$, Runge–Kutta")
        compared.plot(ts, x, color=colour, lw=1.0, label=f"${axis}$, springs")
    compared.set_title(f"Fig. 4: centre of link 3, {STIFF} N/m, and of rigid links", fontsize=9)
    compared.set_ylabel("[m]")
    compared.set_xlabel("time [s]")
    compared.set_xlim(0.0, END)
    for panel in (shown, energies, compared):
        panel.grid(True, lw=0.3)
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def main() -> None:
    """Run everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/static"), help="of the figure")
    parser.add_argument(
        "--float32", action="store_true", help="print drifts of energy in float32 and stop"
    )
    options = parser.parse_args()
    if options.float32:
        jax.config.update("jax_enable_x64", False)
        print(json.dumps(single()))
        return
    print(f"{machine()}\n")
    rigid, lost = reference()
    found = {name: follow(made, STEP, END) for name, made in CASES.items()}
    most = max(np.linalg.norm(motion.spin, axis=1).max() for motion in found.values())
    print(f"{END:g} s, steps of {1e3 * STEP:g} ms. Differences are the largest ones of a ", end="")
    print("coordinate of link 3's centre\nfrom the Runge–Kutta solution, whose energy ", end="")
    print(
        f"drifts by {lost:.1e}. Drifts and the share of the springs\nare relative to the ", end=""
    )
    print("largest kinetic energy. The momentum is the angular one about the vertical\n", end="")
    print(f"through the fixed point; about all axes it is up to {most:.0f} N m s.\n")
    heads = [f"until {end:g} s [m]" for end in UNTIL]
    print(f"| springs [N/m] | {' | '.join(heads)} | drift of energy | the same in float32 ", end="")
    print("| in springs | change of momentum [N m s] | step [µs] |\n|---|---|---|---|---", end="")
    print("|---|---|---|---|---|")
    print(*kept_rows(found, rigid), sep="\n", flush=True)
    print()
    for name in (SOFT, STIFF):
        print(bottom(name, found[name].energy))
    print(f"\nThe order in 1/k, until {WINDOW:g} s and with steps of {1e3 * FINE:g} ms, ", end="")
    print("against the Runge–Kutta solution\nand against constraints with the same steps.\n")
    print("| springs [N/m] | from Runge–Kutta [m] | order | from rigid steps [m] | order |")
    print("|---|---|---|---|---|")
    print(*order_rows(rigid), sep="\n")
    mpl.rcParams.update({"svg.hashsalt": "three_link", "font.size": 9})
    options.out.mkdir(parents=True, exist_ok=True)
    draw(found, rigid).savefig(options.out / "three_link.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
