"""Energy, power and momentum: what must balance whatever the coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.joints import Prismatic, Revolute, Spherical, Universal
from jaxmbd.system import loads
from tests import models
from tests.marks import thorough_but

T = jnp.asarray(0.37)
KINDS = (Revolute, Prismatic, Spherical, Universal)

each_formulation = pytest.mark.parametrize(
    "formulation",
    thorough_but(models.FORMULATIONS[:1], models.FORMULATIONS),
    ids=models.name_of,
)


def along_the_motion(system, state, quantity):
    """A quantity of the state and its rate, as the accelerations say that the state moves."""
    vdot, _ = mbd.accelerations(system, T, state)
    tangent = mbd.State(system.rates(state.q, state.v), vdot)
    return jax.jvp(quantity, (state,), (tangent,))


@eqx.filter_jit
def powers(system, state):
    _, rate = along_the_motion(system, state, lambda y: mbd.energy(system, T, y))
    return rate, state.v @ loads.applied(system, system.configuration(T, state.q), state.v)


@pytest.mark.thorough
@each_formulation
def test_applied_forces_feed_the_kinetic_energy(formulation):
    """dT/dt = v·f: neither the bias nor the constraints do work."""
    system = mbd.formulate(models.random_tree(3, kinds=KINDS), formulation)
    rate, power = powers(system, models.random_state(system, seed=1))
    assert rate.kinetic == pytest.approx(float(power), rel=1e-10)
    assert abs(power) > 1


@eqx.filter_jit
def slopes(system, state):
    still = jnp.zeros(system.nv)

    def potential(dv):
        return mbd.energy(system, T, mbd.State(system.retract(state.q, dv), still)).potential

    return loads.applied(system, system.configuration(T, state.q), still), jax.grad(potential)(
        still
    )


@pytest.mark.long
@each_formulation
def test_conservative_forces_are_the_slopes_of_their_potential(formulation):
    model = models.conservative(models.random_tree(3, kinds=KINDS))
    system = mbd.formulate(model, formulation)
    force, slope = slopes(system, models.random_state(system, seed=1))
    np.testing.assert_allclose(force, -slope, atol=1e-11)
    assert np.abs(force).max() > 1


@eqx.filter_jit
def momentum_rate(system, state):
    return along_the_motion(system, state, lambda y: mbd.momentum(system, T, y))


@pytest.mark.long
@pytest.mark.smoke
@each_formulation
def test_forces_among_bodies_keep_the_momentum(formulation):
    system = mbd.formulate(models.floating_tree(), formulation)
    momentum, rate = momentum_rate(system, models.random_state(system, seed=2))
    for value, slope in zip(jax.tree.leaves(momentum), jax.tree.leaves(rate), strict=True):
        assert np.abs(value).max() > 1
        np.testing.assert_allclose(slope, 0.0, atol=1e-11)


def test_momentum_is_that_of_the_centre_of_mass():
    """Linear: total mass times its velocity. Angular: of a falling ball, r × m v."""
    ball = mbd.inertia.sphere(2.0, 0.1)
    system = mbd.formulate(mbd.Model({"ball": ball}), mbd.JointCoordinates())
    state = mbd.assemble(
        system, {"ball": [1.0, 2.0, 3.0, 0, 0, 0]}, rates={"ball": [4.0, 5.0, 6.0, 0, 0, 0.5]}
    )
    momentum = mbd.momentum(system, 0.0, state)
    np.testing.assert_allclose(momentum.linear, [8.0, 10.0, 12.0], rtol=1e-14)
    spin = 0.4 * 2.0 * 0.01 * 0.5
    wanted = 2 * np.cross([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) + [0, 0, spin]
    np.testing.assert_allclose(momentum.angular, wanted, atol=1e-14)
