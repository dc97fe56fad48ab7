"""Section 5 of Bauchau et al. (2013): accuracy and cost of the intrinsic schemes.

    python -m benchmarks.papers.intrinsic [--out docs/static]

Errors at the end of the forced motion against the step, as in the paper's figs 3 to 8, and the
operations of the Jacobian of one step against those of a parameterized formulation. Prints
Markdown and draws one figure. Takes some minutes.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.
os.environ.setdefault("JAX_ENABLE_X64", "1")  # Before modules make arrays.

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import jaxmbd as mbd
from benchmarks.machine import machine
from benchmarks.papers import forced_body
from jaxmbd.lie import (
    CayleyGibbsRodrigues,
    EulerRodrigues,
    Exponential,
    WienerMilenkovic,
    se3,
)
from jaxmbd.lie.parameterization import AbstractParameterization
from jaxmbd.system.mass_and_energy import spatial_inertia

END = 2.0  # [s]
STEPS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)  # [ms]
KINDS = (  # With the paper's markers.
    ("exponential", Exponential(), "v"),
    ("Euler–Rodrigues", EulerRodrigues(), "D"),
    ("Cayley–Gibbs–Rodrigues", CayleyGibbsRodrigues(), "s"),
    ("Wiener–Milenković", WienerMilenkovic(), "^"),
)
PAPER = 270, 594  # Operations, intrinsic and parameterized.
Run = Callable[[Float[Array, ""], int], mbd.State]


def kinematic(kind: AbstractParameterization) -> Run:
    """The motion update alone, eq. (20), at the mean of the exact twists of both ends."""
    increments, body = mbd.MotionIncrements(kind), forced_body.system().mechanism.rigid
    body = jax.tree.map(lambda x: x[0], body)

    def run(h: Float[Array, ""], n: int) -> mbd.State:
        def step(k: Array, q: Array) -> Array:
            mean = (forced_body.twist(k * h) + forced_body.twist((k + 1) * h)) / 2.0
            return increments.moved(body, q, h * mean)

        q = jax.lax.fori_loop(0, n, step, forced_body.start().q)
        return mbd.State(q, forced_body.twist(n * h))

    return run


def dynamic(make: Callable) -> Callable[[AbstractParameterization], Run]:
    """Steps of an integrator, from the exact state at time zero."""

    def of(kind: AbstractParameterization) -> Run:
        integrator, system = make(mbd.MotionIncrements(kind)), forced_body.system()

        def run(h: Float[Array, ""], n: int) -> mbd.State:
            start = forced_body.start()

            def step(k: Array, carry: tuple) -> tuple:
                t = k * h
                return integrator.advance(system, t, t + h, *carry)

            memory = integrator.start(system, jnp.zeros_like(h), h, start)
            return jax.lax.fori_loop(0, n, step, (start, memory))[0]

        return run

    return of


SCHEMES = {
    "kinematic compatibility, eq. (20)": kinematic,
    "energy-momentum, eq. (22)": dynamic(mbd.EnergyMomentum),
    "energy-decaying, eq. (23)": dynamic(mbd.EnergyDecaying),
    "generalized-α, eq. (24), ρ∞ = 1": dynamic(
        lambda increments: mbd.GeneralizedAlpha(1.0, increments=increments)
    ),
}


def errors(run: Run) -> Float[np.ndarray, "steps 2"]:
    """e_D and e_R of every step; the number of steps is traced, so that one program does all."""
    run = eqx.filter_jit(run)
    found = []
    for step in STEPS:
        n = round(1e3 * END / step)
        end = run(jnp.asarray(END / n), jnp.asarray(n))
        found.append(forced_body.errors(end, jnp.asarray(END)))
    return np.array(found)


def error_row(scheme: str, kind: str, found: Float[np.ndarray, "steps 2"]) -> str:
    """One line of the first table."""
    cells = [scheme, kind]
    orders = np.log2(found[-4:-1] / found[-3:])
    for column in range(2):
        cells += [f"{found[STEPS.index(step), column]:.3e}" for step in (1.0, 0.0625)]
        cells.append(", ".join(f"{order:.3f}" for order in orders[:, column]))
    return f"| {' | '.join(cells)} |"


def draw(found: dict[tuple[str, str], Float[np.ndarray, "steps 2"]]) -> Figure:
    """A row of two panels for each scheme."""
    figure = Figure(figsize=(8.0, 11.5), layout="constrained")
    axes = figure.subplots(len(SCHEMES), 2, sharex=True, sharey="col")
    for row, scheme in zip(axes, SCHEMES, strict=True):
        for column, panel in enumerate(row):
            for name, _, marker in KINDS:
                values = found[scheme, name][:, column]
                panel.loglog(STEPS, values, marker=marker, ms=5, mfc="none", lw=0.9, label=name)
            _reference(panel, column)
            panel.set_title(scheme, fontsize=9)
            panel.set_ylabel(("$e_D$ [-]", "$e_R$ [-]")[column])
            panel.grid(True, lw=0.3)
            panel.minorticks_off()
    for panel in axes[-1]:
        panel.set_xlabel("step $h$ [ms]")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _reference(panel: mpl.axes.Axes, column: int) -> None:
    """A line of slope 2 below the data."""
    steps, level = np.array([0.1, 1.0]), (2e-8, 4e-8)[column]
    panel.loglog(steps, level * steps**2, color="black", lw=0.9, ls="--")
    panel.annotate("slope 2", (0.45, level * 0.45**2), (4, -10), textcoords="offset points")


def flops(residual: Callable, *args: Array) -> tuple[float, float]:
    """Floating-point operations of the Jacobian by the first argument, as XLA counts them.

    Those of the compiled program, whose fusions repeat some, and those of the program before.
    """
    lowered = jax.jit(jax.jacfwd(residual)).lower(*args)
    return lowered.compile().cost_analysis()["flops"], lowered.cost_analysis()["flops"]


def intrinsic_residual(kind: AbstractParameterization) -> Callable:
    """Eq. (22) without loads, along axes at the start; the unknown is the twist at the end."""

    def residual(V: Array, V0: Array, M: Array, h: Array) -> Array:
        step = kind.motion(h * (V + V0) / 2.0)
        return se3.transform_wrench(step, M @ V) - M @ V0

    return residual


def parameterized_residual(kind: AbstractParameterization) -> Callable:
    """The same balance with total motion parameters Q as unknowns, by a midpoint rule.

    Q̇ and Q at the middle are the difference quotient and the mean of the ends, V* = H*(Q) Q̇
    there, and the twist at the end follows from those at the middle and at the start.
    """

    def residual(Q: Array, Q0: Array, V0: Array, P0: Array, M: Array, h: Array) -> Array:
        middle = kind.motion_tangent((Q + Q0) / 2.0) @ ((Q - Q0) / h)
        return se3.transform_wrench(kind.motion(Q), M @ (2.0 * middle - V0)) - P0

    return residual


def operations_row(name: str, kind: AbstractParameterization) -> str:
    """One line of the second table."""
    body = jax.tree.map(lambda x: x[0], forced_body.system().mechanism.rigid)
    M, h, V = spatial_inertia(body), jnp.asarray(1e-3), jnp.linspace(0.5, 1.0, 6)
    Q = 0.3 * V
    intrinsic = flops(intrinsic_residual(kind), V, V, M, h)
    parameterized = flops(parameterized_residual(kind), Q, Q, V, M @ V, M, h)
    cells = [
        f"{own:.0f} | {other:.0f} | {100 * own / other:.0f} %"
        for own, other in zip(intrinsic, parameterized, strict=True)
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Run everything, print it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/static"), help="of the figure")
    out = parser.parse_args().out
    print(f"{machine()}\n")
    print("| scheme | parameters | e_D, 1 ms | e_D, 0.0625 ms | orders of e_D | e_R, 1 ms ", end="")
    print("| e_R, 0.0625 ms | orders of e_R |\n|---|---|---|---|---|---|---|---|")
    found = {}
    for scheme, make in SCHEMES.items():
        for name, kind, _ in KINDS:
            found[scheme, name] = errors(make(kind))
            print(error_row(scheme, name, found[scheme, name]), flush=True)
    print("\nOrders are those of the last three halvings, down to 0.03125 ms.")
    rising = [key for key, values in found.items() if (np.diff(values, axis=0) >= 0).any()]
    print(f"Errors that stop falling: {', '.join(map(' with '.join, rising)) or 'none'}.\n")
    print("Operations of the Jacobian of one step, as XLA counts them, a multiplication and an")
    print("addition each one. Both are dense forward-mode derivatives, those of the tangent H*")
    print("nested, where hand-written code would use closed forms.\n")
    print("| parameters | compiled: intrinsic | parameterized | ratio ", end="")
    print("| before fusion: intrinsic | parameterized | ratio |\n|---|---|---|---|---|---|---|")
    for name, kind, _ in KINDS:
        print(operations_row(name, kind))
    print("\nThe paper counts, by hand and in pairs of a multiplication and an addition, ", end="")
    print(f"{PAPER[0]} and {PAPER[1]}, {100 * PAPER[0] / PAPER[1]:.0f} %.")
    mpl.rcParams.update({"svg.hashsalt": "intrinsic", "font.size": 9})
    out.mkdir(parents=True, exist_ok=True)
    draw(found).savefig(out / "intrinsic.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
