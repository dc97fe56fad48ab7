"""Laws of contact one by one: normal forces against their integrals, friction, resistance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gamma

import jaxmbd as mbd
from jaxmbd import contact
from tests.contact import models

K, N, W = 4e4, 1.3, 2e-3
LAWS = [
    contact.HuntCrossley(K, 0.4, N),
    contact.HuntCrossley(K, 0.4, N, onset=W),
    contact.HuntCrossley(K, 0.4, 1.0, onset=W),
    contact.KelvinVoigt(K, 30.0),
    contact.KelvinVoigt(K, 30.0, onset=W),
    contact.Hertz([2e9, 7e9], [0.3, 0.2], 0.05, 0.4),
]
DEPTHS = jnp.asarray([-1.0, -1e-9, 0.0, 1e-9, 5e-4, W, 3e-3, 0.1])


@jax.jit
def over(law, depths, rate):
    """Forces, slopes of the forces by depth and rate, energies and their slopes."""
    rates = jnp.broadcast_to(rate, depths.shape)
    forces = jax.vmap(law.force)(depths, rates)
    slopes = jax.vmap(jax.grad(law.force, (0, 1)))(depths, rates)
    energies, pull = jax.vmap(jax.value_and_grad(law.energy))(depths)
    by_law = jax.jacrev(lambda law: jax.vmap(law.force)(depths, rates))(law)
    return forces, slopes, energies, pull, by_law


@pytest.mark.smoke
@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_forces_are_zero_beyond_contact_and_never_pull(law):
    for rate in (-1e3, -0.3, 0.0, 0.3):
        forces, slopes, energies, pull, by_law = over(law, DEPTHS, rate)
        assert np.all(np.asarray(forces)[DEPTHS <= 0] == 0)
        assert np.all(np.asarray(energies)[DEPTHS <= 0] == 0)
        assert np.all(np.asarray(forces) >= 0)
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((slopes, by_law)))
        if rate == 0.0:
            np.testing.assert_allclose(forces, pull, rtol=1e-12)
            assert np.all(np.asarray(forces)[DEPTHS > 0] > 0)
        if rate == -1e3:
            assert np.all(np.asarray(forces) == 0)


def test_hunt_crossley_is_its_formula():
    d, rate = 3e-3, -0.7
    found = LAWS[0].force(jnp.asarray(d), jnp.asarray(rate))
    np.testing.assert_allclose(found, K * d**N * (1 + 0.4 * rate), rtol=1e-14)
    smooth = LAWS[1].force(jnp.asarray(W / 2), jnp.asarray(rate))
    np.testing.assert_allclose(smooth, 0.5 * K * (W / 2) ** N * (1 + 0.4 * rate), rtol=1e-14)


@jax.jit
def bounce(law, mass, speed, dt):
    """Speed of separation, time of contact and largest force of a free mass, by RK4."""

    def slope(y):
        return jnp.stack([y[1], -law.force(y[0], y[1]) / mass])

    def step(y, _):
        a = slope(y)
        b = slope(y + 0.5 * dt * a)
        c = slope(y + 0.5 * dt * b)
        d = slope(y + dt * c)
        y = y + dt / 6.0 * (a + 2.0 * b + 2.0 * c + d)
        return y, law.force(y[0], y[1])

    end, force = jax.lax.scan(step, jnp.stack([0.0 * speed, speed]), None, length=4000)
    return -end[1], dt * jnp.sum(jnp.where(force > 0, 1.0, 0.0)), jnp.max(force)


def test_restitution_of_hunt_crossley():
    """Its integral holds for all exponents and speeds."""
    c = 0.4
    for n, speed in ((1.0, 0.5), (1.5, 2.0), (2.0, 2.0)):
        law = contact.HuntCrossley(1e5, c, n)
        found, *_ = bounce(law, jnp.asarray(2.0), jnp.asarray(speed), jnp.asarray(2e-5))
        integral = np.log(1 + c * speed) / c - speed
        wanted = brentq(lambda v, x=integral: v + np.log(1 - c * v) / c - x, 1e-3, speed)
        np.testing.assert_allclose(found, wanted, rtol=2e-5)
        assert abs(found / speed - (1 - 2 / 3 * c * speed)) < 0.5 * (c * speed) ** 2


def test_restitution_of_kelvin_and_voigt():
    k, mass, speed = 1e5, 2.0, 1.5
    for zeta in (0.05, 0.3):
        law = contact.KelvinVoigt(k, 2 * zeta * np.sqrt(k * mass))
        found, *_ = bounce(law, jnp.asarray(mass), jnp.asarray(speed), jnp.asarray(4e-6))
        wanted = np.exp(-zeta / np.sqrt(1 - zeta**2) * np.arccos(2 * zeta**2 - 1))
        np.testing.assert_allclose(found / speed, wanted, rtol=1e-3)


def test_time_and_force_of_hertz():
    mass, speed, radius = 0.5, 1.2, 0.04
    law = contact.Hertz([2e9, 7e9], [0.3, 0.2], radius)
    modulus = 1 / ((1 - 0.09) / 2e9 + (1 - 0.04) / 7e9)
    k = 4 / 3 * modulus * np.sqrt(radius)
    found, time, largest = bounce(law, *(jnp.asarray(x) for x in (mass, speed, 2.2e-7)))
    np.testing.assert_allclose(found, speed, rtol=1e-6)
    deepest = (5 * mass * speed**2 / (4 * k)) ** 0.4
    quarter = np.sqrt(np.pi) * gamma(1.4) / gamma(0.9)
    np.testing.assert_allclose(time, 2 * quarter * deepest / speed, rtol=2e-3)
    np.testing.assert_allclose(time, 2.9433 * deepest / speed, rtol=2e-3)
    np.testing.assert_allclose(largest, k * deepest**1.5, rtol=1e-6)


@pytest.mark.long
def test_friction_at_rest_and_in_sliding():
    n, F = jnp.asarray([0.0, 0.6, 0.8]), jnp.asarray(7.0)
    u = 0.4 * jnp.asarray([0.6, 0.64, -0.48])
    zeros = jnp.zeros(3)
    laws = contact.Coulomb(0.3), contact.Bristle(0.3, 1e4, 20.0, 0.1, static=0.5)
    coulomb, bristle = laws
    wanted = -0.3 * 7.0 * np.asarray(u) / 0.4
    np.testing.assert_allclose(coulomb.traction(F, u, n, zeros), wanted, rtol=1e-12, atol=1e-15)
    z = 0.3 / 1e4 * u / 0.4
    np.testing.assert_allclose(bristle.deflection_rate(u, z), 0.0, atol=1e-15)
    np.testing.assert_allclose(bristle.traction(F, u, n, z), wanted * (1 + 0.04 / 0.3), rtol=1e-12)
    for law in laws:
        assert np.all(np.asarray(law.traction(F, zeros, n, zeros)) == 0)
        slope = jax.jacrev(lambda u, z, law=law: law.traction(F, u, n, z), (0, 1))(zeros, zeros)
        assert all(np.all(np.isfinite(x)) for x in slope)
    resistance = contact.RollingResistance(0.02, 0.01)
    wanted = -7.0 * (0.02 * np.asarray(u) / 0.4 + 0.01 * np.asarray(n))
    np.testing.assert_allclose(resistance.moment(F, 50 * u + 9 * n, n), wanted, rtol=1e-12)
    slope = jax.jacfwd(lambda w: resistance.moment(F, w, n))(zeros)
    assert np.all(np.isfinite(slope))


def test_invalid_numbers():
    ball, floor = contact.Sphere("ball", 0.1), contact.HalfSpace("ground")
    law = contact.HuntCrossley(1e4, exponent=1.5)

    def refused(*parts, **laws):
        with pytest.raises(mbd.ModelError) as caught:
            models.ball({"touch": mbd.forces.Contact(*parts, **laws)})
        return str(caught.value)

    assert "in proportion to it: give normal" in refused(ball, floor, friction=contact.Coulomb(0.1))
    assert "needs a normal force: give normal" in refused(ball, floor)
    assert "normal must be of a kind of AbstractNormalLaw" in refused(ball, floor, normal=3.0)
    assert "no points of contact between Box and Box" in refused(
        contact.Box("ball", [1, 1, 1]), contact.Box("ground", [1, 1, 1]), law
    )
    assert "shape_b must be a shape" in refused(ball, "ground", law)
    assert "both shapes are on 'ball'" in refused(ball, contact.HalfSpace("ball"), law)
    assert "shape_a: radius must be positive" in refused(contact.Sphere("ball", -1.0), floor, law)
    steep = contact.HuntCrossley(1e4, exponent=0.5)
    assert "normal: exponent must be at least 1" in refused(ball, floor, steep)
    with pytest.raises(mbd.ModelError, match=r"give the exponent.* N/m, .*Hertz.* N/m\^1\.5"):
        contact.HuntCrossley(1e4, 0.3)
    assert "friction: coefficient must" in refused(ball, floor, law, contact.Coulomb(-0.1))
    assert "rolling: rolling resistance needs" in refused(
        ball, floor, law, rolling=contact.RollingResistance()
    )
    assert "nu must be between" in refused(ball, floor, contact.Hertz(1e9, 0.7, 0.1))
    with pytest.raises(mbd.ModelError, match="one number each, or two each"):
        contact.Hertz([1e9, 2e9], 0.3, 0.1)
    assert "touch': normal.stiffness must be finite" in refused(
        ball, floor, contact.HuntCrossley(np.nan, exponent=1.5)
    )
