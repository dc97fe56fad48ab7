"""Orders of integrators in each formulation, on every kind of joint and of body.

All bodies of a model turn about inclined axes at first and touch one another only where they have
to, so that each shows the errors of its own joint. Errors are those of its pose, towards the motion
in joint coordinates by steps of order 8.
"""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, flexible, forces, joints
from tests import models

SPAN, N_TIMES = 0.25, 8  # Poses are compared at this many times within the span [s].
REFERENCE = mbd.ExplicitRK(diffrax.Dopri8())

TREE = (
    *(joints.Revolute, joints.Prismatic, joints.Cylindrical, joints.Universal, joints.Planar),
    *(joints.Spherical, joints.Free, joints.Screw, joints.ConstantVelocity),
)
LOOPS = (joints.PointOnLine, joints.PointOnPlane)
QUADRATIC = tuple(kind for kind in (*TREE, *LOOPS) if kind.bilinear)
FEW = (joints.Universal, joints.Spherical, joints.Free, joints.PointOnPlane)


def spring(name, anchor):
    """A spring without rest length, which is smooth at zero length too.

    It is soft, so that no joint bends by half a turn, where a constant velocity joint is singular.
    """
    return forces.SpringDamper(Frame(name, [0.1, 0.2, -0.3]), Frame("ground", anchor), 6.0)


def forest(kinds):
    """One rigid body on a joint of each kind, half of the joints against their direction."""
    rng = np.random.default_rng(3)
    bodies, links, fields = {}, {}, dict[str, forces.AbstractElement](gravity=forces.Gravity())
    for k, kind in enumerate(kinds):
        name = kind.__name__
        bodies[name] = models.random_body(rng)
        ends = ("ground", name) if k % 2 else (name, "ground")
        links[f"{name} joint"] = models.random_joint(rng, kind, *ends)
        fields[name] = spring(name, rng.uniform(-2, 2, 3))
    return mbd.Model(bodies, links, fields)


def beam():
    """A rod with two modes of 30 to 40 rad/s."""
    section = flexible.General(A=1e-4, Iy=1e-9, Iz=2e-9, J=3e-9)
    return flexible.beam(0.5, 1e9, 4e8, 2700.0, section, 4, 2)


def beams():
    """A free beam, and a beam on a hinge that carries a body on a ball joint."""
    return mbd.Model(
        {"free": beam(), "boom": beam(), "load": mbd.inertia.box(0.1, [0.1, 0.15, 0.2])},
        {
            "hinge": joints.Revolute("ground", Frame("boom", node="base"), [0, 1, 0.3]),
            "ball": joints.Spherical(Frame("boom", node="tip"), Frame("load", [0.05, 0.1, 0])),
        },
        {"gravity": forces.Gravity()},
    )


def rare(massless):
    """A free cable, a hinge with a rotor and, if `massless`, a body on a massless link."""
    rng = np.random.default_rng(4)
    cable = mbd.bodies.ANCFCable(1.0, 100.0, 0.05, 0.5, 1)
    bodies = {"cable": cable, "wheel": models.random_body(rng)}
    links = {"axle": models.random_joint(rng, joints.Revolute, "ground", "wheel")}
    if massless:
        bodies |= {"link": mbd.bodies.MasslessLink(), "arm": models.random_body(rng)}
        links["first"] = models.random_joint(rng, joints.Revolute, "ground", "link")
        links["second"] = models.random_joint(rng, joints.Revolute, "link", "arm")
    fields = {"gravity": forces.Gravity(), "pull": spring("wheel", [1.0, 0.5, 0.2])}
    return mbd.Model(bodies, links, fields, rotors={"rotor": mbd.Rotor("axle", 0.02, 3.0)})


