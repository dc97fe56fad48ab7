"""The slider-crank: closed forms of its motion and torque, and the same in every formulation."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests import models
from tests.examples import comparing

EXAMPLE = comparing.example("slider_crank")
MODEL, HEIGHT = EXAMPLE["model"], EXAMPLE["height"]
SPEED, CRANK, ROD, OFFSET = (EXAMPLE[name] for name in ("SPEED", "CRANK", "ROD", "OFFSET"))
TIMES = jnp.array([0.003, 0.017, 0.031])


def assembled(t, **changes):
    system = mbd.formulate(MODEL(**changes), mbd.JointCoordinates())
    return system, mbd.assemble(system, {"guide": HEIGHT(t)}, t=t)


@functools.cache
def states():
    """Values of joint coordinates, at three times."""
    system, _ = assembled(TIMES[0])
    found = [mbd.assemble(system, {"guide": HEIGHT(t)}, t=t) for t in TIMES]
    return system, found


@functools.cache
def wanted():
    system, found = states()
    return [comparing.look(system, t, state) for t, state in zip(TIMES, found, strict=True)]


def slope(f):
    return lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]


def energies(t):
    """Kinetic energy, and the potential one with weights and air [J], of the plane mechanism."""
    model = MODEL()
    bodies, air = model.bodies, model.forces["air"]

    def com(t):
        pin = CRANK * jnp.stack([jnp.sin(SPEED * t), jnp.cos(SPEED * t)])
        return pin + 0.4 * (jnp.stack([jnp.asarray(OFFSET), HEIGHT(t)]) - pin)

    def tilt(t):
        return jnp.arcsin((CRANK * jnp.sin(SPEED * t) - OFFSET) / ROD)

    rod, piston = bodies["rod"], bodies["piston"]
    kinetic = 0.5 * bodies["crank"].inertia[1, 1] * SPEED**2
    kinetic += 0.5 * rod.mass * jnp.sum(slope(com)(t) ** 2)
    kinetic += 0.5 * rod.inertia[1, 1] * slope(tilt)(t) ** 2
    kinetic += 0.5 * piston.mass * slope(HEIGHT)(t) ** 2
    weights = 9.81 * (rod.mass * com(t)[1] + piston.mass * HEIGHT(t))
    return kinetic, weights + air.potential(t, HEIGHT(t)[None])


@pytest.mark.thorough
def test_motion_and_torque_have_closed_forms():
    """The motor's power is what energies gain and friction takes."""
    system, found = states()
    for t, state, seen in zip(TIMES, found, wanted(), strict=True):
        piston = mbd.joint_states(system, t, state)["guide"]
        acceleration = seen["accelerations"]["piston"][2]
        closed = [f(t) for f in (HEIGHT, slope(HEIGHT), slope(slope(HEIGHT)))]
        np.testing.assert_allclose([piston.q, piston.v, acceleration], closed, rtol=1e-10)
        energy = seen["energy"]
        np.testing.assert_allclose([energy.kinetic, energy.potential], energies(t), rtol=1e-11)
        gain = slope(lambda t: sum(energies(t)))(t)
        power = gain + EXAMPLE["FRICTION"] * piston.v**2
        np.testing.assert_allclose(seen["drivers"]["motor"] * SPEED, power, rtol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", comparing.ELSEWHERE[1:], ids=models.name_of)
def test_every_formulation_finds_the_same(formulation):
    """Reactions too: nothing is constrained twice."""
    system, found = states()
    other = mbd.formulate(MODEL(), formulation)
    for t, state, expected in zip(TIMES, found, wanted(), strict=True):
        seen = comparing.look(other, t, comparing.carried_over(state, system, other))
        for gaps in (seen.pop("gaps"), expected["gaps"]):
            np.testing.assert_allclose(jnp.concatenate(gaps), 0.0, atol=1e-10)
        models.near(seen, {name: expected[name] for name in seen}, 1e-9)


def test_a_plane_has_no_place_for_its_joints():
    with pytest.raises(mbd.ModelError, match="a Universal joint leaves the zx plane"):
        mbd.formulate(MODEL(), mbd.PointCoordinates("zx"))


@pytest.mark.thorough
def test_the_torque_turns_the_crank_without_a_motor():
    system, found = states()
    model, t, state = MODEL(), TIMES[0], found[0]
    driven, _ = mbd.accelerations(system, t, state)
    torque = wanted()[0]["drivers"]["motor"]
    pull = model.forces | {"motor": mbd.forces.JointTorque("main bearing", torque)}
    free = mbd.formulate(mbd.Model(model.bodies, model.joints, pull), mbd.JointCoordinates())
    vdot, _ = mbd.accelerations(free, t, state)
    np.testing.assert_allclose(vdot, driven, atol=1e-9 * np.abs(driven).max())


@pytest.mark.thorough
def test_slopes_of_motion_and_torque():
    """Derivatives by a length, an anchor, an axis and a mass; the piston's have a closed form."""
    t = TIMES[1]
    inputs = {"rod": ROD, "offset": OFFSET, "axis": [0.1, 1.0, -0.2], "mass": 0.5}

    def outputs(inputs):
        system, state = assembled(t, **inputs)
        q = mbd.joint_states(system, t, state)["guide"].q
        return jnp.stack([q, mbd.driving_forces(system, t, state)["motor"]])

    slopes = comparing.check_slopes(outputs, inputs)
    np.testing.assert_allclose(slopes.pop("mass")[0], 0.0, atol=1e-12)
    del inputs["mass"]
    closed = comparing.check_slopes(lambda inputs: HEIGHT(t, **inputs)[None], inputs)
    for name, slope in slopes.items():
        assert abs(slope[0]) > 1e-5
        np.testing.assert_allclose(slope[:1], closed[name], rtol=1e-9)


@pytest.mark.thorough
def test_the_script_says_what_it_found(capsys, tmp_path):
    motion = EXAMPLE["main"](html=tmp_path / "page.html", png=tmp_path / "plot.png")
    said = capsys.readouterr().out
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert (tmp_path / "page.html").stat().st_size > 100_000
    assert motion.states.q.shape[0] == 181
    off = re.search(r"closed form: (\S+) m and (\S+) m/s", said)
    assert off
    assert float(off[1]) < 1e-12
    assert float(off[2]) < 1e-10
    power = re.search(r"motor: (\S+) W, of friction: (\S+) W", said)
    assert power
    assert power[1] == power[2]
