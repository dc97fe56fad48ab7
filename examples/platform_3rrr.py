"""The 3-RRR platform of Attia's paper on equivalent particles: a plane manipulator of three legs.

    python examples/platform_3rrr.py [--html PAGE] [--png PICTURE]

Three legs of two rods each carry a platform in a vertical plane, on nine hinges. It starts from
rest and falls under its weight, pushed by 10 N along x. Two descriptions move alike: the paper's
particles in the plane, which the hinges share, and angles of hinges in space, whose loops hold the
plane several times. Printed are their sizes and how far apart they come, the energy's error, and
the torques by which motors at the hips would hold the platform where it starts.

The paper (H. A. Attia, particles and a velocity transformation) gives masses, inertias and the
push. Lengths and the rest are chosen: rods of 2 m then have its inertia, and so has a platform of
2 m a side.
"""

import argparse

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints

jax.config.update("jax_enable_x64", True)

BASE = np.array([[-3.0, -np.sqrt(3)], [3.0, -np.sqrt(3)], [0.0, 2 * np.sqrt(3)]])  # Of hips [m].
CORNERS = BASE / 3.0  # Of the platform, from its centre [m].
LENGTHS = ((2.0, 2.0),) * 3  # Of the lower and the upper rod of each leg [m].
LEGS = (1, 2, 3)
RODS = {
    **{f"lower{k}": (f"hip{k}", f"knee{k}") for k in LEGS},
    **{f"upper{k}": (f"knee{k}", f"ankle{k}") for k in LEGS},
}
PUSH = 10.0  # [N]
METHOD = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())


def model(base=BASE, corners=CORNERS, lengths=LENGTHS, mass=3.0):
    """The platform, of `mass` [kg], and its legs, under their weight and the push.

    Hips are at the points `base` of the xy plane, ankles at `corners` of the platform [m], shape
    `(3, 2)` each; `lengths` are those of the two rods of each leg [m].
    """
    # A little thicker than a plate, as particles in space need it.
    bodies, links = {"platform": mbd.RigidBody(mass, [0.55, 0.55, 1.0])}, {}
    for k, at, corner, pair in zip(LEGS, base, corners, lengths, strict=True):
        lower, upper = f"lower{k}", f"upper{k}"
        bodies |= dict.fromkeys((lower, upper), mbd.inertia.rod(1.0, 2.0))
        half = [jnp.zeros(3).at[0].set(0.5 * length) for length in pair]
        links |= {
            f"hip{k}": joints.Revolute(
                Frame("ground", jnp.append(at, 0.0)), Frame(lower, -half[0])
            ),
            f"knee{k}": joints.Revolute(Frame(lower, half[0]), Frame(upper, -half[1])),
            f"ankle{k}": joints.Revolute(
                Frame(upper, half[1]), Frame("platform", jnp.append(corner, 0.0))
            ),
        }
    loads = {
        "gravity": forces.Gravity([0.0, -9.81, 0.0]),
        "push": forces.AppliedForce("platform", [PUSH, 0.0, 0.0]),
    }
    return mbd.Model(bodies, links, loads)


def posture(pose, base=BASE, corners=CORNERS, lengths=LENGTHS):
    """Angles of the tree's hinges with the platform at `pose`, `[x, y, angle]`, in closed form."""
    c, s = jnp.cos(pose[2]), jnp.sin(pose[2])
    turn, angles = jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])]), {}
    for k, at, corner, (lower, upper) in zip(LEGS, base, corners, lengths, strict=True):
        tip = pose[:2] + turn @ jnp.asarray(corner)
        d = tip - at
        along = 0.5 * (1.0 + (lower**2 - upper**2) / (d @ d))
        across = jnp.sqrt(lower**2 / (d @ d) - along**2)
        knee = at + along * d + across * jnp.stack([-d[1], d[0]])
        hip, bend = (jnp.arctan2(r[1], r[0]) for r in (knee - at, tip - knee))
        angles |= {f"hip{k}": hip, f"knee{k}": bend - hip}
        if k == 1:
            angles["ankle1"] = pose[2] - bend
    return angles


def plot(motion):
    """The path of the platform's centre, like the paper's figure 4, and its turning."""
    p = motion.frames["platform"].p
    angle = np.unwrap(np.arctan2(*motion.frames["platform"].R[:, 1::-1, 0].T))
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(p[:, 0], p[:, 1], color="black", linewidth=1)
    left.set(xlabel="x [m]", ylabel="y [m]", title="path of the platform", aspect="equal")
    for values, label in ((p[:, 0], "x [m]"), (p[:, 1], "y [m]"), (angle, "angle [rad]")):
        right.plot(motion.ts, values, label=label)
    right.set_xlabel("time [s]")
    right.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return figure


def main(html=None, png=None, t1=4.0):
    """Hold the platform, let it go, and compare."""
    start, motions = posture(jnp.zeros(3)), []
    for formulation in (mbd.PointCoordinates("xy", RODS), mbd.JointCoordinates()):
        system = mbd.formulate(model(), formulation)
        state = mbd.assemble(system, start)
        _, multipliers = mbd.accelerations(system, 0.0, state)
        name = type(formulation).__name__
        print(f"{name}: {state.q.size} coordinates, {multipliers.size} constraints")
        motions.append(mbd.simulate(system, state, t1=t1, dt=0.005, integrator=METHOD))
    hips = [f"hip{k}" for k in LEGS]
    held = mbd.driving_forces(system, 0.0, state, jnp.zeros_like(state.v), hips)
    print("held at the start by", ", ".join(f"{held[hip]:.1f}" for hip in hips), "N m at the hips")
    paths = [motion.frames["platform"].p for motion in motions]
    lowest = float(paths[0][:, 1].min())
    print(f"let go, the platform falls by {-lowest:.3f} m; in {t1:g} s the two come", end=" ")
    print(f"{jnp.abs(paths[0] - paths[1]).max():.0e} m apart")
    energy = motions[0].energy.total - PUSH * paths[0][:, 0]
    print(f"energy less the work of the push changes by {jnp.ptp(energy):.0e} J", end=" ")
    print(f"of up to {motions[0].energy.kinetic.max():.0f} J of motion")
    if png is not None:
        plot(motions[0]).savefig(png, dpi=120)
    if html is not None:
        motions[0].animate(html, trace="platform", view=(0.0, -0.3, 1.0))
    return motions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", help="where to write the animation")
    parser.add_argument("--png", help="where to write the plot")
    main(**vars(parser.parse_args()))
