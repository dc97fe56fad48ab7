"""A beam that is spun up about its root, with and without geometric stiffening.

    python examples/spinning_beam.py [--png PICTURE]

A cantilever beam on a hub bends while the hub gains speed, and swings about its straight position
afterwards. Its centrifugal load stiffens it. Linear modes alone miss this: beyond a speed close to
the first frequency at rest the beam bends without bounds.

Printed are frequencies at rest, and the largest and the last deflection of the tip.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, flexible, joints

jax.config.update("jax_enable_x64", True)

LENGTH = 8.0  # [m]
SPEED, SPIN_UP = 6.0, 15.0  # Of the hub at the end [rad/s], and the time it takes [s].
STEP, DURATION = 0.01, 20.0  # [s]


def beam(stiffening=True, n_modes=6):
    """A slender beam of aluminium."""
    section = flexible.General(A=7.3e-5, Iy=8.218e-9, Iz=8.218e-9, J=1.64e-8)
    return flexible.beam(
        LENGTH, 6.895e10, 2.65e10, 2766.67, section, 8, n_modes, "bernoulli", stiffening=stiffening
    )


def spin_up(t):
    """Angle of the hub [rad]: its speed grows smoothly."""
    s = jnp.clip(t / SPIN_UP, 0.0, 1.0)
    turned = 0.5 * s**2 + (jnp.cos(2.0 * jnp.pi * s) - 1.0) / (2.0 * jnp.pi) ** 2
    return SPEED * (SPIN_UP * turned + jnp.maximum(t - SPIN_UP, 0.0))


def model(stiffening=True):
    """The beam on a hinge whose angle is prescribed."""
    return mbd.Model(
        bodies={"beam": beam(stiffening)},
        joints={"hub": joints.Revolute("ground", Frame("beam", node="base"), [0, 0, 1])},
        drivers={"motor": joints.Driver("hub", spin_up)},
        frames={"tip": Frame("beam", node="tip")},
    )


def motion(stiffening=True):
    """Times [s], and deflections of the tip across the beam [m]."""
    system = mbd.formulate(model(stiffening), mbd.JointCoordinates())
    state = mbd.assemble(system)
    n = round(DURATION / STEP)
    states = mbd.rollout(system, state, STEP, n, mbd.GeneralizedAlpha(0.8))
    shapes = beam(stiffening).translations[-1, : system.mechanism.n_elastic, 1]
    return STEP * np.arange(1, n + 1), np.asarray(states.q[:, 1:] @ shapes)


def picture(motions):
    """Deflection over time."""
    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    axes = figure.subplots()
    for (t, deflection), label in zip(motions, ("with", "without"), strict=True):
        axes.plot(t, deflection, label=f"{label} geometric stiffening")
    axes.set(xlabel="time [s]", ylabel="deflection of the tip [m]", ylim=(-2.0, 0.5))
    axes.legend(loc="lower left")
    return figure


def main():
    """Print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", help="draw the deflection to this file")
    options = parser.parse_args()
    frequencies = np.asarray(beam().frequencies())[::2]
    print("frequencies at rest:", ", ".join(f"{x:.3f}" for x in frequencies), "rad/s")
    t, deflection = motion()
    at = np.abs(deflection).argmax()
    print(f"largest deflection {abs(deflection[at]):.4f} m at {t[at]:.2f} s")
    late = deflection[t > SPIN_UP]
    print(f"after the spin-up it swings by {0.5 * np.ptp(late):.2e} m about {late.mean():.2e} m")
    if options.png:
        picture([(t, deflection), motion(stiffening=False)]).savefig(options.png, dpi=120)


if __name__ == "__main__":
    main()
