"""A grapple skidder drops on a washboard and comes to rest: energies, modes and stability margin.

    python examples/skidder.py [--png PICTURE] [--energies PLOT] [--modes PLOT] [--html PAGE]

The machine of papers/4, figures 11 to 13, with data of its own: two frames with an articulation
between them, an oscillating front axle, four tyres, an arch and a boom moved by hydraulic
cylinders, a grapple that swings on the boom, and a log that drags on the ground. The loops of both
cylinders share the arch. The oil in the cylinders is a stiff, damped spring, or has pressures as
states. Dimensions and masses are invented, of a machine of 17 t. Printed are energies and places of
the drop, with and without drainage of energy, the static equilibrium, its modes, and its stability
margin with derivatives by the angle of the boom and by the slope of the ground.
"""

import argparse
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, contact, forces, inertia, joints, tyres
from jaxmbd.lie import so3

jax.config.update("jax_enable_x64", True)

# Points ahead of the articulation, to the left of the middle, and above the level ground [m].
# The y axis points to the left; all hinges but the articulation and the front axle are along it.
PINS = {
    "articulation": (0.0, 0.0, 1.0),
    "front axle": (1.75, 0.0, 0.92),
    "rear axle": (-1.75, 0.0, 0.92),
    "arch pin": (-1.1, 0.0, 2.0),
    "boom pin": (-2.9, 0.0, 3.0),
    "crosshead": (-4.1, 0.0, 2.6),
    "bite": (-4.1, 0.0, 1.25),
    "arch foot": (-2.25, 0.0, 1.25),
    "arch eye": (-2.0, 0.0, 2.7),
    "boom foot": (-0.9, 0.0, 2.55),
    "boom eye": (-2.85, 0.0, 3.5),
}
# Mass [kg], edges of the uniform box of the same inertia [m], and its centre [m].
BOXES = {
    "front frame": (7200.0, (2.8, 1.3, 1.3), (1.5, 0.0, 1.5)),
    "front axle": (900.0, (0.4, 2.0, 0.4), (1.75, 0.0, 0.92)),
    "rear frame": (3600.0, (2.2, 1.2, 0.9), (-1.3, 0.0, 1.2)),
    "arch": (700.0, (2.0, 0.9, 0.3), (-2.0, 0.0, 2.5)),
    "boom": (350.0, (1.3, 0.4, 0.3), (-3.4, 0.0, 2.85)),
    "grapple": (650.0, (0.5, 0.9, 1.2), (-4.1, 0.0, 1.8)),
}
CYLINDERS = {"arch": ("arch", 90.0), "boom": ("boom", 80.0)}  # Moved body, mass of each half [kg].
BORE, OIL, BULK = 0.14, 0.6, 1.2e9  # Bore and height of the oil [m], bulk modulus [Pa].
OIL_DAMPING = 3e5  # [N s/m].
WHEEL, RADIUS, WIDTH, TRACK = 620.0, 0.92, 0.75, 2.5  # [kg], [m].
TYRE, TYRE_DAMPING = 6e5, 1e4  # [N/m, N s/m].
SLIP, FRICTION, RELAXATION = 6.0, 0.8, (0.5, 0.5)
LOG, LOG_RADIUS, LOG_LENGTH, LOG_PITCH = 1000.0, 0.22, 8.0, -0.14  # [kg], [m], [rad].
AMPLITUDE, WAVELENGTH, HEADING = 0.2, 4.4, 0.25  # Of the washboard [m], of the machine [rad].
PLACE, DROP = 0.6, 0.15  # Articulation along x, wheels above the crests at first [m].
STEERING = (2e7, 3e5)  # Stiffness and damping of the articulation [N m/rad, N m s/rad].
CORNERS = {
    "front left": ("front axle", 0.5),
    "front right": ("front axle", -0.5),
    "rear left": ("rear frame", 0.5),
    "rear right": ("rear frame", -0.5),
}
DRAIN, ZERO = 2.0, 1e-6  # ω of drainage, and eigenvalues that count as zero [1/s].
STICKING = 1e3  # Coefficient of friction of a log that does not slide.
ACROSS = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # Disc with its axle on y.
ALONG = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])  # Capsule along x.
Y = (0.0, 1.0, 0.0)


