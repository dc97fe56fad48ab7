"""Bristles: sticking, breaking away, sliding, hysteresis, passivity, derivatives."""

import dataclasses

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, signals
from jaxmbd.system.loads import element_states
from tests.derivatives import difference

COULOMB, STATIC, STRIBECK, STIFFNESS, DAMPING, VISCOUS = 1.0, 1.5, 0.01, 1e4, 100.0, 2.0
NUMBERS = jnp.asarray([COULOMB, STATIC, STRIBECK, STIFFNESS, DAMPING, VISCOUS, 0.1])
LAW = forces.LuGreFriction("slide", *NUMBERS.tolist()[:6])
T, Q = jnp.asarray(0.0), jnp.zeros(1)
H = 1e-3


def slider(load, numbers=NUMBERS, formulation=None):
    """A mass of 1 kg that slides along x under a load, a signal."""
    friction = forces.LuGreFriction("slide", *numbers)
    model = mbd.Model(
        {"block": mbd.inertia.sphere(1.0, 0.1)},
        {"slide": joints.Prismatic("ground", "block", [1, 0, 0])},
        {"friction": friction, "load": forces.JointTorque("slide", load)},
    )
    return mbd.formulate(model, formulation or mbd.JointCoordinates())


@jax.jit
def motion(corners):
    """20 s under straight lines of load."""
    system = slider(signals.Samples(*corners))
    return mbd.rollout(system, mbd.assemble(system), H, 20000)


def under(ts, loads):
    """Position, velocity and bristle at the end of each step, the load there, and the times."""
    found, t = motion((jnp.asarray(ts), jnp.asarray(loads))), H * np.arange(1, 20001)
    return (*(np.asarray(x[:, 0]) for x in (found.q, found.v, found.z)), np.interp(t, ts, loads), t)


@pytest.mark.long
def test_sticks_below_the_static_force():
    """At z = F/σ₀, and x = -F_s/σ₀ ln(1 - F/F_s) but for the speed of the rise; no drift for 11 s.

    The error of x is in proportion to that speed.
    """
    load = 0.8 * STATIC
    x, v, z, _, t = under([0.0, 8.0, 20.0], [0.0, load, load])
    held = t > 9.0
    np.testing.assert_allclose(z[held], load / STIFFNESS, rtol=1e-10)
    np.testing.assert_allclose(x[-1], -STATIC / STIFFNESS * np.log(1 - 0.8), rtol=6e-3)
    assert np.ptp(x[held]) < 1e-11 * x[-1]
    assert np.max(np.abs(v[held])) < 1e-14


@pytest.mark.long
def test_breaks_away_at_the_static_force():
    """The largest force under a load that grows by 0.2 N/s is within 2 % of F_s."""
    _, v, z, load, _ = under([0.0, 5.0, 10.0, 20.0], [0.0, 1.0, 2.0, 2.0])
    largest = np.max(STIFFNESS * z[v < STRIBECK])
    assert 0.98 * STATIC < largest < STATIC
    assert 0.98 * STATIC < load[np.argmax(v > 0.1 * STRIBECK)] < 1.02 * STATIC


@pytest.mark.long
def test_slides_on_the_stribeck_curve():
    """The law's steady force at each speed, and that of a block that a load moves."""
    for speed in (-0.3, -0.01, 1e-4, 0.004, 0.02, 0.5):
        v = jnp.asarray([speed])
        z = LAW.steady_force(v) / STIFFNESS * jnp.sign(v)
        np.testing.assert_allclose(LAW.state_rates(T, Q, v, z), 0.0, atol=1e-16)
        faded = np.exp(-((speed / STRIBECK) ** 2))
        dry = COULOMB + (STATIC - COULOMB) * faded
        wanted = -np.sign(speed) * (dry + VISCOUS * abs(speed))
        np.testing.assert_allclose(LAW.load(T, Q, v, z), wanted, rtol=1e-13)
    _, v, *_ = under([0.0, 1.0, 2.0, 20.0], [0.0, 2.0, 1.2, 1.2])
    np.testing.assert_allclose(v[-1], 0.2 / VISCOUS, rtol=1e-6)


@pytest.mark.long
def test_hysteresis_before_sliding():
    """The loop between ±F is -F_s/σ₀ ln(1 - (F/F_s)²) wide at zero load, if the load is slow."""
    part = 0.7
    peak = part * STATIC
    x, *_, t = under([0.0, 2.5, 7.5, 12.5, 17.5, 20.0], [0.0, peak, -peak, peak, -peak, 0.0])
    falling, rising = (x[np.argmin(np.abs(t - at))] for at in (15.0, 10.0))
    width = -STATIC / STIFFNESS * np.log(1 - part**2)
    np.testing.assert_allclose(falling - rising, width, rtol=2e-2)


def gain(law, v, z):
    """Power that the friction gives beyond what the bristles lose."""
    rate = law.state_rates(T, Q, v, z)
    stiffness = law.stiffness
    return law.load(T, Q, v, z) * v + stiffness * z * rate


