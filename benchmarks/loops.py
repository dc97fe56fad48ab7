"""A fast four-bar over many steps: whether it comes apart or gains energy, near singular positions.

    python -m benchmarks.loops [--steps N]

Four spatial hinges, three of whose constraints are redundant, no gravity and no friction, the crank
at 20 rad/s, steps of 1 ms. The first rocker is long; the second makes the linkage nearly a
parallelogram, which passes near its folded position twice a turn; the third makes it one, which
passes through. Prints Markdown.
"""

import argparse
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
import scalarjit
from benchmarks.machine import machine
from jaxmbd import Frame, inertia, joints
from jaxmbd.integrators.abstract import AbstractIntegrator
from jaxmbd.system import equation_residuals
from jaxmbd.system.abstract import AbstractSystem

H = 1e-3
CHUNK = 1000  # Steps per call, so that memory stays small.
LINKAGES = {
    "a = 0.2, b = 0.5, c = 0.45, d = 0.6 m": (0.2, 0.5, 0.45, 0.6),
    "a = 0.2, b = 0.5, c = 0.21, d = 0.5 m (near)": (0.2, 0.5, 0.21, 0.5),
    "a = c = 0.2, b = d = 0.5 m (through)": (0.2, 0.5, 0.2, 0.5),
}
DOPRI8 = diffrax.Dopri8()
METHODS = {
    "Dopri8, Projection, joint": (
        mbd.JointCoordinates(),
        mbd.ExplicitRK(DOPRI8, mbd.Projection()),
    ),
    "Dopri8, CoordinatePartitioning, joint": (
        mbd.JointCoordinates(),
        mbd.ExplicitRK(DOPRI8, mbd.CoordinatePartitioning()),
    ),
    "Dopri8, Baumgarte, joint": (mbd.JointCoordinates(), mbd.ExplicitRK(DOPRI8)),
    "Dopri8, Projection, maximal": (
        mbd.MaximalCoordinates(),
        mbd.ExplicitRK(DOPRI8, mbd.Projection()),
    ),
    "EnergyMomentum, maximal": (mbd.MaximalCoordinates(), mbd.EnergyMomentum()),
    "GeneralizedAlpha(0.9), index 2, joint": (
        mbd.JointCoordinates(),
        mbd.GeneralizedAlpha(0.9, index=2),
    ),
}


def four_bar(a: float, b: float, c: float, d: float) -> mbd.Model:
    """Crank, coupler and rocker of 1 kg each, of hinges about z."""
    bodies = {
        name: inertia.shifted(inertia.box(1.0, [length, 0.03, 0.03]), [length / 2, 0, 0])
        for name, length in (("crank", a), ("coupler", b), ("rocker", c))
    }
    return mbd.Model(
        bodies,
        {
            "A": joints.Revolute("ground", "crank"),
            "B": joints.Revolute(Frame("crank", [a, 0, 0]), "coupler"),
            "C": joints.Revolute(Frame("coupler", [b, 0, 0]), Frame("rocker", [c, 0, 0])),
            "D": joints.Revolute(Frame("ground", [d, 0, 0]), "rocker"),
        },
    )


@eqx.filter_jit
def chunk(
    system: AbstractSystem, integrator: AbstractIntegrator, carry: tuple, first: Array
) -> tuple[tuple, tuple[Array, Array, Array]]:
    """Steps from step `first` on: largest gap, largest rate of it, and energies."""

    def step(carry: tuple, k: Array) -> tuple[tuple, tuple[Array, Array, Array]]:
        t = k * H
        state, memory = integrator.advance(system, t, t + H, *carry)
        gap = jnp.max(jnp.abs(equation_residuals.position_residual(system, t, state.q)))
        rate = jnp.max(jnp.abs(equation_residuals.velocity_residual(system, t, state)))
        return (state, memory), (gap, rate, mbd.energy(system, t, state).total)

    return jax.lax.scan(step, carry, first + jnp.arange(CHUNK))


def row(lengths: tuple[float, ...], formulation: object, integrator: object, n: int) -> str:
    """Largest violations, the range of the energy, and the time of a step."""
    system = mbd.formulate(four_bar(*lengths), formulation)
    assert isinstance(integrator, AbstractIntegrator)
    state = mbd.assemble(system, {"A": 1.0, "B": -1.0, "D": 1.0}, {"A": 20.0}, hold=["A"])
    start = float(mbd.energy(system, 0.0, state).total)
    zero = jnp.zeros(())
    carry = (state, integrator.start(system, zero, zero + H, state))
    found = []
    for first in range(0, n, CHUNK):
        if first == CHUNK:  # The first call compiled.
            scalarjit.optimize()
            began = time.perf_counter()
        carry, seen = jax.block_until_ready(chunk(system, integrator, carry, jnp.array(first)))
        found.append(jax.tree.map(np.asarray, seen))
    micros = (time.perf_counter() - began) / (n - CHUNK) * 1e6
    gap, rate, energy = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if not np.isfinite(energy).all():
        lost = int(np.argmax(~np.isfinite(energy)))
        return f"not finite after {lost} steps | | | | {micros:.0f}"
    change = energy / start - 1.0
    return (
        f"{gap.max():.1e} | {rate.max():.1e} | {change.min():+.1e} … {change.max():+.1e} | "
        f"{change[-CHUNK:].mean():+.1e} | {micros:.0f}"
    )


def main() -> None:
    """Run every method on every linkage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    n = parser.parse_args().steps
    jax.config.update("jax_enable_x64", True)
    print(f"{machine()} {n} steps of {H:g} s.\n")
    print("| linkage | method | g [m] | ġ [m/s] | energy, range | energy, end | µs a step |")
    print("|---|---|---|---|---|---|---|")
    for linkage, lengths in LINKAGES.items():
        for method, (formulation, integrator) in METHODS.items():
            print(
                f"| {linkage} | {method} | {row(lengths, formulation, integrator, n)} |", flush=True
            )


if __name__ == "__main__":
    main()