class Brake(forces.AbstractField):
    """Energy drainage: every body meets -2 ω times its momentum [N, N m]."""

    omega: Array

    def wrench(self, t, body, X_WB, V):
        turned = so3.cross(V[3:], body.com)
        force = -2.0 * self.omega * body.mass * (V[:3] + turned)
        moment = so3.cross(body.com, force) - 2.0 * self.omega * (body.inertia @ V[3:])
        return jnp.concatenate([force, moment])


class OilPressures(forces.AbstractJointElement):
    """Oil shut in on both sides of a piston, with the pressures p [Pa] beyond those of assembly.

    ṗ = β v (-1/l, 1/l) at the height l of the oil, force A·p - c v with the areas A = (A_a, -A_b).
    """

    joint: Any
    areas: Array
    rate: Array
    damping: Array

    def __init__(self, joint, areas, rate, damping):
        self.joint = mbd.extend.as_joint_reference(joint)
        self.areas, self.rate, self.damping = map(jnp.asarray, (areas, rate, damping))

    @property
    def n_states(self):
        return 2

    def state_rates(self, t, q, v, z):
        return self.rate * jnp.array([-1.0, 1.0]) * v[0]

    def load(self, t, q, v, z):
        return self.areas @ z - self.damping * v


def point(name):
    """A point of `PINS`, of a machine on level ground whose cylinders have no stroke."""
    return jnp.asarray(PINS[name])


def stroke(name, arch, boom):
    """How far a rod is out [m] with the arch and the boom turned by angles about y [rad]."""

    def turned(at, about, angle):
        return about + so3.exp_matrix(angle * jnp.asarray(Y)) @ (at - about)

    foot, eye = point(f"{name} foot"), point(f"{name} eye")
    at = eye if name == "arch" else turned(eye, point("boom pin"), boom)
    at = turned(at, point("arch pin"), arch) - foot
    return jnp.sqrt(at @ at) - jnp.sqrt((eye - foot) @ (eye - foot))


def hinge(first, second, at, axis=Y):
    """A hinge at a point, by default across the machine."""
    return joints.Revolute(Frame(first, at), Frame(second, at), axis=axis)


def bar(mass, start, end):
    """A slender body between two points."""
    along = end - start
    length = jnp.sqrt(along @ along)
    rod = inertia.rod(mass, length, axis=along, radius=0.1)
    return inertia.shifted(rod, 0.5 * (start + end))


def cylinder(name, rest, pressures):
    """Bodies, joints and oil of a hydraulic cylinder between the rear frame and another body."""
    moved, mass = CYLINDERS[name]
    barrel, rod = f"{name} barrel", f"{name} rod"
    foot, eye = point(f"{name} foot"), point(f"{name} eye")
    along = eye - foot
    bodies = {
        barrel: bar(mass, foot, 0.35 * foot + 0.65 * eye),
        rod: bar(mass, 0.65 * foot + 0.35 * eye, eye),
    }
    feet = Frame("rear frame", foot), Frame(barrel, foot)
    links = {
        # Spherical bearings on both ends, of which one holds the turn about the axis.
        f"{name} foot": joints.Universal(*feet, Y, so3.cross(jnp.asarray(Y), along)),
        f"{name} cylinder": joints.Prismatic(Frame(barrel, foot), Frame(rod, foot), axis=along),
        f"{name} eye": joints.Spherical(Frame(rod, eye), Frame(moved, eye)),
    }
    areas = np.pi / 4 * np.array([BORE**2, -(BORE**2 - 0.08**2)])
    joint = f"{name} cylinder"
    if pressures:
        oil = OilPressures(joint, areas, BULK / OIL, OIL_DAMPING)
    else:
        stiffness = BULK / OIL * np.sum(np.abs(areas))
        oil = forces.TorsionalSpringDamper(joint, stiffness, OIL_DAMPING, rest)
    return bodies, links, {f"{name} oil": oil}


