"""The linkage of a wheel loader digs, lifts and dumps: what its cylinders and pins carry.

    python examples/wheel_loader.py [--html PAGE] [--png PLOT]

A boom on the front frame carries the bucket and, as a Z-bar linkage, the lever and the link that
tilt it. Two hydraulic cylinders, each a barrel and a rod, prescribe the motion. It is plane, but
made of pins and slides of space, so that its three loops constrain it twice over. Dimensions and
masses are invented, of a loader that lifts about 4 t; cylinders, arms and links that come in pairs
are one here. Printed are forces of the cylinders and of the pins, the work of the cylinders beside
the energy that it became, and how far the same motion gets when the cylinders only push that hard.
"""

import argparse

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.lie import so3
from jaxmbd.signals import Spline, Step

jax.config.update("jax_enable_x64", True)

# Where the pins are with the bucket flat on the ground: ahead of the boom's pin, and up [m].
PINS = {
    "boom pin": (0.0, 1.75),
    "bucket pin": (2.13, 0.35),
    "lever pin": (1.32, 1.14),
    "link pin": (1.50, 0.34),  # Lever to link.
    "tilt link pin": (2.10, 0.78),  # Link to bucket.
    "lift foot": (-0.10, 0.80),
    "lift eye": (1.02, 1.10),
    "tilt foot": (0.18, 1.35),
    "tilt eye": (1.08, 1.82),
}
MASSES = {
    "frame": 3200.0,
    "boom": 1300.0,
    "bucket": 1200.0,
    "lever": 240.0,
    "link": 90.0,
    "lift barrel": 150.0,
    "lift rod": 110.0,
    "tilt barrel": 120.0,
    "tilt rod": 90.0,
}
ROLLED, LIFTED, DUMPED = 0.29, 0.86, 0.13  # Strokes of the cylinders [m].
LOAD, RESISTANCE = 40e3, 50e3  # Weight in the bucket, force on its teeth in the heap [N].
TIMES = np.linspace(0.0, 9.0, 361)
METHOD = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())


class Sum(eqx.Module):
    """A signal that is the sum of others."""

    parts: tuple

    def __call__(self, t):
        return sum((part(t) for part in self.parts[1:]), self.parts[0](t))


def upright(point):
    """A point ahead and up, in space [m]."""
    return jnp.stack([jnp.asarray(point[0], float), jnp.zeros(()), jnp.asarray(point[1], float)])


def pin(first, second, point):
    """A hinge across the plane of motion."""
    return joints.Revolute(Frame(first, point), Frame(second, point), axis=(0.0, 1.0, 0.0))


def bar(mass, start, end):
    """A slender body between two points, its frame at the origin."""
    along = end - start
    length = jnp.sqrt(along @ along)
    rod = mbd.inertia.rod(mass, length, axis=along, radius=0.1 * length)
    return mbd.inertia.shifted(rod, 0.5 * (start + end))


def loads():
    """Forces on the bucket over time [N], by the frame at which they act."""
    weight, push = jnp.array([0.0, 0.0, -LOAD]), jnp.array([-RESISTANCE, 0.0, 0.0])
    return {
        "heap": Sum((Step(0.5, 2.5, 0 * weight, weight), Step(7.4, 8.4, 0 * weight, -weight))),
        "lip": Sum((Step(0.2, 0.8, 0 * push, push), Step(1.5, 2.3, 0 * push, -push))),
    }


def strokes():
    """How far the rods are out over time [m]: roll the bucket back, lift the boom, dump."""
    return {
        "lift cylinder": Step(2.0, 7.0, 0.0, LIFTED),
        "tilt cylinder": Sum((Step(0.5, 2.5, 0.0, ROLLED), Step(7.0, 8.5, 0.0, DUMPED - ROLLED))),
    }


