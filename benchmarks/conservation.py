"""Conservation by the intrinsic schemes over long runs: energy, momentum, closed joints.

    python -m benchmarks.conservation [--free-steps N] [--steps N] [--links N]

Prints Markdown: a free body, then a chain of hinges and a heavy top without damping.
"""

import argparse
import os
import sys
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxmbd as mbd
from benchmarks.machine import machine
from jaxmbd.integrators.abstract import AbstractIntegrator
from jaxmbd.lie import Cayley, CayleyGibbsRodrigues, Exponential
from jaxmbd.system import equation_residuals
from jaxmbd.system.abstract import AbstractSystem

CHUNK = 1000  # Steps per call, so that memory stays small.


class Followed(eqx.Module):
    """Recorded quantities of each step."""

    kinetic: Float[Array, "n"]
    total: Float[Array, "n"]
    angular: Float[Array, "n 3"]
    gap: Float[Array, "n"]


def look(system: AbstractSystem, state: mbd.State) -> Followed:
    """Energy, angular momentum and largest gap of one state."""
    energy, gaps = (
        mbd.energy(system, 0.0, state),
        equation_residuals.position_residual(system, jnp.zeros(()), state.q),
    )
    angular = mbd.momentum(system, 0.0, state).angular
    return Followed(energy.kinetic, energy.total, angular, jnp.max(jnp.abs(gaps), initial=0.0))


@eqx.filter_jit
def chunk(
    system: AbstractSystem, integrator: AbstractIntegrator, carry: Any, first: Array, h: Array
) -> tuple[Any, Followed]:
    """`CHUNK` steps from step `first` on; one run, as the integrator's memory is handed on."""

    def step(carry: Any, k: Array) -> tuple[Any, Followed]:
        carry = integrator.advance(system, k * h, (k + 1) * h, *carry)
        return carry, look(system, carry[0])

    return jax.lax.scan(step, carry, first + jnp.arange(CHUNK))


def follow(
    system: AbstractSystem, start: mbd.State, integrator: AbstractIntegrator, h: float, n: int
) -> tuple[Followed, float]:
    """Records of the start and of `n` steps, and seconds per step without compilation."""
    step, zero = jnp.asarray(h), jnp.zeros(())
    memory = integrator.start(system, zero, step, start)
    carry, kept = (start, memory), [jax.tree.map(lambda x: x[None], look(system, start))]
    compiled = chunk.lower(system, integrator, carry, jnp.asarray(0), step).compile()
    began = time.perf_counter()
    for first in range(0, n, CHUNK):
        carry, found = compiled(system, integrator, carry, jnp.asarray(first), step)
        kept.append(jax.block_until_ready(found))
        print(f"\r{first + CHUNK} of {n}", end="", file=sys.stderr)
    print(file=sys.stderr)
    took = time.perf_counter() - began
    return jax.tree.map(lambda *x: np.concatenate(x), *kept), took / n


def free_body() -> tuple[AbstractSystem, mbd.State]:
    """A body that tumbles about its centre of mass, which is at rest and not at its frame."""
    com, spin = np.array([0.1, -0.2, 0.3]), np.array([1.5, -0.8, 2.0])
    body = mbd.inertia.principal(2.0, [0.5, 0.7, 1.0], com=com)
    system = mbd.formulate(mbd.Model({"body": body}), mbd.MaximalCoordinates())
    velocity = np.concatenate([np.cross(com, spin), spin])
    return system, mbd.State(mbd.assemble(system).q, jnp.asarray(velocity))


def top() -> tuple[AbstractSystem, mbd.State]:
    """A spinning heavy top on a ball joint."""
    body = mbd.inertia.shifted(mbd.inertia.principal(1.0, [0.02, 0.02, 0.03]), [0, 0, 0.4])
    model = mbd.Model(
        {"top": body},
        {"tip": mbd.joints.Spherical(mbd.ground, "top")},
        {"gravity": mbd.forces.Gravity()},
    )
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    return system, mbd.assemble(system, {"tip": [0.4, 0.0, 0.0]}, {"tip": [0.1, 0.2, 40.0]})


