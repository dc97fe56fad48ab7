"""Motions and equilibria on tyres: braking, bicycle, axle at rest, formulations, derivatives."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces, joints, tyres
from tests.derivatives import difference
from tests.tyres import models

G = models.GRAVITY


@pytest.mark.long
def test_formulations_agree():
    """Accelerations of a wheel that slips, with camber, on waves."""
    road = contact.Washboard(0.01, 0.8)
    law = tyres.MagicFormula([10.0, 8.0], 1.4, 0.9, -0.2, 0.03)
    tyre = models.tyre(law, road=road, damping=300.0, rolling_resistance=0.01, relaxation=0.3)
    X = mbd.Pose(
        jnp.asarray([0.1, 0.2, 0.29]), mbd.lie.so3.exp_matrix(jnp.asarray([0.1, 0.2, 0.3]))
    )
    rates = {"wheel": [3.0, 0.4, 0.1, 0.2, 12.0, 0.3]}
    found = []
    for formulation in (mbd.JointCoordinates(), mbd.MaximalCoordinates()):
        system = mbd.formulate(models.wheel(tyre), formulation)
        state = mbd.assemble(system, {"wheel": X}, rates, states={"tyre": [0.02, 0.05]})
        vdot, _ = mbd.accelerations(system, 0.0, state)
        _, rate = jax.jvp(
            lambda q, v, s=system: s.twists(jnp.zeros(()), q, v)["wheel"],
            (state.q, state.v),
            (system.rates(state.q, state.v), vdot),
        )
        found.append(rate)
    assert np.max(np.abs(found[0])) > 10.0
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-9)


def quarter(stiffness, friction, law: Any = tyres.Linear, **more):
    """A mass that slides along x and z on a wheel."""
    tyre = forces.Tyre(
        contact.Disc(models.across("wheel"), models.RADIUS),
        contact.HalfSpace("ground"),
        contact.KelvinVoigt(stiffness, 2e3),
        law(10.0, friction),
        **more,
    )
    return mbd.Model(
        {
            "sledge": mbd.RigidBody(1.0, [1.0, 1.0, 1.0]),
            "mass": mbd.RigidBody(300.0, [9.0, 9.0, 9.0]),
            "wheel": mbd.RigidBody(20.0, [0.6, 1.0, 0.6]),
        },
        {
            "travel": joints.Prismatic("ground", "sledge", axis=[1, 0, 0]),
            "heave": joints.Prismatic("sledge", "mass", axis=[0, 0, 1]),
            "axle": joints.Revolute("mass", "wheel", axis=[0, 1, 0]),
        },
        {"weight": forces.Gravity([0.0, 0.0, -G]), "tyre": tyre},
    )


@pytest.fixture(scope="module")
def braked():
    """Distance, speed and height of a wheel that is locked, after 0.3 s; inputs stiffness,
    friction and first speed."""

    @eqx.filter_jit
    def run(x):
        model = quarter(x[0], x[1], relaxation=0.2)
        locked = dict(model.joints) | {"axle": joints.Fixed("mass", "wheel")}
        model = mbd.Model(model.bodies, locked, model.forces)
        system = mbd.formulate(model, mbd.JointCoordinates())
        height = models.RADIUS - 320.0 * G / x[0]
        start = mbd.assemble(system, {"heave": height}, {"travel": x[2]})
        states = mbd.rollout(system, start, 1e-3, 300)
        return states.q[-1, 0] + states.q[-1, 1]

    return run


BRAKING = jnp.asarray([2e5, 0.8, 8.0]), jnp.asarray([3e4, 0.2, 1.0])


@pytest.mark.thorough
def test_derivatives_of_braking(braked):
    """Derivatives by stiffness, friction and speed equal differences."""
    x, along = BRAKING
    forward = jax.jit(lambda x: jax.jvp(braked, (x,), (along,))[1])(x)
    assert float(forward) == pytest.approx(difference(braked, x, along, h=1e-3), rel=1e-6)


@pytest.mark.thorough
def test_derivatives_of_braking_backwards(braked):
    x, along = BRAKING
    forward = jax.jit(lambda x: jax.jvp(braked, (x,), (along,))[1])(x)
    backward = eqx.filter_jit(jax.grad(braked))(x)
    assert float(backward @ along) == pytest.approx(float(forward), rel=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("relaxation", [None, 0.1], ids=["direct", "relaxed"])
def test_braking_distance(relaxation):
    """A locked wheel needs v² / (2 μ g), and stays where it is."""
    model = quarter(2e5, 0.8, tyres.Brush, relaxation=relaxation)
    locked = dict(model.joints) | {"axle": joints.Fixed("mass", "wheel")}
    model = mbd.Model(model.bodies, locked, model.forces)
    system = mbd.formulate(model, mbd.JointCoordinates())
    speed = 4.0
    height = models.RADIUS - 320.0 * G / 2e5
    slips = None if relaxation is None else {"tyre": [1.0, 0.0]}
    start = mbd.assemble(system, {"heave": height}, {"travel": speed}, states=slips)
    states = eqx.filter_jit(mbd.rollout)(system, start, 5e-4, 1600)
    wanted = speed**2 / (2.0 * 0.8 * G)
    assert states.q[-1, 0] == pytest.approx(wanted, rel=5e-3)
    assert np.max(np.abs(states.v[-1])) < 2e-2


@pytest.mark.long
def test_a_free_wheel_rolls_without_longitudinal_force():
    """And keeps its speed, also where it is driven at first."""
    system = mbd.formulate(quarter(2e5, 0.8), mbd.JointCoordinates())
    height = models.RADIUS - 320.0 * G / 2e5
    guess = {"heave": height}
    start = mbd.assemble(system, guess, {"travel": 5.0, "axle": 5.0 / height})
    at = mbd.tyre_contacts(system, 0.0, start)["tyre"]
    assert at.longitudinal == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(mbd.accelerations(system, 0.0, start)[0], np.zeros(3), atol=1e-10)
    # From another spin: the angular momentum about the ground is kept, m v h + J ω.
    start = mbd.assemble(system, guess, {"travel": 5.0, "axle": 6.0 / height})
    end = eqx.filter_jit(mbd.rollout)(system, start, 2.5e-4, 2000)
    v = (321.0 * 5.0 * height + 6.0 / height) / (321.0 * height + 1.0 / height)
    np.testing.assert_allclose(end.v[-1], [v, 0.0, v / height], rtol=1e-6, atol=1e-6)


def bicycle(cornering, angle, L=2.6, b=1.2):
    """A body on two wheels that stays upright; the front one, steered by an angle, is at L - b."""
    mass, wheels = 1000.0, {"front": L - b, "rear": -b}
    bodies = {"body": mbd.RigidBody(mass, [400.0, 1500.0, 1500.0])}
    links: dict[str, Any] = {"plane": joints.Planar("ground", "body")}
    acting = {}
    for (name, x), c in zip(wheels.items(), cornering, strict=True):
        load = mass * G * (b if name == "front" else L - b) / L
        turn = [np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)] if name == "front" else None
        height = models.RADIUS - load / models.STIFFNESS
        bodies[name] = mbd.RigidBody(1e-3, [1.0, 1.0, 1e-3])
        hub = mbd.Frame("body", [x, 0.0, height], quat=turn)
        links[name] = joints.Revolute(hub, name, axis=[0, 1, 0])
        acting[name] = models.tyre(tyres.Linear([10.0, c], 5.0), name)
    return mbd.Model(bodies, links, acting)


@pytest.mark.thorough
def test_steady_yaw_rate_of_the_bicycle():
    """r = V δ / (L + K V²) with K = m/L (b/C_f - a/C_r), to the first order of the angle."""
    L, b, V, angle, cornering = 2.6, 1.2, 20.0, 1e-3, (8.0, 12.0)
    a = L - b
    loads = 1000.0 * G * b / L, 1000.0 * G * a / L
    K = 1000.0 / L * (b / (cornering[0] * loads[0]) - a / (cornering[1] * loads[1]))
    wanted = V * angle / (L + K * V**2)
    side = (b - a * 1000.0 * V**2 / (L * cornering[1] * loads[1])) * wanted  # Of the middle.
    system = mbd.formulate(bicycle(cornering, angle), mbd.JointCoordinates())
    heights = [models.RADIUS - F / models.STIFFNESS for F in loads]
    spin = {"front": V / heights[0], "rear": V / heights[1]}
    # In the world, of which the velocities of a planar joint are components.
    start = mbd.assemble(system, {}, {"plane": [V, side, wanted], **spin})
    vdot, _ = mbd.accelerations(system, 0.0, start)
    np.testing.assert_allclose(vdot[:3], [0.0, V * wanted, 0.0], atol=2e-4 * V * wanted)
    # From straight ahead, after two seconds.
    start = mbd.assemble(system, {}, {"plane": [V, 0.0, 0.0], **spin})
    end = eqx.filter_jit(mbd.rollout)(system, start, 2e-3, 1000)
    assert end.v[-1, 2] == pytest.approx(wanted, rel=2e-3)


def parked(slope, stiffness):
    """Equilibrium of a body on four locked wheels, on a road that descends along x."""
    places = {"fl": (1.2, 0.8), "fr": (1.2, -0.8), "rl": (-1.4, 0.8), "rr": (-1.4, -0.8)}
    half = 0.5 * slope
    quat = jnp.stack([jnp.cos(half), 0.0 * half, jnp.sin(half), 0.0 * half])
    road = contact.HalfSpace(mbd.Frame("ground", quat=quat))
    vertical, law = contact.KelvinVoigt(stiffness), tyres.Brush(10.0, 0.8)
    acting: dict[str, Any] = {"weight": forces.Gravity([0.0, 0.0, -G])}
    for name, place in places.items():
        hub = mbd.Frame("car", [*place, 0.0], R=models.across("car").R)
        disc = contact.Disc(hub, models.RADIUS)
        acting[name] = forces.Tyre(disc, road, vertical, law, relaxation=0.3)
    body = mbd.RigidBody(1000.0, [300.0, 1500.0, 1500.0], com=[0.0, 0.0, 0.3])
    system = mbd.formulate(mbd.Model({"car": body}, forces=acting), mbd.JointCoordinates())
    X = mbd.Pose(road.frame.R @ jnp.asarray([0.0, 0.0, models.RADIUS - 0.01]), road.frame.R)
    found = mbd.equilibrium(system, mbd.assemble(system, {"car": X}), throw=False)
    return found, mbd.tyre_contacts(system, 0.0, found.state)


@pytest.mark.thorough
def test_a_car_is_parked():
    """On the level and on a slope: loads by the levers, friction by the weight, and no creep."""
    look = eqx.filter_jit(parked)
    for slope in (0.0, 0.1):
        found, at = look(jnp.asarray(slope), jnp.asarray(models.STIFFNESS))
        assert found.result == mbd.RESULTS.successful
        total = sum(x.force for x in at.values())
        np.testing.assert_allclose(total, [0.0, 0.0, 1000.0 * G], atol=1e-2)
        pushed = sum(float(x.longitudinal) for x in at.values())
        assert pushed == pytest.approx(-1000.0 * G * np.sin(slope), abs=1e-2)
        # Moments about the contact of the rear wheels, with the centre of mass above the wheels.
        low = 0.3 + models.RADIUS - 1e-2
        front = 1000.0 * G * (1.4 * np.cos(slope) + low * np.sin(slope)) / 2.6
        loads = {name: float(x.load) for name, x in at.items()}
        assert loads["fl"] == pytest.approx(loads["fr"], rel=1e-9)
        assert loads["fl"] + loads["fr"] == pytest.approx(front, rel=3e-3)
        deflections = {name: float(x.depth) for name, x in at.items()}
        for name, load in loads.items():
            assert deflections[name] == pytest.approx(load / models.STIFFNESS, rel=1e-9)
    # On the level, where the place does not depend on the way to it.
    level = jnp.zeros(())

    def height(k):
        return look(level, k)[0].state.q[2]

    k, h = jnp.asarray(models.STIFFNESS), 100.0
    gradient = jax.jvp(height, (k,), (jnp.ones(()),))[1]
    wanted = (float(height(k + h)) - float(height(k - h))) / (2.0 * h)
    assert float(gradient) == pytest.approx(wanted, rel=1e-5)