def wheels(terrain):
    """Bodies, joints and tyres of the four wheels."""
    bodies, links, acting = {}, {}, {}
    for name, (axle, side) in CORNERS.items():
        at = point(f"{name.split()[0]} axle") + jnp.array([0.0, side * TRACK, 0.0])
        wheel = f"{name} wheel"
        body = inertia.cylinder(WHEEL, 0.75 * RADIUS, WIDTH, axis=Y)
        bodies[wheel] = inertia.shifted(body, at)
        links[f"{name} hub"] = hinge(axle, wheel, at)
        acting[f"{name} drag"] = forces.TorsionalSpringDamper(f"{name} hub", 0.0, 300.0)
        acting[f"{name} tyre"] = forces.Tyre(
            contact.Disc(Frame(wheel, at, R=ACROSS), RADIUS),
            terrain,
            contact.KelvinVoigt(TYRE, TYRE_DAMPING),
            tyres.Brush(SLIP, FRICTION),
            RELAXATION,
            footprint=(0.5, 0.6),
            n_points=3,
        )
    return bodies, links, acting


def load(terrain, friction):
    """Body, joint and forces of the log between the tongs."""
    bite = point("bite")
    middle = bite + jnp.array([0.6 - 0.5 * LOG_LENGTH, 0.0, 0.0])
    log = inertia.cylinder(LOG, LOG_RADIUS, LOG_LENGTH, axis=(1.0, 0.0, 0.0))
    acting = {
        "tongs": forces.TorsionalSpringDamper("bite", 2e5, 1e4, LOG_PITCH),
        "log on ground": forces.Contact(
            contact.Capsule(
                Frame("log", middle, R=ALONG), LOG_RADIUS, LOG_LENGTH - 2 * LOG_RADIUS, 5
            ),
            terrain,
            contact.HuntCrossley(3e5, 0.3, 1.0, onset=2e-3),
            contact.Bristle(friction, 200.0, 20.0),
        ),
    }
    return {"log": inertia.shifted(log, middle)}, {"bite": hinge("grapple", "log", bite)}, acting


def ground(slope):
    """A washboard along x on ground that rises to the left of the machine by an angle [rad]."""
    side = jnp.tan(jnp.asarray(slope)) * jnp.array([-np.sin(HEADING), np.cos(HEADING)])
    return contact.Terrain("ground", contact.Washboard(AMPLITUDE, WAVELENGTH) + contact.Slope(side))


def model(arch=0.0, boom=0.0, slope=0.0, steer=0.0, drain=0.0, pressures=False, friction=0.5):
    """The machine, its cylinders set for angles of the arch and the boom [rad].

    **Arguments:** `slope` of the ground across the machine and angle `steer` of the articulation
    [rad]; `drain`, ω of the drainage of energy [1/s]; `pressures`: whether oil has states;
    `friction` of the log on the ground.
    """
    terrain = ground(slope)
    bodies: dict[str, Any] = {
        name: inertia.shifted(inertia.box(mass, size), centre)
        for name, (mass, size, centre) in BOXES.items()
    }
    links: dict[str, Any] = {
        "place": joints.Free(mbd.ground, "rear frame"),
        "articulation": hinge("rear frame", "front frame", point("articulation"), (0.0, 0.0, 1.0)),
        "oscillation": hinge("front frame", "front axle", point("front axle"), (1.0, 0.0, 0.0)),
        "arch pin": hinge("rear frame", "arch", point("arch pin")),
        "boom pin": hinge("arch", "boom", point("boom pin")),
        "crosshead": joints.Universal(
            Frame("boom", point("crosshead")), Frame("grapple", point("crosshead")), Y, (1.0, 0, 0)
        ),
    }
    acting: dict[str, Any] = {
        "gravity": forces.Gravity(),
        "steering": forces.TorsionalSpringDamper("articulation", *STEERING, steer),
        "friction of the axle": forces.TorsionalSpringDamper("oscillation", 0.0, 5e3),
        "snubber": forces.TorsionalSpringDamper("crosshead", 0.0, 2e3),
        "drain": Brake(jnp.asarray(drain)),
    }
    parts = [cylinder(name, stroke(name, arch, boom), pressures) for name in CYLINDERS]
    for more in (*parts, wheels(terrain), load(terrain, friction)):
        for whole, added in zip((bodies, links, acting), more, strict=True):
            whole |= added
    return mbd.Model(bodies, links, acting)


