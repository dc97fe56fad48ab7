"""Two-point wrenches: the work over a step is exactly what potentials lose, and none of joints."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.lie import (
    Cayley,
    CayleyGibbsRodrigues,
    EulerRodrigues,
    Exponential,
    WienerMilenkovic,
)
from jaxmbd.system import discrete_gradients, equation_residuals, loads
from tests import models
from tests.marks import thorough_but

T = jnp.asarray(0.3)
KINDS = (Exponential, EulerRodrigues, CayleyGibbsRodrigues, WienerMilenkovic)
INCREMENTS = [
    *(mbd.RotationIncrements(kind()) for kind in KINDS),
    *(mbd.MotionIncrements(kind()) for kind in (*KINDS, Cayley)),
]


def name_of(increments):
    return f"{type(increments).__name__}-{type(increments.parameterization).__name__}"


@pytest.fixture(scope="module")
def system():
    """Joints and potentials of every kind."""
    model = models.conservative(models.random_tree(2))
    model = mbd.Model(model.bodies, model.joints, model.forces)
    return mbd.formulate(model, mbd.MaximalCoordinates())


@eqx.filter_jit
def between(system, q, end, lam):
    """Wrenches of potentials and of multipliers on all bodies, and what they should bring about."""
    X0, X1 = (system.configuration(T, y).ports for y in (q, end))
    pull = discrete_gradients.conservative_wrenches(system.mechanism, T, X0, X1)
    push = discrete_gradients.constraint_wrenches(system, X0, X1, lam)
    lost = loads.potential(system, system.configuration(T, q)) - loads.potential(
        system, system.configuration(T, end)
    )
    opened = lam @ (
        equation_residuals.position_residual(system, T, end)
        - equation_residuals.position_residual(system, T, q)
    )
    wrenches = [discrete_gradients.on_bodies(system.mechanism, W) for W in (pull, push)]
    return wrenches, (lost, opened)


@eqx.filter_jit
def moved(increments, bodies, x, delta):
    return jax.vmap(increments.moved)(bodies, x, delta)


@eqx.filter_jit
def mean_loads(increments, bodies, x, delta, W):
    return jax.vmap(increments.mean_load)(bodies, x, delta, W)


def a_step(system):
    """A configuration, increments of all bodies, and multipliers."""
    rng = np.random.default_rng(4)
    q = models.random_state(system, seed=1).q
    delta = jnp.asarray(rng.normal(size=(system.mechanism.n_bodies, 6)) * 0.4)
    return (
        q,
        delta,
        jnp.asarray(rng.normal(size=equation_residuals.position_residual(system, T, q).size)),
    )


@pytest.mark.parametrize("increments", thorough_but(INCREMENTS[-1:], INCREMENTS), ids=name_of)
@pytest.mark.thorough
def test_work(system, increments):
    q, delta, lam = a_step(system)
    bodies, x = system.mechanism.rigid, q.reshape(-1, 7)
    end = moved(increments, bodies, x, delta)
    for W, expected in zip(*between(system, q, end.ravel(), lam), strict=True):
        work = jnp.sum(delta * mean_loads(increments, bodies, x, delta, W))
        assert work == pytest.approx(float(expected), rel=1e-12)
        assert abs(work) > 0.1


@pytest.mark.thorough
def test_what_is_internal_has_no_resultant():
    model = models.conservative(models.floating_tree())
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    q, delta, lam = a_step(system)
    end = moved(INCREMENTS[0], system.mechanism.rigid, q.reshape(-1, 7), delta)
    for W in between(system, q, end.ravel(), lam)[0]:
        assert jnp.abs(W).max() > 1
        np.testing.assert_allclose(W.sum(0), 0.0, atol=1e-13 * jnp.abs(W).max())


@pytest.mark.thorough
def test_between_equal_poses_they_are_the_forces(system):
    """The limit of small steps, where the correction along the step is left out."""
    q = models.random_state(system, seed=1).q
    X = system.configuration(T, q).ports

    @eqx.filter_jit
    def both(system, q):
        pull = discrete_gradients.on_bodies(
            system.mechanism, discrete_gradients.conservative_wrenches(system.mechanism, T, X, X)
        )
        there = jax.vmap(mbd.lie.se3.transform_wrench_back)(
            jax.tree.map(lambda x: x[1 : 1 + system.mechanism.n_bodies], X), pull
        )
        return there.ravel(), loads.applied(
            system, system.configuration(T, q), jnp.zeros(system.nv)
        )

    got, expected = both(system, q)
    np.testing.assert_allclose(got, expected, atol=1e-12 * jnp.abs(expected).max())


def test_a_law_between_three_frames_needs_a_form_of_its_own():
    class Pull(mbd.forces.abstract.AbstractFrameForce):
        def wrenches(self, t, X, V):
            return jnp.zeros((3, 6))

        def potential(self, t, X):
            return jnp.sum(X.p**2)

    X = jax.tree.map(lambda x: jnp.stack([x] * 3), mbd.Pose.identity())
    with pytest.raises(NotImplementedError, match="Pull: register `frame_slopes`"):
        discrete_gradients.frame_slopes(Pull(), T, X, X)


@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-3, 1.0])
def test_discrete_gradient(distance):
    def fn(x):
        return jnp.sin(x[0]) * jnp.exp(x[1])

    a = jnp.array([0.3, -0.2])
    b = a + distance * jnp.array([0.6, 0.8])
    slope = discrete_gradients.discrete_gradient(fn, a, b)
    assert slope @ (b - a) == pytest.approx(float(fn(b) - fn(a)), abs=1e-16, rel=1e-12)
    np.testing.assert_allclose(slope, jax.grad(fn)((a + b) / 2), atol=0.1 * distance**2 + 1e-15)
