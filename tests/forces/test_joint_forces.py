"""Forces on joint coordinates: springs, drives, friction, rotors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, signals

T = jnp.asarray(0.7)
Q, V = jnp.array([0.3, -1.2]), jnp.array([0.5, -0.02])


@pytest.mark.smoke
@pytest.mark.parametrize("stiffness", [4.0, (4.0, 1.5)], ids=["one", "each"])
def test_torsional_spring_is_the_slope_of_its_potential(stiffness):
    coil = forces.TorsionalSpringDamper("hinge", stiffness, rest=0.1)
    slope = jax.grad(lambda q: coil.potential(T, q))(Q)
    np.testing.assert_allclose(coil.force(T, Q, jnp.zeros(2)), -slope, rtol=1e-14)
    np.testing.assert_allclose(slope, np.asarray(stiffness) * (Q - 0.1), rtol=1e-14)


def test_torsional_damper():
    coil = forces.TorsionalSpringDamper("hinge", 0.0, damping=(2.0, 3.0))
    np.testing.assert_allclose(coil.force(T, Q, V), [-1.0, 0.06], rtol=1e-15)


def test_drive_gives_its_signal_to_every_velocity():
    drive = forces.JointTorque("hinge", signals.Polynomial([1.0, 2.0]))
    np.testing.assert_allclose(drive.force(T, Q, V), [2.4, 2.4], rtol=1e-15)
    each = forces.JointTorque("hinge", (1.0, -3.0))
    np.testing.assert_allclose(each.force(T, Q, V), [1.0, -3.0], rtol=1e-15)


def test_viscous_friction_opposes_the_velocity():
    oil = forces.ViscousFriction("hinge", (2.0, 3.0))
    np.testing.assert_allclose(oil.force(T, Q, V), [-1.0, 0.06], rtol=1e-15)


@pytest.mark.long
def test_dry_friction_opposes_the_velocity_and_saturates():
    rub = forces.CoulombFriction("hinge", 3.0, transition_velocity=0.02)
    np.testing.assert_allclose(rub.force(T, Q, V), [-3.0, 3.0 * np.tanh(1.0)], rtol=1e-15)
    np.testing.assert_array_equal(rub.force(T, Q, jnp.zeros(2)), 0.0)
    slope = jax.jacfwd(lambda v: rub.force(T, Q, v))(jnp.zeros(2))
    np.testing.assert_allclose(slope, -3.0 / 0.02 * np.eye(2), rtol=1e-14)


def test_dry_friction_with_a_profile_of_the_users_own():
    rub = forces.CoulombFriction("hinge", 3.0, 0.02, profile=lambda x: x / jnp.sqrt(1 + x * x))
    np.testing.assert_allclose(rub.force(T, Q, V)[1], 3.0 / np.sqrt(2.0), rtol=1e-14)


def test_friction_dissipates():
    v = jnp.linspace(-2.0, 2.0, 40)
    for law in (forces.ViscousFriction("j", 0.3), forces.CoulombFriction("j", 0.3)):
        assert np.all(law.force(T, jnp.zeros(40), v) * v < 0)
        assert law.potential(T, jnp.zeros(40)) == 0


def test_rotor_counts_with_the_square_of_the_gear_ratio():
    assert mbd.Rotor("hinge", 0.02, gear_ratio=-10.0).reflected_inertia() == pytest.approx(2)