def above(system, x=PLACE, arch=0.0, boom=0.0, slope=0.0):
    """The machine at rest above the ground, its wheels by `DROP` above the crests at x [m]."""
    tilt = so3.exp_matrix(jnp.asarray(slope) * jnp.array([np.cos(HEADING), np.sin(HEADING), 0.0]))
    R = tilt @ so3.exp_matrix(HEADING * jnp.array([0.0, 0.0, 1.0]))
    up = tilt[:, 2] * (AMPLITUDE + DROP)
    guess = {"place": mbd.Pose(jnp.array([x, 0.0, 0.0]) + up, R), "bite": LOG_PITCH}
    return mbd.assemble(system, guess | {"arch pin": arch, "boom pin": boom})


def drop(drain=0.0, t1=4.0, saveat=0.02, **places):
    """Motion of the machine from rest above the ground, with energy drained at ω = `drain`."""
    system = mbd.formulate(model(drain=drain), mbd.JointCoordinates())
    method = mbd.ExplicitRK(diffrax.Bosh3())
    return mbd.simulate(
        system, above(system, **places), t1=t1, dt=1e-3, integrator=method, saveat=saveat
    )


def wheel_loads(system, state):
    """Loads of the tyres [N], in the order of `CORNERS`."""
    found = mbd.tyre_contacts(system, 0.0, state)
    return jnp.stack([found[f"{name} tyre"].load for name in CORNERS])


def margin(settings, state):
    """Load of the lightest tyre by the mean load, at the equilibrium near a state of rest.

    `settings` of `model` change slowly from those of the state, with tyres and log that stick.
    """
    system = mbd.formulate(model(**settings, friction=STICKING), mbd.JointCoordinates())
    loads = wheel_loads(system, mbd.equilibrium(system, state, method="newton").state)
    return jnp.min(loads) / jnp.mean(loads)


# In one program, which leaves out derivatives of eigenvalues that nothing reads.
margin_and_slopes = jax.jit(jax.value_and_grad(margin))


def slowest(linear):
    """Eigenvalue with the largest real part, of those that are not zero [1/s].

    Tyres and bristles at rest keep their deflection, with an eigenvalue of zero for each.
    """
    values = linear.eigen().values
    values = values[jnp.abs(values) > ZERO]
    return complex(values[jnp.argmax(values.real)])


@eqx.filter_jit
def energies_of(solution):
    """Kinetic and potential energy over time [J], the latter with that of springs and tyres."""

    def at(t, state):
        found = mbd.energy(solution.system, t, state)
        return jnp.stack([found.kinetic, found.potential])

    return jax.vmap(at)(solution.ts, solution.states)


def picture(motion, state):
    """The machine above the ground and at rest, with the forces on its tyres."""
    from skidder_picture import paint

    figure = Figure(figsize=(11, 9), layout="constrained")
    first = jax.tree.map(lambda x: x[0], motion.states)
    named = {"above the ground": first, "at rest": state}
    for axes, (title, y) in zip(figure.subplots(2, 1), named.items(), strict=True):
        frames = motion.system.frames(0.0, y.q)
        found = mbd.tyre_contacts(motion.system, 0.0, y)
        arrows = [(x.position, x.force / 25e3) for x in found.values() if x.load > 0]
        paint(axes, globals(), frames, arrows)
        axes.set_title(title)
    return figure