def model(pins=None, masses=None, slope=(0.0, 0.0, 0.0), pushes=None):
    """The linkage, with all frames where the machine's is while the bucket is on the ground.

    **Arguments:** `pins` [m] and `masses` [kg] that are not those of `PINS` and `MASSES`; `slope`
    of the ground, a rotation vector [rad]; `pushes`, signals of the forces of the cylinders [N],
    without which their strokes are driven.
    """
    at = {name: upright(point) for name, point in (PINS | (pins or {})).items()}
    masses = MASSES | (masses or {})
    heap, lip = (at["bucket pin"] + upright(step) for step in ((0.50, 0.35), (1.15, -0.25)))
    box = mbd.inertia.box(masses["frame"], [1.0, 0.9, 1.2])
    bodies = {
        "frame": mbd.inertia.shifted(box, [-0.2, 0.0, 1.0]),
        "boom": bar(masses["boom"], at["boom pin"], at["bucket pin"]),
        "bucket": bar(masses["bucket"], at["tilt link pin"], lip),
        "lever": bar(masses["lever"], at["tilt eye"], at["link pin"]),
        "link": bar(masses["link"], at["link pin"], at["tilt link pin"]),
    }
    links = {
        "mount": joints.Fixed(Frame("ground", quat=so3.exp(jnp.asarray(slope))), "frame"),
        "boom pin": pin("frame", "boom", at["boom pin"]),
        "bucket pin": pin("boom", "bucket", at["bucket pin"]),
        "lever pin": pin("boom", "lever", at["lever pin"]),
        "link pin": pin("lever", "link", at["link pin"]),
        "tilt link pin": pin("link", "bucket", at["tilt link pin"]),
    }
    for name, carried in (("lift", "boom"), ("tilt", "lever")):
        foot, eye = at[f"{name} foot"], at[f"{name} eye"]
        barrel, rod = f"{name} barrel", f"{name} rod"
        bodies[barrel] = bar(masses[barrel], foot, 0.3 * foot + 0.7 * eye)
        bodies[rod] = bar(masses[rod], 0.7 * foot + 0.3 * eye, eye)
        links[f"{name} foot"] = pin("frame", barrel, foot)
        links[f"{name} eye"] = pin(rod, carried, eye)
        slide = Frame(barrel, foot), Frame(rod, foot)
        links[f"{name} cylinder"] = joints.Prismatic(*slide, axis=eye - foot)
    frames = {"heap": Frame("bucket", heap), "lip": Frame("bucket", lip)}
    acting = {name: forces.AppliedForce(frames[name], load) for name, load in loads().items()}
    acting["gravity"] = forces.Gravity()
    if pushes is None:
        drivers = {name: joints.Driver(name, stroke) for name, stroke in strokes().items()}
        return mbd.Model(bodies, links, acting, frames, drivers=drivers)
    acting |= {name: forces.JointTorque(name, push) for name, push in pushes.items()}
    return mbd.Model(bodies, links, acting, frames)


@eqx.filter_jit
def look(motion):
    """Over time: forces of the cylinders and reactions [N], energy [J], powers [W].

    The powers are those of the cylinders and of the loads.
    """
    system, pulls = motion.system, loads()

    def at(t, state):
        frames, twists = system.frames(t, state.q), system.twists(t, state.q, state.v)
        given = sum(pull(t) @ frames[n].R @ twists[n][:3] for n, pull in pulls.items())
        pushes, moved = mbd.driving_forces(system, t, state), mbd.joint_states(system, t, state)
        spent = sum(push * moved[name].v for name, push in pushes.items())
        found = mbd.reactions(system, t, state), mbd.energy(system, t, state).total
        return pushes, *found, jnp.stack([spent, given])

    return jax.vmap(at)(motion.ts, motion.states)


def integral(ts, values):
    """Over the whole time, by Simpson's rule."""
    weights = np.ones(len(ts))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    return (ts[1] - ts[0]) / 3.0 * jnp.sum(weights[:, None] * values, axis=0)


def pushed(motion, pushes, first, last):
    """Part of the motion without drivers, by cylinders that push that hard.

    Held by forces alone, a bucket under a load is an inverted pendulum: an error grows by e within
    a fifth of a second, and twice as fast while the heap resists.
    """
    splines = {name: Spline(motion.ts, push) for name, push in pushes.items()}
    system = mbd.formulate(model(pushes=splines), mbd.JointCoordinates())
    start, ts = jax.tree.map(lambda x: x[first], motion.states), motion.ts
    return mbd.simulate(
        system, start, t0=ts[first], t1=ts[last], dt=ts[1] - ts[0], integrator=METHOD
    )