MODELS = {
    "tree": lambda: forest(TREE),
    "all": lambda: forest((*TREE, *LOOPS)),
    "quadratic": lambda: forest(QUADRATIC),
    "few": lambda: forest(FEW),
    "beams": beams,
    "rare": lambda: rare(massless=False),
    "with link": lambda: rare(massless=True),
}
FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
    "points": mbd.PointCoordinates(),
    "transformed": mbd.VelocityTransformation(mbd.MaximalCoordinates()),
}
# Formulation, integrator, its order, a model, and a number of steps. The order is measured with
# this number and with twice as many.
CASES = {
    "joint, semi-implicit": ("joint", mbd.SemiImplicitEuler(), 1, "tree", 128),
    "joint, explicit": ("joint", diffrax.Tsit5(), 5, "all", 8),
    "joint, alpha": ("joint", mbd.GeneralizedAlpha(0.8), 2, "all", 32),
    "joint, BDF": ("joint", mbd.BDF(2), 2, "all", 64),
    "maximal, explicit": ("maximal", diffrax.Tsit5(), 5, "all", 16),
    "maximal, alpha": ("maximal", mbd.GeneralizedAlpha(0.8), 2, "all", 32),
    "natural, Simo-Gonzalez": ("natural", mbd.SimoGonzalez(), 2, "quadratic", 64),
    "points, Simo-Gonzalez": ("points", mbd.SimoGonzalez(), 2, "quadratic", 64),
    "beams, joint, alpha": ("joint", mbd.GeneralizedAlpha(0.8), 2, "beams", 128),
    "joint, BDF(3)": ("joint", mbd.BDF(3), 3, "few", 64),
    "joint, BDF(4)": ("joint", mbd.BDF(4), 4, "few", 64),
    "joint, BDF(5)": ("joint", mbd.BDF(5), 5, "few", 64),
    "maximal, alpha of index 2": ("maximal", mbd.GeneralizedAlpha(0.8, index=2), 2, "few", 32),
    "maximal, energy-momentum": ("maximal", mbd.EnergyMomentum(), 2, "quadratic", 32),
    "maximal, energy-decaying": ("maximal", mbd.EnergyDecaying(), 2, "few", 32),
    "transformed, explicit": ("transformed", diffrax.Tsit5(), 5, "few", 8),
    "beams, maximal, alpha": ("maximal", mbd.GeneralizedAlpha(0.8), 2, "beams", 128),
    "rare, joint, alpha": ("joint", mbd.GeneralizedAlpha(0.8), 2, "with link", 32),
    "rare, maximal, explicit": ("maximal", diffrax.Tsit5(), 5, "rare", 16),
}


@functools.cache
def start(name):
    """A model, values of its joints for `assemble`, and poses of its bodies at the times."""
    model = MODELS[name]()
    system, rng = mbd.formulate(model, mbd.JointCoordinates()), np.random.default_rng(5)
    guess, rates = {}, {}
    for group in system.mechanism.joints:
        nv = group.joint.sizes()[1]
        for joint in group.names:
            if nv > 0 and joint not in system.mechanism.topology.loops:
                guess[joint], rates[joint] = rng.uniform(-0.6, 0.6, nv), 3.0 * rng.normal(size=nv)
    state = mbd.assemble(system, guess, rates)
    return model, (guess, rates), poses(system, state, REFERENCE, jnp.asarray(128), 128)


@eqx.filter_jit
def poses(system, state, method, n, n_most):
    """Poses of all bodies at the times, with `n` steps; a traced number needs no other program."""
    states = mbd.rollout(system, state, SPAN / n.astype(float), n_most, method)
    common = states.q[jnp.arange(1, N_TIMES + 1) * (n // N_TIMES) - 1]
    frames = jax.vmap(lambda q: system.frames(0.0, q))(common)
    return {name: frames[name] for name in system.mechanism.topology.bodies[1:]}


def errors(formulation, method, name, counts):
    """Largest error of the pose of each body, by number of steps."""
    model, values, exact = start(name)
    system = mbd.formulate(model, FORMULATIONS[formulation])
    state = mbd.assemble(system, *values)

    def error(a, b):
        return max(float(jnp.max(jnp.abs(a.p - b.p))), float(jnp.max(jnp.abs(a.R - b.R))))

    found = [poses(system, state, method, jnp.asarray(n), max(counts)) for n in counts]
    return {body: [error(run[body], exact[body]) for run in found] for body in exact}


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_order(case):
    formulation, method, order, name, n = CASES[case]
    found = errors(formulation, method, name, (n, 2 * n))
    orders = {body: np.log2(coarse / fine) for body, (coarse, fine) in found.items()}
    low = {body: (orders[body], found[body]) for body in found if not orders[body] > order - 0.3}
    assert not low
