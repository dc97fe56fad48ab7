"""A Stewart platform: six driven legs that make a platform follow a wanted motion.

    python examples/stewart_platform.py [--html PAGE] [--png PICTURE]

Each leg is a tube on a cross joint and a rod that slides in it, with a ball at the platform; five
of the six legs close loops. The lengths of the legs follow from the wanted motion (inverse
kinematics) and are prescribed. Printed are how exactly the platform follows, the forces of the six
drives, and their work beside what the energy gains.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals
from jaxmbd.lie import so3

jax.config.update("jax_enable_x64", True)

BASE, TOP, HEIGHT = 0.9, 0.55, 1.1  # Radii of the joints and height at rest [m].
HEAVE, TILT, PERIOD = 0.12, 0.2, 2.0  # Amplitudes [m, rad] and period [s] of the wanted motion.
LOAD = 120.0  # Mass of the platform [kg].


def corners(radius, spread):
    """Six points in pairs on a circle, as rows [m]."""
    angles = jnp.radians(jnp.array([-spread, spread, 120 - spread, 120 + spread, -120, -120]))
    angles = angles.at[4].add(-jnp.radians(spread)).at[5].add(jnp.radians(spread))
    return radius * jnp.stack([jnp.cos(angles), jnp.sin(angles), 0 * angles], axis=1)


def wanted(t, heave=HEAVE, tilt=TILT):
    """Pose of the platform at a time [s]: it heaves, and its normal goes round a cone."""
    phase = 2 * jnp.pi * t / PERIOD
    lift = HEIGHT + heave * jnp.sin(phase)
    turn = tilt * jnp.stack([jnp.sin(phase), 1.0 - jnp.cos(phase), 0.0 * phase])
    return mbd.Pose(jnp.stack([0.0 * phase, 0.0 * phase, lift]), so3.exp_matrix(turn))


class Stroke(signals.AbstractSignal):
    """How much longer a leg is than at rest, for the platform to be where it is wanted [m]."""

    foot: Float[Array, "3"]
    head: Float[Array, "3"]
    heave: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    tilt: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, t):
        leg = wanted(t, self.heave, self.tilt).apply(self.head) - self.foot
        rest = self.head + jnp.array([0.0, 0.0, HEIGHT]) - self.foot
        return jnp.sqrt(leg @ leg) - jnp.sqrt(rest @ rest)


def model(base=BASE, top=TOP, load=LOAD, heave=HEAVE, tilt=TILT, driven=True):
    """Six legs between circles of the radii `base` and `top` [m], under a platform of `load` [kg].

    All joints are at zero where the platform is at rest.
    """
    feet, heads = corners(base, 8.0), corners(top, 52.0)
    bodies = {"platform": mbd.inertia.cylinder(load, top, 0.08)}
    links, drivers = {}, {}
    for k, (foot, head) in enumerate(zip(feet, heads, strict=True), start=1):
        leg = head + jnp.array([0.0, 0.0, HEIGHT]) - foot
        length = jnp.sqrt(leg @ leg)
        turned = so3.from_matrix(so3.basis(leg))  # z runs along the leg.
        half = jnp.stack([0.0 * length, 0.0 * length, 0.3 * length])
        tube = mbd.inertia.rod(6.0, 0.6 * length, axis=(0, 0, 1), radius=0.04)
        rod = mbd.inertia.rod(3.0, 0.6 * length, axis=(0, 0, 1), radius=0.02)
        bodies |= {f"tube{k}": tube, f"rod{k}": rod}
        links |= {
            f"foot{k}": joints.Universal(
                Frame("ground", foot, quat=turned), Frame(f"tube{k}", -half)
            ),
            f"slide{k}": joints.Prismatic(f"tube{k}", Frame(f"rod{k}", -0.4 / 0.3 * half)),
            f"head{k}": joints.Spherical(
                Frame(f"rod{k}", half), Frame("platform", head, quat=turned)
            ),
        }
        drivers[f"drive{k}"] = joints.Driver(f"slide{k}", Stroke(foot, head, heave, tilt))
    return mbd.Model(
        bodies, links, {"gravity": forces.Gravity()}, drivers=drivers if driven else None
    )


@eqx.filter_jit
def look(system, motion):
    """Forces and power of the drives, energy, and how far off the platform is, over time."""

    def at(t, state):
        force = mbd.driving_forces(system, t, state)
        found = mbd.joint_states(system, t, state)
        names = sorted(force)
        pull = jnp.stack([force[name] for name in names])
        speed = jnp.stack([found[f"slide{name[-1]}"].v for name in names])
        platform, goal = system.frames(t, state.q)["platform"], wanted(t)
        off = jnp.maximum(
            jnp.max(jnp.abs(platform.p - goal.p)), jnp.max(jnp.abs(platform.R - goal.R))
        )
        return pull, pull @ speed, mbd.energy(system, t, state).total, off

    return jax.vmap(at)(motion.ts, motion.states)


def plot(ts, pull):
    """Forces of the six drives over time."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axis = figure.subplots()
    axis.plot(ts, pull, label=[f"leg {k}" for k in range(1, 7)])
    axis.set(xlabel="time [s]", ylabel="force of the drive [N]")
    axis.legend(frameon=False, ncols=2)
    axis.grid(alpha=0.3)
    return figure


def main(html=None, png=None):
    """One period of the wanted motion."""
    system = mbd.formulate(model(), mbd.JointCoordinates())
    ts = np.linspace(0.0, PERIOD, 201)
    motion = mbd.kinematics(system, ts)
    pull, power, energy, off = look(system, motion)
    print(f"error of the platform's position: {off.max():.0e} m and rad")
    print(f"forces of the drives: {pull.min():.0f} to {pull.max():.0f} N")
    work = ts[1] * jnp.cumsum(0.5 * (power[1:] + power[:-1]))
    gained = energy - energy[0]
    print(f"energy: {gained.min():.1f} to {gained.max():.1f} J above the start")
    print(f"work of the drives differs from it by {jnp.abs(work - gained[1:]).max():.1e} J at most")
    if png is not None:
        plot(ts, pull).savefig(png, dpi=120)
    if html is not None:
        motion.animate(html, trace="platform")
    return motion


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", help="where to write the animation")
    parser.add_argument("--png", help="where to write the plot")
    main(**vars(parser.parse_args()))
