"""Generalized-α: order, constraints, damping, adaptive steps, gradients, failures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import testing
from tests.models import chain

METHODS = {
    "rho 0.8": mbd.GeneralizedAlpha(0.8),
    "rho 0": mbd.GeneralizedAlpha(0.0),
    "trapezoidal": mbd.GeneralizedAlpha.trapezoidal(),
    "hht": mbd.GeneralizedAlpha.hht(0.2),
    "index 2": mbd.GeneralizedAlpha(0.8, index=2),
    "projected": mbd.GeneralizedAlpha(0.8, project=True),
}


@pytest.mark.parametrize("name", ["rho 0.8", "rho 0", "index 2", "projected"])
def test_order_with_constraints(name):
    testing.check_integrator_order(METHODS[name], 2, mbd.MaximalCoordinates())


@pytest.mark.parametrize("name", ["rho 0.8", "trapezoidal", "hht"])
def test_order_without_constraints(name):
    testing.check_integrator_order(METHODS[name], 2)


@pytest.fixture(scope="module")
def end():
    """The end of a constrained chain after 20 steps, by its stiffness of gravity and its start."""
    model = chain(3)
    method = mbd.GeneralizedAlpha(0.7)

    @eqx.filter_jit
    def end(inputs):
        scale, angle, rate = inputs
        own = eqx.tree_at(
            lambda m: m.bodies["link0001"].mass, model, replace_fn=lambda m: m * scale
        )
        system = mbd.formulate(own, mbd.MaximalCoordinates())
        state = mbd.assemble(system, {"jlink0000": angle}, {"jlink0002": rate})
        states = mbd.rollout(system, state, dt=0.01, n_steps=20, integrator=method)
        return states.q[-1, 14:17] @ jnp.array([1.0, 0.0, 0.5])

    return end


def test_gradients(end):
    inputs = jnp.array([1.1, 0.4, 0.8])
    reverse, forward = jax.grad(end)(inputs), jax.jacfwd(end)(inputs)
    np.testing.assert_allclose(forward, reverse, rtol=1e-10)
    h = 1e-4
    for k, e in enumerate(jnp.eye(3) * h):
        slope = (
            8 * (end(inputs + e) - end(inputs - e)) - end(inputs + 2 * e) + end(inputs - 2 * e)
        ) / (12 * h)
        assert abs(reverse[k] - slope) < 1e-6 * np.abs(reverse).max()


@pytest.fixture(scope="module")
def falling():
    system = mbd.formulate(chain(3), mbd.MaximalCoordinates())
    return system, mbd.assemble(system, {"jlink0000": 0.1, "jlink0001": 0.3, "jlink0002": 0.6})


def test_a_step_without_solution_is_an_error_that_names_it(falling):
    system, state = falling
    with pytest.raises(mbd.SimulationError, match=r"the step of 0\.5 s from t = 0\.0 s"):
        mbd.simulate(system, state, t1=5.0, dt=0.5, integrator=mbd.GeneralizedAlpha(0.9))


def test_rollout_ends_in_nan_rather_than_in_a_wrong_trajectory(falling):
    states = mbd.rollout(*falling, dt=0.5, n_steps=2, integrator=mbd.GeneralizedAlpha(0.9))
    assert np.isnan(states.q).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mbd.GeneralizedAlpha(1.2), r"rho_inf must be within \[0, 1\], got 1\.2"),
        (lambda: mbd.GeneralizedAlpha(index=1), "index must be 2 or 3, got 1"),
        (lambda: mbd.GeneralizedAlpha.hht(0.5), r"alpha must be within \[0, 1/3\], got 0\.5"),
    ],
)
def test_impossible_options(make, message):
    with pytest.raises(mbd.ModelError, match=message):
        make()