def chain(n: int) -> tuple[AbstractSystem, mbd.State]:
    """`n` rods of 1 kg and 0.5 m; hinges in turn along y and z, so that the motion is spatial."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5, radius=0.02), [0.25, 0, 0])
    tips = [mbd.ground, *(mbd.Frame(f"rod{k}", [0.5, 0, 0]) for k in range(n - 1))]
    axes = ([0, 1, 0], [0, 0, 1])
    model = mbd.Model(
        {f"rod{k}": rod for k in range(n)},
        {
            f"hinge{k}": mbd.joints.Revolute(tip, f"rod{k}", axes[k % 2])
            for k, tip in enumerate(tips)
        },
        {"gravity": mbd.forces.Gravity()},
    )
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    # Let go at rest, 0.5 rad off the vertical and bent a little out of the plane.
    return system, mbd.assemble(system, {"hinge0": np.pi / 2 - 0.5, "hinge1": 0.2})


FORMS = {
    "rotations, Cayley–Gibbs–Rodrigues": mbd.RotationIncrements(CayleyGibbsRodrigues()),
    "motions, Cayley": mbd.MotionIncrements(Cayley()),
    "motions, exponential": mbd.MotionIncrements(Exponential()),
}


def free_rows(n: int, h: float = 0.02) -> list[str]:
    """Lines of the first table."""
    system, start = free_body()
    rows = []
    for scheme in (mbd.EnergyMomentum, mbd.EnergyDecaying):
        for form, increments in FORMS.items():
            kept, took = follow(system, start, scheme(increments), h, n)
            energy = np.abs(kept.total / kept.total[0] - 1.0).max()
            off = np.linalg.norm(kept.angular - kept.angular[0], axis=1).max()
            change = np.diff(kept.total) / kept.total[0]
            cells = [scheme.__name__, form, f"{n}", f"{h:g}", f"{energy:.2e}"]
            cells += [f"{off / np.linalg.norm(kept.angular[0]):.2e}", f"{change.max():.2e}"]
            rows.append(f"| {' | '.join(cells)} | {1e6 * took:.0f} |")
    return rows


def loaded_rows(links: int, n: int) -> list[str]:
    """Lines of the second table."""
    rows = []
    cases = {"heavy top": (top(), 0.005), f"chain of {links}": (chain(links), 0.002)}
    for name, ((system, start), h) in cases.items():
        for form in list(FORMS)[:2]:
            kept, took = follow(system, start, mbd.EnergyMomentum(FORMS[form]), h, n)
            scale = kept.kinetic.max()
            drift = np.abs(kept.total - kept.total[0]).max()
            cells = [name, form, f"{n}", f"{h:g}", f"{drift / scale:.2e}"]
            cells += [f"{np.ptp(kept.kinetic) / scale:.2f}", f"{kept.gap.max():.2e}"]
            rows.append(f"| {' | '.join(cells)} | {1e3 * took:.3g} |")
    return rows


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--free-steps", type=int, default=100_000, help="of the free body")
    parser.add_argument("--steps", type=int, default=10_000, help="of the top and the chain")
    parser.add_argument("--links", type=int, default=20, help="of the chain")
    options = parser.parse_args()
    if options.free_steps % CHUNK or options.steps % CHUNK:
        parser.error(f"numbers of steps must be multiples of {CHUNK}")
    jax.config.update("jax_enable_x64", True)
    print(f"{machine()}\n")
    print("A free body. Drifts are the largest of all steps, relative to the start; so is the")
    print("largest change of energy in one step, which is negative where energy only falls.\n")
    print(
        "| scheme | increments | steps | h [s] | drift of energy | drift of angular momentum ",
        end="",
    )
    print("| largest change in one step | step [µs] |\n|---|---|---|---|---|---|---|---|")
    print(*free_rows(options.free_steps), sep="\n")
    print("\nWith weight and joints, by EnergyMomentum. Drift and variation are relative to the")
    print("largest kinetic energy.\n")
    print(
        "| case | increments | steps | h [s] | drift of energy | variation of kinetic energy ",
        end="",
    )
    print("| largest gap | step [ms] |\n|---|---|---|---|---|---|---|---|")
    print(*loaded_rows(options.links, options.steps), sep="\n")


if __name__ == "__main__":
    main()