def outline():
    """Points of the bodies to draw lines through, ahead and up where the machine was drawn [m]."""
    tip = [np.add(PINS["bucket pin"], step) for step in ((0.55, 0.9), (-0.1, -0.25), (1.15, -0.25))]
    lines = {
        "boom": ("boom pin", "lift eye", "lever pin", "bucket pin"),
        "lever": ("tilt eye", "lever pin", "link pin"),
        "link": ("link pin", "tilt link pin"),
    }
    found = {body: [PINS[name] for name in names] for body, names in lines.items()}
    found["bucket"] = [tip[0], PINS["tilt link pin"], PINS["bucket pin"], *tip[1:]]
    return {body: np.asarray(points) for body, points in found.items()}


def draw(axes, motion, k):
    """The linkage at one time, seen from the side."""
    ahead_up = (0, 2)
    for body, points in outline().items():
        frame = motion.frames[body]
        p, R = (np.asarray(x[k]) for x in (frame.p, frame.R))
        line = points @ R[np.ix_(ahead_up, ahead_up)].T + p[list(ahead_up)]
        axes.plot(*line.T, "o-", color=f"C{list(outline()).index(body)}", ms=3)
    for name in ("lift", "tilt"):
        frame = motion.frames[f"{name} rod"]
        eye = np.asarray(frame.R[k] @ upright(PINS[f"{name} eye"]) + frame.p[k])
        axes.plot(*np.transpose([PINS[f"{name} foot"], eye[[0, 2]]]), "o-", color="0.5", lw=3, ms=4)
    axes.set(title=f"t = {float(motion.ts[k]):.1f} s", aspect="equal", xlim=(-0.5, 4.2))
    axes.set(ylim=(0.0, 4.6), xlabel="ahead [m]", ylabel="up [m]")


def plot(motion, pushes, reactions):
    """The linkage at four times, and forces over time."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    for axes, t in zip(top.subplots(1, 4, sharey=True), (0.0, 2.5, 7.0, 9.0), strict=True):
        draw(axes, motion, int(np.argmin(np.abs(motion.ts - t))))
        axes.label_outer()
    left, right = bottom.subplots(1, 2)
    for name, push in pushes.items():
        left.plot(motion.ts, push / 1e3, label=name)
    for name in ("boom pin", "bucket pin", "lever pin", "link pin"):
        right.plot(motion.ts, size(reactions[name]) / 1e3, label=name)
    for axes, what in ((left, "force of the cylinder [kN]"), (right, "force of the pin [kN]")):
        axes.set(xlabel="time [s]", ylabel=what)
        axes.legend(frameon=False)
    return figure


def size(reaction):
    """Force of a pin [N], in the plane of motion."""
    return jnp.hypot(reaction[:, 0], reaction[:, 2])


def main(html=None, png=None, ts=TIMES):
    """Dig, lift and dump within nine seconds."""
    system = mbd.formulate(model(), mbd.JointCoordinates())
    motion = mbd.kinematics(system, ts)
    pushes, reactions, energy, powers = look(motion)
    lip = motion.frames["lip"].p
    print(f"lip of the bucket: up to {lip[:, 2].max():.2f} m, dumps at {lip[-1, 2]:.2f} m")
    for name, push in pushes.items():
        print(f"{name}: {push.min() / 1e3:.1f} to {push.max() / 1e3:.1f} kN")
    for name in PINS:
        forces = size(reactions[name])
        at = float(motion.ts[jnp.argmax(forces)])
        print(f"{name}: up to {forces.max() / 1e3:.1f} kN, at {at:.2f} s")
    spent, given = integral(ts, powers)
    gained = float(energy[-1] - energy[0])
    print(
        f"work of the cylinders {spent / 1e3:.3f} kJ, of the loads {given / 1e3:.3f} kJ,", end=" "
    )
    print(f"energy gained {gained / 1e3:.3f} kJ: off by {abs(spent + given - gained):.1e} J")
    first, last = np.searchsorted(ts, [3.0, 5.0])
    free = pushed(motion, pushes, first, last)
    off = jnp.abs(free.frames["lip"].p - lip[first : last + 1]).max()
    print(f"pushed by these forces alone from {ts[first]} to {ts[last]} s: off by {off:.1e} m")
    if png is not None:
        plot(motion, pushes, reactions).savefig(png, dpi=120)
    if html is not None:
        motion.animate(html, trace="lip", labels=False, view=(0.3, -1.0, 0.2))
    return motion, free


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", help="where to write the animation")
    parser.add_argument("--png", help="where to write the plot")
    main(**vars(parser.parse_args()))
