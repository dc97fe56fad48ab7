"""Generalized-α: order, constraints, damping, adaptive steps, gradients, failures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import testing
from jaxmbd.system.equation_residuals import position_residual
from tests.derivatives import check_gradient
from tests.marks import thorough_but
from tests.models import chain, four_bar

METHODS = {
    "rho 0.8": mbd.GeneralizedAlpha(0.8),
    "trapezoidal": mbd.GeneralizedAlpha.trapezoidal(),
    "hht": mbd.GeneralizedAlpha.hht(0.2),
    "index 2": mbd.GeneralizedAlpha(0.8, index=2),
    "projected": mbd.GeneralizedAlpha(0.8, project=True),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    ["index 2", *(pytest.param(n, marks=pytest.mark.thorough) for n in ("rho 0.8", "projected"))],
)
def test_order_with_constraints(name):
    testing.check_integrator_order(METHODS[name], 2, mbd.MaximalCoordinates())


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(["rho 0.8"], ["rho 0.8", "trapezoidal", "hht"]))
def test_order_without_constraints(name):
    testing.check_integrator_order(METHODS[name], 2)


@pytest.mark.thorough
def test_gradients():
    """Derivatives of a constrained pendulum after 20 steps, by mass, angle and rate."""
    model, method = chain(1), mbd.GeneralizedAlpha(0.7)
    fixed = mbd.formulate(model, mbd.MaximalCoordinates())
    start = mbd.assemble(fixed, {"jlink0000": 0.3}, {"jlink0000": 0.8})

    def end(inputs):
        scale, angle, rate = inputs
        own = eqx.tree_at(lambda m: m.bodies["link0000"].com, model, replace_fn=lambda c: c * scale)
        system = mbd.formulate(own, mbd.MaximalCoordinates())
        turn = jnp.zeros(6).at[4].set(angle)
        state = mbd.State(system.retract(start.q, turn), start.v * rate)
        states = mbd.rollout(system, state, dt=0.01, n_steps=20, integrator=method)
        return states.q[-1] @ jnp.linspace(-1.0, 1.0, 7)

    check_gradient(end)


@pytest.mark.thorough
def test_errors_of_the_default_newton_are_negligible_in_a_loop():
    """Beside those of the steps; gradients are those of the differences of these motions."""
    system = mbd.formulate(four_bar(), mbd.JointCoordinates())
    start = mbd.assemble(system, {"left": 1.0}, {"left": 6.0}, hold=["left"])
    solved = {
        name: mbd.GeneralizedAlpha(0.8, newton=newton)
        for name, newton in (("default", None), ("rounding", mbd.Newton(tolerance=0.0)))
    }

    def motion(method, speed, h, n_steps):
        state = mbd.State(start.q, start.v * speed)
        return mbd.rollout(system, state, h, n_steps, method)

    move = eqx.filter_jit(lambda method, n: motion(method, 1.0, 0.2 / n, n))
    found, expected, half = (
        move(solved[name], n) for name, n in (("default", 40), ("rounding", 40), ("rounding", 80))
    )
    for x, y, z in ((found.q, expected.q, half.q), (found.v, expected.v, half.v)):
        of_steps = np.abs(y - z[1::2]).max()
        assert 0.0 < np.abs(x - y).max() < 1e-2 * of_steps
    gaps = jax.vmap(lambda q: position_residual(system, 0.0, q))(found.q)
    assert np.abs(gaps).max() < 1e-9 * 6.0 * 5e-3

    def end(method, speed):
        last = motion(method, speed, 5e-3, 40)
        return last.q[-1] @ jnp.linspace(-1.0, 1.0, last.q.shape[1])

    slope = eqx.filter_jit(jax.value_and_grad(end, argnums=1))
    (_, found), (_, expected) = (slope(method, jnp.array(1.0)) for method in solved.values())
    ahead, behind = (slope(solved["default"], jnp.array(1.0 + e))[0] for e in (1e-4, -1e-4))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose((ahead - behind) / 2e-4, found, rtol=1e-5)


@pytest.fixture(scope="module")
def falling():
    system = mbd.formulate(chain(3), mbd.MaximalCoordinates())
    return system, mbd.assemble(system, {"jlink0000": 0.1, "jlink0001": 0.3, "jlink0002": 0.6})


@pytest.mark.thorough
def test_a_step_without_solution_is_an_error_that_names_it(falling):
    system, state = falling
    with pytest.raises(mbd.SimulationError, match=r"the step of 0\.5 s from t = \d\.\d s"):
        mbd.simulate(system, state, t1=50.0, dt=0.5, integrator=mbd.GeneralizedAlpha(0.9))


@pytest.fixture(scope="module")
def spinning(falling):
    """The outer link turns by 0.4 rad in each step of 1 ms."""
    system, _ = falling
    angles = {"jlink0001": 0.8, "jlink0002": -0.8}
    return system, mbd.assemble(system, angles, {"jlink0002": 400.0})


@pytest.mark.thorough
def test_accelerations_that_ring_are_named(spinning):
    with pytest.raises(mbd.SimulationError, match="change their sign from step to step"):
        mbd.simulate(*spinning, t1=0.1, dt=1e-3, integrator=mbd.GeneralizedAlpha(0.9))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rho 0.8", "index 2", "projected"])
def test_what_does_not_ring(spinning, name):
    states = mbd.rollout(*spinning, dt=1e-3, n_steps=100, integrator=METHODS[name])
    assert np.isfinite(states.v).all()


@pytest.mark.long
def test_rollout_ends_in_nan_rather_than_in_a_wrong_trajectory(falling):
    short = mbd.GeneralizedAlpha(0.9, newton=mbd.Newton(max_steps=1))  # Of iterations.
    states = mbd.rollout(*falling, dt=0.5, n_steps=2, integrator=short)
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