def plot(motion, damped):
    """Kinetic and potential energy of the drop, and of the drop with drainage."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for solution, label in ((motion, "drop"), (damped, "with drainage")):
        for axis, values in zip(axes, np.asarray(energies_of(solution)).T / 1e3, strict=True):
            axis.plot(solution.ts, values, label=label)
    for axis, kind in zip(axes, ("kinetic", "potential"), strict=True):
        axis.set(xlabel="time [s]", ylabel=f"{kind} energy [kJ]")
        axis.legend(frameon=False)
    return figure


def plot_modes(linear):
    """Eigenvalues, and shares of joints and bodies in the modes, every fifth with its number."""
    figure = linear.modes().plot()
    for axes in figure.axes[1:]:
        first, last = (round(x) for x in axes.get_xlim())
        numbers = range(first, last, 5)
        axes.set_xticks(numbers, map(str, numbers))
    return figure


def analysis(system, rest):
    """Modes, loads and stability margin of the machine at rest, the latter with derivatives."""
    for name, load_of in zip(CORNERS, wheel_loads(system, rest.state), strict=True):
        print(f"  {name}: {float(load_of) / 1e3:.2f} kN")
    linear = mbd.linearize(system, 0.0, rest.state)
    value = slowest(linear)
    print(f"slowest of {linear.A.shape[0]} eigenvalues: {value.real:.3f} + {value.imag:.3f}i 1/s")
    at = {name: jnp.zeros(()) for name in ("boom", "slope")}
    found, slopes = margin_and_slopes(at, rest.state)
    print(f"stability margin {float(found):.4f}, derivatives", end=" ")
    print(", ".join(f"{float(x):.4f} 1/rad by the {name}" for name, x in slopes.items()))
    return linear, (found, slopes)


def main(png=None, energies=None, modes=None, html=None):
    """Drop the machine, with and without drainage, bring it to rest, and analyse the rest."""
    motion, damped = drop(), drop(drain=DRAIN)
    for solution, label in ((motion, "drop"), (damped, "with drainage")):
        kinetic, potential = np.asarray(energies_of(solution)).T / 1e3
        place = solution.frames["rear frame"].p
        print(f"{label}: rolls by {float(place[-1, 0] - place[0, 0]):.3f} m along the waves,")
        print(f"  from {potential[0]:.2f} to {potential[-1]:.2f} kJ, with up to", end=" ")
        print(f"{kinetic.max():.2f} kJ of kinetic energy, {1e3 * kinetic[-1]:.1f} J at the end")
    rest = mbd.equilibrium(motion.system, jax.tree.map(lambda x: x[0], motion.states))
    drainage, newton = (int(count) for count in rest.steps)
    print(f"equilibrium: {drainage} steps of drainage, {newton} of Newton's method,", end=" ")
    print("stable" if bool(rest.stable) else "unstable")
    print(f"lowest natural frequency {float(rest.eigenvalues[0]) ** 0.5:.3f} rad/s")
    linear, found = analysis(motion.system, rest)
    if png is not None:
        picture(motion, rest.state).savefig(png, dpi=90)
    if energies is not None:
        plot(motion, damped).savefig(energies, dpi=120)
    if modes is not None:
        plot_modes(linear).savefig(modes, dpi=90)
    if html is not None:
        motion.animate(html, view=(0.75, -1.0, 0.42))
    return motion, damped, rest, linear, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", help="where to write the picture")
    parser.add_argument("--energies", help="where to write the plot of energies")
    parser.add_argument("--modes", help="where to write the plot of modes")
    parser.add_argument("--html", help="where to write the animation")
    main(**vars(parser.parse_args()))