@pytest.mark.long
@pytest.mark.parametrize("varying", [True, False])
def test_friction_only_takes_energy(varying):
    """In the ranges of numbers that the description gives, and not far outside of them."""
    rng = np.random.default_rng(0)
    v = jnp.asarray(rng.choice([-1, 1], 20000) * 10.0 ** rng.uniform(-6, 1, 20000))
    z = jnp.asarray(rng.uniform(-1, 1, 20000) * STATIC / STIFFNESS)
    velocity, viscous = (0.3, 0.0) if varying else (None, 2.0)
    largest = 4.0 * np.sqrt(2 * np.e) * COULOMB / 0.3 if varying else 4 * 2.0 / STATIC**2
    law = forces.LuGreFriction(
        "slide", COULOMB, STATIC, STRIBECK, STIFFNESS, largest, viscous, velocity
    )
    scale = STATIC * jnp.abs(v)
    assert jnp.max(gain(law, v, z) / scale) < 1e-13
    wild = dataclasses.replace(law, damping=10.0 * law.damping)
    assert jnp.max(gain(wild, v, z) / scale) > 0.1


SHAKEN = signals.Sine(2.2, 2.0)  # It sticks, breaks away, slides and turns back.


def end(numbers, formulation):
    """Position, velocity and bristle of the shaken block after 0.4 s."""
    system = slider(SHAKEN, numbers, formulation)
    last = jax.tree.map(lambda x: x[-1], mbd.rollout(system, mbd.assemble(system), H, 400))
    slide = mbd.joint_states(system, 0.0, last)["slide"]
    return jnp.stack([slide.q, slide.v, element_states(system, last)["friction"]])


@pytest.mark.long
def test_both_formulations_agree():
    both = [end(NUMBERS, f) for f in (mbd.JointCoordinates(), mbd.MaximalCoordinates())]
    np.testing.assert_allclose(*both, rtol=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation",
    [
        mbd.JointCoordinates(),
        pytest.param(mbd.MaximalCoordinates(), marks=pytest.mark.thorough),
    ],
)
def test_gradients_by_every_number(formulation):
    @jax.jit
    def value(numbers):
        return jnp.asarray([1.0, 0.3, 1e3]) @ end(numbers, formulation)

    gradient = jax.jit(jax.grad(value))(NUMBERS)
    for k in range(7):
        along = jnp.zeros(7).at[k].set(NUMBERS[k])
        slope = difference(value, NUMBERS, along, h=1e-5)
        assert gradient @ along == pytest.approx(slope, rel=1e-5, abs=1e-9)


@pytest.mark.long
def test_derivatives_at_rest():
    slopes = jax.jacrev(lambda *x: x[0].load(T, Q, *x[1:]), argnums=(0, 1, 2))
    law = forces.LuGreFriction("slide", *NUMBERS)
    for z in (0.0, 1e-4):
        found = slopes(law, jnp.zeros(1), jnp.asarray([z]))
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found))
        np.testing.assert_allclose(found[1], -(DAMPING + VISCOUS), rtol=1e-14)
        np.testing.assert_allclose(found[2], -STIFFNESS, rtol=1e-14)


@pytest.mark.long
def test_one_bristle_for_each_velocity():
    """On a cylindrical joint; without a number for each velocity it is refused."""

    def system(stiffness):
        friction = forces.LuGreFriction("sleeve", 1.0, 1.5, 0.01, stiffness, 100.0)
        acting = {"friction": friction, "load": forces.JointTorque("sleeve", [0.5, 0.3])}
        sleeve = {"sleeve": joints.Cylindrical("ground", "rod")}
        model = mbd.Model({"rod": mbd.inertia.principal(1.0, [1.0, 1.0, 1.0])}, sleeve, acting)
        return mbd.formulate(model, mbd.JointCoordinates())

    two = system([1e4, 2e4])
    motion = mbd.rollout(two, mbd.assemble(two), 1e-3, 2000, diffrax.Tsit5())
    np.testing.assert_allclose(motion.z[-1], [0.5e-4, 0.15e-4], rtol=1e-8)
    with pytest.raises(mbd.ModelError, match=r"for 1 velocities, the joint has 2; give one of"):
        system(1e4)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("stiffness", 0.0, "stiffness must be positive"),
        ("coulomb", -1.0, "coulomb must be positive"),
        ("damping", -1.0, "damping must not be negative"),
        ("damping_velocity", 0.0, "damping_velocity must be positive"),
    ],
)
def test_errors(name, value, message):
    law = dataclasses.replace(forces.LuGreFriction("slide", *NUMBERS), **{name: value})
    hinge = {"slide": joints.Prismatic("ground", "block", [1, 0, 0])}
    with pytest.raises(mbd.ModelError, match=f"force 'friction': {message}"):
        mbd.Model({"block": mbd.inertia.sphere(1.0, 0.1)}, hinge, {"friction": law})
