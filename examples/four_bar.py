"""A four-bar linkage of four hinges in space, which hold its plane three times more than needed.

    python examples/four_bar.py [--html PAGE] [--png PICTURE]

Four parallel hinges leave one degree of freedom where counting finds minus two. Nothing special has
to be done about that: the motion is unique, and so are the reactions within the plane. What keeps
the links in the plane is shared among the hinges in many ways; of these one is reported. The same
linkage with a cross and a ball joint on the coupler has nothing to share.

Printed are what `inspect` finds out about the linkage, reactions of both, and how the coupler's
point moves where the length of a link changes, differentiated through the closed loop.
"""

import argparse

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, inertia, joints

jax.config.update("jax_enable_x64", True)

LENGTHS = {"crank": 0.1, "coupler": 0.3, "rocker": 0.25, "ground": 0.28}  # [m]
AXIS = (0.0, -1.0, 0.0)  # Of the hinges: positive angles turn x towards z.
ANGLE, SPEED = 1.0, 12.0  # Of the crank at the start [rad], [rad/s].
METHOD = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())


def model(crank=0.1, coupler=0.3, rocker=0.25, ground=0.28, normal=AXIS, mass=0.5, hinged=True):
    """Links of these lengths [m] along their x axes, in the plane across `normal`.

    The coupler is a plate of `mass` [kg] beside the plane; its frame `point` is 60 mm above its
    middle. Without `hinged` a cross and a ball joint take the place of its hinges.
    """
    a, n = jnp.asarray(AXIS), jnp.asarray(normal)
    turn = jnp.append(jnp.linalg.norm(n) + a @ n, jnp.cross(a, n))  # The quaternion from a to n.

    def along(x, y=0.0, z=0.0):
        return jnp.stack([jnp.asarray(x, float), jnp.asarray(y, float), jnp.asarray(z, float)])

    plate = inertia.shifted(inertia.box(mass, [0.3, 0.01, 0.06]), along(coupler / 2, -0.03, 0.02))
    rods = {
        name: inertia.shifted(inertia.rod(0.2, length, radius=0.01), along(length / 2))
        for name, length in (("crank", crank), ("rocker", rocker))
    }
    base = Frame("ground", quat=turn)
    ends = Frame("crank", along(crank)), "coupler"
    others = Frame("coupler", along(coupler)), Frame("rocker", along(rocker))
    return mbd.Model(
        bodies=rods | {"coupler": plate},
        joints={
            "left": joints.Revolute(base, "crank", AXIS),
            "crank pin": joints.Revolute(*ends, AXIS)
            if hinged
            else joints.Universal(*ends, AXIS, (0, 0, 1)),
            "rocker pin": joints.Revolute(*others, AXIS) if hinged else joints.Spherical(*others),
            "right": joints.Revolute(base.at(along(ground)), "rocker", AXIS),
        },
        forces={"gravity": mbd.forces.Gravity()},
        frames={"point": Frame("coupler", along(coupler / 2, 0.0, 0.06))},
    )


def posture(angle, hinged=True):
    """Guess of the joint coordinates for a crank at an `angle` [rad]."""
    pin = 0.6 - angle
    return {"left": angle, "crank pin": pin if hinged else [pin, 0.0], "right": 1.6}


def point(angle, **geometry):
    """Position of the coupler's point [m], shape `(3,)`, for an angle of the crank [rad]."""
    system = mbd.formulate(model(**geometry), mbd.JointCoordinates())
    state = mbd.assemble(system, posture(angle), hold="left")
    return system.frames(0.0, state.q)["point"].p


@jax.jit
def sensitivities(angles):
    """Positions of the point, shape `(n, 3)`, and by each length their derivatives."""
    lengths = {name: jnp.asarray(x) for name, x in LENGTHS.items()}
    slope = jax.jacfwd(lambda lengths, angle: point(angle, **lengths))
    return jax.vmap(lambda angle: (point(angle, **lengths), slope(lengths, angle)))(angles)


def plot(p, slopes, angles):
    """The point's path, and how far it moves for each change of a length."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(1e3 * p[:, 0], 1e3 * p[:, 2], color="black")
    left.set(xlabel="x [mm]", ylabel="z [mm]", title="path of the coupler's point", aspect="equal")
    for name, slope in slopes.items():
        right.plot(np.degrees(angles), np.linalg.norm(slope, axis=1), label=name)
    right.set(xlabel="angle of the crank [°]", ylabel="shift of the point [mm/mm]")
    right.set_xticks(range(0, 361, 90))
    right.legend(
        frameon=False, ncols=4, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1)
    )
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return figure


def main(html=None, png=None):
    """Look at the linkage, let it run for a second, and change its lengths."""
    held = {}
    for hinged in (False, True):
        system = mbd.formulate(model(hinged=hinged), mbd.JointCoordinates())
        state = mbd.assemble(system, posture(ANGLE, hinged), {"left": SPEED}, hold="left")
        held[hinged] = mbd.reactions(system, 0.0, state)
    print(mbd.inspect(system, state))
    print("reactions at the start, in the plane and across it, along the axes of the link carried:")
    print(
        f"{'':<18}"
        + "".join(f"{x:>11}" for x in ("fx [N]", "fz [N]", "fy [N]", "τx [N m]", "τz [N m]"))
    )
    for name in ("left", "crank pin", "rocker pin", "right"):
        for hinged, wrench in ((which, held[which][name]) for which in (True, False)):
            shown = np.round(wrench[jnp.array([0, 2, 1, 3, 5])], 4) + 0.0
            title = name if hinged else "  not redundant"
            print(f"{title:<18}" + "".join(f"{x:11.4f}" for x in shown))
    motion = mbd.simulate(system, state, t1=1.0, dt=0.002, integrator=METHOD)
    energy = motion.energy.total
    print(f"after 1 s the energy is off by {abs(energy[-1] / energy[0] - 1):.0e} of itself")
    angles = np.linspace(0.0, 2 * np.pi, 73)
    p, slopes = sensitivities(angles)
    print("largest shift of the point [mm] where a link is 1 mm longer:", end=" ")
    print(", ".join(f"{n} {np.linalg.norm(x, axis=1).max():.3f}" for n, x in slopes.items()))
    if png is not None:
        plot(p, slopes, angles).savefig(png, dpi=120)
    if html is not None:
        motion.animate(html, speed=0.2, trace="point", view=(0.3, -1.0, 0.3))
    return motion


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", help="where to write the animation")
    parser.add_argument("--png", help="where to write the plot")
    main(**vars(parser.parse_args()))
