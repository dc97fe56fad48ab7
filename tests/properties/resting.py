"""Mechanisms at rest whose terms cancel: by symmetry, by preload, or since nothing acts at all."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals
from jaxmbd.system.abstract import reference_values
from jaxmbd.system.mass_and_energy import twist_rates
from tests.properties.sketches import turned

CORNERS = {"fl": (1.3, 0.75), "fr": (1.3, -0.75), "rl": (-1.4, 0.75), "rr": (-1.4, -0.75)}
HINGE = [(1.0, 0.0, 0.0)]
Z = np.array([0.0, 0.0, 1.0])
AWAY = np.array([0.6, -0.48, 0.64])
SHIFTS = [0.0, 1.0, 10.0, 1000.0]  # [m]
EXACT = [(0.0, 0.0), (0.0, 1.0), (1000.0, 0.0), (1000.0, 1.0)]


def car(preload=0.0):
    """A chassis in free fall with four wheels on slides, the front ones on driven knuckles.

    **Arguments:** `preload`: force of a spring above and of one below each carrier [N].
    """
    bodies = {"chassis": mbd.inertia.box(1200.0, (4.0, 1.6, 0.6))}
    links, loads = {"base": joints.Free("ground", "chassis")}, {"gravity": forces.Gravity()}
    for name, (x, y) in CORNERS.items():
        bodies[f"{name} carrier"] = mbd.inertia.sphere(20.0, 0.1)
        bodies[f"{name} wheel"] = mbd.inertia.cylinder(18.0, 0.3, 0.2, axis=(0, 1, 0))
        at = Frame("chassis", (x, y, -0.3))
        links[f"{name} slide"] = joints.Prismatic(at, f"{name} carrier", axis=(0, 0, 1))
        below = f"{name} carrier"
        if name[0] == "f":
            bodies[f"{name} knuckle"] = mbd.inertia.sphere(8.0, 0.1)
            links[f"{name} steering"] = joints.Revolute(below, f"{name} knuckle", axis=(0, 0, 1))
            below = f"{name} knuckle"
        links[f"{name} axle"] = joints.Revolute(below, f"{name} wheel", axis=(0, 1, 0))
        for side in (-1.0, 1.0) if preload else ():
            end = Frame("chassis", (x, y, -0.3 + 0.4 * side))
            spring = forces.SpringDamper(end, f"{name} carrier", preload / 0.1, 0.3)
            loads[f"{name} spring {side:+.0f}"] = spring
    drivers = {"turn": joints.Driver("fl steering", signals.Step(1.0, 2.0, 0.0, 0.1))}
    return mbd.Model(bodies, links, loads, drivers=drivers)


def platform(n=6):
    """A platform held by n driven legs, each a tube on the ground and a rod with a ball.

    Six legs stand on cross joints, three on hinges.
    """
    bodies = {"platform": mbd.inertia.cylinder(120.0, 0.55, 0.08)}
    links, drivers = {}, {}
    for k in range(n):
        phi = 2 * np.pi * k / n
        foot = turned(Z, phi) @ [0.9, 0.0, 0.0]
        head = turned(Z, phi + (0.5 if k % 2 else -0.5)) @ [0.55, 0.0, 0.0]
        leg = head + 1.1 * Z - foot
        length, direction = np.linalg.norm(leg), leg / np.linalg.norm(leg)
        side = np.cross(direction, Z) / np.linalg.norm(np.cross(direction, Z))
        R = np.stack([side, np.cross(direction, side), direction], axis=1)
        half = np.array([0.0, 0.0, 0.3 * length])
        bodies[f"tube{k}"] = mbd.inertia.rod(6.0, 0.6 * length, axis=(0, 0, 1), radius=0.04)
        bodies[f"rod{k}"] = mbd.inertia.rod(3.0, 0.6 * length, axis=(0, 0, 1), radius=0.02)
        kind = joints.Revolute if n == 3 else joints.Universal
        links |= {
            f"foot{k}": kind(
                Frame("ground", foot, R=R), Frame(f"tube{k}", -half), *HINGE[: n == 3]
            ),
            f"slide{k}": joints.Prismatic(f"tube{k}", Frame(f"rod{k}", -half / 0.75)),
            f"head{k}": joints.Spherical(Frame(f"rod{k}", half), Frame("platform", head, R=R)),
        }
        drivers[f"drive{k}"] = joints.Driver(f"slide{k}", signals.Constant(0.0))
    return mbd.Model(bodies, links, {"gravity": forces.Gravity()}, drivers=drivers)


def star(n=6, driven=True):
    """A floating hub with arms of two links in a circle; one arm is driven, two are geared."""
    bodies = {"hub": mbd.inertia.cylinder(50.0, 0.5, 0.2)}
    links = {"base": joints.Free("ground", "hub")}
    for k in range(n):
        R = turned(Z, 2 * np.pi * k / n)
        start, tip = Frame("hub", R @ [0.5, 0, 0], R=R), Frame(f"arm{k}", [1, 0, 0])
        for part, length, at in (("arm", 1.0, start), ("hand", 0.6, tip)):
            body = mbd.inertia.rod(5.0 * length, length, radius=0.02)
            bodies[f"{part}{k}"] = mbd.inertia.shifted(body, [0.5 * length, 0, 0])
            links[f"{part} hinge {k}"] = joints.Revolute(at, f"{part}{k}", axis=(0, 1, 0))
    return mbd.Model(
        bodies,
        links,
        {"gravity": forces.Gravity()},
        couplings={"gear": joints.Coupling("arm hinge 2", "arm hinge 1", -1.0)} if driven else {},
        drivers={"drive": joints.Driver("arm hinge 0", signals.Constant(0.0))} if driven else {},
    )


def table():
    """A top on four equal upright cranks, two pairs of them about unlike axes: it cannot move."""
    bodies, links = {"top": mbd.inertia.box(40.0, (1.0, 1.0, 0.05))}, {}
    for k, (x, y) in enumerate([(1, 1), (-1, 1), (-1, -1), (1, -1)]):
        leg = mbd.inertia.rod(3.0, 1.0, axis=(0, 0, 1), radius=0.03)
        bodies[f"leg{k}"] = mbd.inertia.shifted(leg, [0, 0, 0.5])
        axis = (1, 0, 0) if k % 2 else (0, 1, 0)
        foot, head = Frame("ground", [x, y, 0]), Frame("top", [x, y, 0])
        links[f"foot{k}"] = joints.Revolute(foot, f"leg{k}", axis)
        links[f"head{k}"] = joints.Revolute(Frame(f"leg{k}", [0, 0, 1]), head, axis)
    return mbd.Model(bodies, links, {"gravity": forces.Gravity()})


@dataclass(frozen=True)
class Resting:
    """A model that is closed at zero coordinates.

    - `falls`: whether all bodies fall freely; otherwise nothing moves.
    - `noise`: size of accelerations whose rounding errors remain where loads cancel [m/s²].
    """

    model: mbd.Model
    falls: bool
    noise: float = 9.81


MODELS = {
    "a car": Resting(car(), True),
    "a car on preloaded springs": Resting(car(1e6), True, 1e6 / 8.0),
    "a star": Resting(star(), True),
    "a free star": Resting(star(driven=False), True),
    "a platform on six legs": Resting(platform(6), False),
    "a table": Resting(table(), False),
}


def varied(model, factors, pull=1.0, shift=0.0):
    """The model with other masses and inertias.

    **Arguments:** `factors`: those of the mass and the inertia of each body, shape `(n, 2)`;
    `pull`: factor of gravity; `shift`: how far the mechanism is from the origin [m].
    """

    def placed(joint):
        if joint.predecessor.body != "ground":
            return joint
        p = joint.predecessor.p + shift * AWAY
        return eqx.tree_at(lambda joint: joint.predecessor.p, joint, p)

    def scaled(body, factor):
        both = factor[0] * body.mass, factor[1] * body.inertia
        return eqx.tree_at(lambda body: (body.mass, body.inertia), body, both)

    names = list(model.bodies)
    bodies = {name: scaled(model.bodies[name], factors[k]) for k, name in enumerate(names)}
    links = {name: placed(joint) for name, joint in model.joints.items()}
    gravity = forces.Gravity(pull * model.forces["gravity"].g)
    return eqx.tree_at(
        lambda m: (m.bodies, m.joints, m.forces["gravity"]), model, (bodies, links, gravity)
    )


def variations(model, n, seed=0):
    """n arguments of `varied`: the first of equal legs at the origin, without and with gravity."""
    rng, size = np.random.default_rng(seed), len(model.bodies)
    factors = 1 + 1e-2 * rng.normal(size=(n, size, 2))
    factors[: len(EXACT)] = 1.0
    shifts = [shift for shift, _ in EXACT] + list(rng.choice(SHIFTS, size=n - len(EXACT)))
    pulls = [pull for _, pull in EXACT] + list(rng.choice([0.0, 1.0, 1.0], size=n - len(EXACT)))
    return jnp.asarray(factors), jnp.asarray(pulls), jnp.asarray(shifts)


@eqx.filter_jit
def accelerations(model, formulation, dtype, variations):
    """Rates of the bodies' twists at rest, for each variation, shape `(n, n_bodies, 6)`."""

    def at_rest(*args):
        system = mbd.formulate(varied(model, *args), formulation, dtype=dtype)
        q = system.from_tree(reference_values(system.mechanism))
        state, t = mbd.State(q, jnp.zeros(system.nv, dtype)), jnp.zeros((), dtype)
        vdot, _ = mbd.accelerations(system, t, state)
        rates = twist_rates(system, system.configuration(t, q), state.v, vdot)
        return rates[1 : system.mechanism.n_bodies + 1]

    return jax.vmap(at_rest)(*variations)
