"""Gradients by every number of every component, in every formulation, with every integrator.

One short motion each, by `check_gradients`: forward mode, reverse mode, finite differences. The
default suite sees smaller parts of this; `pytest -m thorough` sees all of it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals
from jaxmbd.lie.parameterization import CayleyGibbsRodrigues
from jaxmbd.system.projection import project_velocities
from tests import models

TREE = (*models.JOINT_KINDS, joints.Generic)
FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
    "natural, springs": mbd.NaturalCoordinates(1e4),
    "points": mbd.PointCoordinates(),
}
METHODS = {
    "generalized-α": (mbd.GeneralizedAlpha(0.8), ("joint", "maximal", "natural", "points")),
    "index 2": (mbd.GeneralizedAlpha(0.8, index=2), ("maximal",)),
    "increments": (
        mbd.GeneralizedAlpha(0.8, increments=mbd.RotationIncrements(CayleyGibbsRodrigues())),
        ("maximal",),
    ),
    "BDF": (mbd.BDF(), ("joint", "maximal")),
    "energy-momentum": (mbd.EnergyMomentum(), ("maximal",)),
    "energy-decaying": (mbd.EnergyDecaying(), ("maximal",)),
    "Simo and González": (mbd.SimoGonzalez(), ("natural", "natural, springs", "points")),
}
INTEGRATORS = {(m, name): way for m, (way, names) in METHODS.items() for name in names}
T = jnp.zeros(())
pytestmark = [pytest.mark.thorough, pytest.mark.release, pytest.mark.timeout(1200)]


@pytest.fixture(autouse=True)
def _room_for_programs():
    """Three large programs a test: too many memory maps for one process otherwise."""
    yield
    jax.clear_caches()


def star(kinds):
    """A body on the ground by each kind of joint, so that each moves on its own."""
    rng = np.random.default_rng(4)
    links, bodies = {}, {}
    for kind in kinds:
        name = kind.__name__.lower()
        bodies[name] = models.random_body(rng)
        if kind is joints.Generic:
            ends = models.random_frame(rng, "ground"), models.random_frame(rng, name)
            links[name] = joints.Generic(*ends, free=("y", "rx", "rz"))
        else:
            links[name] = models.random_joint(rng, kind, "ground", name)
    return mbd.Model(bodies, links, {"gravity": forces.Gravity([0.4, 0.3, -9.0])})


def driven():
    """Wheels and sliders that gears, a belt, a rack and a driver move."""
    rng = np.random.default_rng(5)
    hinged = ("a", "b", "c", "d")
    bodies = {name: models.random_body(rng) for name in (*hinged, "rack", "led")}
    links = {name: models.random_joint(rng, joints.Revolute, "ground", name) for name in hinged} | {
        name: models.random_joint(rng, joints.Prismatic, "ground", name) for name in ("rack", "led")
    }
    return mbd.Model(
        bodies,
        links,
        {"gravity": forces.Gravity([0.4, 0.3, -9.0])},
        couplings={
            "gear": joints.Gear("a", "b", (20, 10)),
            "belt": joints.Belt("b", "c", 0.1, 0.15),
            "teeth": joints.RackAndPinion("d", "rack", 0.1),
        },
        drivers={"motor": joints.Driver("led", signals.Sine(0.2, 3.0, 0.1))},
    )


def closed():
    """A disc that rolls, a skate, and a bob on a rod: joints that only close."""
    rng = np.random.default_rng(6)
    return mbd.Model(
        {name: models.random_body(rng) for name in ("disc", "skate", "bob")},
        {
            "rim": joints.RollingDisc(Frame("ground", [0.0, 0.0, -0.3]), "disc", 0.3),
            "plane": joints.Planar("ground", "skate"),
            "blade": joints.KnifeEdge("ground", Frame("skate", [0.1, 0.2, 0.0])),
            "rod": joints.Distance(Frame("ground", [0.0, 0.3, 0.4]), "bob", 0.5),
        },
        {"gravity": forces.Gravity([0.4, 0.3, -9.0])},
    )


def loaded(rotors):
    """Three bodies in a chain, with every force there is; rotors where they have a coordinate."""
    rng = np.random.default_rng(7)
    return mbd.Model(
        {name: models.random_body(rng) for name in "abc"},
        {
            "one": models.random_joint(rng, joints.Revolute, "ground", "a"),
            "two": models.random_joint(rng, joints.Prismatic, "a", "b"),
            "three": models.random_joint(rng, joints.Revolute, "b", "c"),
        },
        {
            "gravity": forces.Gravity([0.4, 0.3, -9.0]),
            "push": forces.AppliedForce("a", signals.Polynomial([[1.0, 0, 0], [0, 2.0, 0]])),
            "twist": forces.AppliedTorque("b", [0.1, 0.2, 0.3], follower=True),
            "spring": forces.SpringDamper(
                Frame("ground", [0.0, 0.0, 1.0]), models.random_frame(rng, "c"), 20.0, 0.7, 0.4
            ),
            "cable": forces.Cable(
                Frame("ground", [0.0, 1.0, 0.0]),
                models.random_frame(rng, "b"),
                30.0,
                0.5,
                transition=0.1,
            ),
            "coil": forces.TorsionalSpringDamper("one", 2.0, 0.1, 0.2),
            "stop": forces.JointStop("three", -0.3, 0.1, stiffness=40.0, transition=0.1),
            "oil": forces.ViscousFriction("two", 0.2),
            "dry": forces.CoulombFriction("one", 0.3, 0.5),
            "stick": forces.StribeckFriction("two", 0.2, 0.3, 0.4, 0.5, 0.3),
            "two ways": forces.AsymmetricFriction(
                forces.CoulombFriction("three", 0.2, 0.3), forces.ViscousFriction("three", 0.1), 0.3
            ),
            "drive": forces.JointTorque("one", signals.Sine(0.8, 1.5, 0.2)),
            "motor": forces.DCMotor(
                "three", 0.3, 3.0, voltage=signals.Sine(2.0, 1.5), resistance=1.5
            ),
        },
        rotors={"rotor": mbd.Rotor("one", 0.02, 2.0)} if rotors else {},
    )


def pendulum():
    """Two bodies, for integrators: what they do with components does not depend on their kinds."""
    rng = np.random.default_rng(9)
    return mbd.Model(
        {name: models.random_body(rng) for name in "ab"},
        {
            "ball": models.random_joint(rng, joints.Spherical, "ground", "a"),
            "hinge": models.random_joint(rng, joints.Revolute, "a", "b"),
        },
        {
            "gravity": forces.Gravity([0.4, 0.3, -9.0]),
            "spring": forces.SpringDamper("ground", models.random_frame(rng, "b"), 20.0, 0.7, 0.4),
            "dry": forces.CoulombFriction("hinge", 0.3, 0.5),
        },
    )


def check(model, formulation, integrator=None, h=0.01, tolerance=1e-6):
    """Check gradients by every leaf of the model and by the initial velocities."""
    found = jnp.asarray(0.5 * np.random.default_rng(8).normal(size=nv(model, formulation)))

    def end(inputs):
        system = mbd.formulate(inputs["model"], formulation)
        start = mbd.assemble(system)
        start = mbd.State(start.q, start.v + inputs["v"])
        start = mbd.State(start.q, project_velocities(system, T, start))
        states = mbd.rollout(system, start, h, 4, integrator=integrator)
        frames = system.frames(4 * h, states.q[-1])
        return {name: (frames[name].p, frames[name].R) for name in sorted(model.bodies)}

    report = mbd.check_gradients(end, {"model": model, "v": found}, tolerance=tolerance)
    assert report.ok, f"\n{report}"


def nv(model, formulation):
    """Number of velocities."""
    return mbd.formulate(model, formulation).nv


@pytest.mark.parametrize("name", ["joint", "maximal", "natural", "points"])
@pytest.mark.parametrize("kinds", [TREE[:6], TREE[6:]], ids=["first", "other"])
def test_every_joint(kinds, name):
    check(star(kinds), FORMULATIONS[name])


@pytest.mark.parametrize("name", ["joint", "maximal"])
def test_couplings_and_drivers(name):
    check(driven(), FORMULATIONS[name])


@pytest.mark.parametrize("name", ["joint", "maximal"])
def test_joints_that_only_close(name):
    check(closed(), FORMULATIONS[name])


@pytest.mark.parametrize("name", ["joint", "maximal", "natural", "natural, springs", "points"])
def test_every_force(name):
    """To 1e-4: third derivatives of cables and stops jump, and some have little effect."""
    h = 2e-3 if name == "natural, springs" else 0.01
    check(loaded(name in ("joint", "maximal")), FORMULATIONS[name], h=h, tolerance=1e-4)


@pytest.mark.parametrize(("method", "name"), INTEGRATORS)
def test_every_integrator(method, name):
    check(pendulum(), FORMULATIONS[name], INTEGRATORS[method, name])
