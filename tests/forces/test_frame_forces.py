"""Forces between frames and in fields: potentials, reactions, power, zero length."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd import forces, signals
from jaxmbd.lie import Pose, se3
from tests import models

T = jnp.asarray(0.7)
SPRING = forces.SpringDamper("a", "b", stiffness=30.0, damping=2.0, rest_length=0.4)
LAWS = {
    "SpringDamper": SPRING,
    "AppliedForce": forces.AppliedForce("a", (1.0, -2.0, 3.0)),
    "follower AppliedForce": forces.AppliedForce("a", (1.0, -2.0, 3.0), follower=True),
    "AppliedTorque": forces.AppliedTorque("a", (1.0, -2.0, 3.0)),
    "follower AppliedTorque": forces.AppliedTorque("a", (1.0, -2.0, 3.0), follower=True),
}


def random_motion(n: int, seed: int = 0) -> tuple[Pose, jax.Array]:
    """Poses and twists of n frames."""
    rng = np.random.default_rng(seed)
    X = jax.vmap(se3.exp)(jnp.asarray(rng.normal(size=(n, 6))))
    return X, jnp.asarray(rng.normal(size=(n, 6)))


def displaced(X: Pose, delta: jax.Array) -> Pose:
    return jax.vmap(se3.retract)(X, delta)


def in_world(X: Pose, W: jax.Array) -> jax.Array:
    """Sum of the wrenches about the world's origin."""
    return jnp.sum(jax.vmap(se3.transform_wrench)(X, W), axis=0)


@pytest.mark.smoke
def test_spring_pulls_down_its_potential():
    X, _ = random_motion(2)
    still = jnp.zeros((2, 6))
    slope = jax.jit(jax.grad(lambda delta: SPRING.potential(T, displaced(X, delta))))(still)
    np.testing.assert_allclose(SPRING.wrenches(T, X, still), -slope, atol=1e-13)
    assert np.abs(slope).max() > 1


def test_spring_force_is_tension_along_the_line():
    X = Pose(jnp.array([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]), jnp.broadcast_to(jnp.eye(3), (2, 3, 3)))
    V = jnp.zeros((2, 6)).at[1, 1].set(0.5)
    W = SPRING.wrenches(T, X, V)
    tension = 30.0 * (3.0 - 0.4) + 2.0 * 0.5
    np.testing.assert_allclose(W[:, :3], [[0, tension, 0], [0, -tension, 0]], rtol=1e-15)


def test_damper_takes_the_square_of_the_rate_of_length():
    X, V = random_motion(2)

    def length(delta):
        p = displaced(X, delta).p
        return jnp.linalg.norm(p[1] - p[0])

    rate = jax.jit(lambda V: jax.jvp(length, (jnp.zeros((2, 6)),), (V,))[1])(V)
    damper = eqx.tree_at(lambda f: f.stiffness, SPRING, jnp.zeros(()))
    np.testing.assert_allclose(jnp.sum(damper.wrenches(T, X, V) * V), -2.0 * rate**2, rtol=1e-13)


def test_spring_acts_and_reacts():
    X, V = random_motion(2)
    np.testing.assert_allclose(in_world(X, SPRING.wrenches(T, X, V)), 0.0, atol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("rest_length", [0.0, 0.4])
def test_spring_of_zero_length(rest_length):
    """No NaN in value or derivative, in either mode; without rest length a linear spring."""
    spring = forces.SpringDamper("a", "b", 30.0, 2.0, rest_length)
    X = Pose(jnp.zeros((2, 3)), jnp.broadcast_to(jnp.eye(3), (2, 3, 3)))
    V = jnp.asarray(np.random.default_rng(1).normal(size=(2, 6)))

    def outcome(spring, delta, V):
        X_moved = displaced(X, delta)
        return spring.wrenches(T, X_moved, V), spring.potential(T, X_moved)

    still = jnp.zeros((2, 6))
    W, potential = outcome(spring, still, V)
    np.testing.assert_array_equal(W, 0.0)
    np.testing.assert_allclose(potential, 15.0 * rest_length**2)
    for differentiate in (jax.jacfwd, jax.jacrev):
        slopes = jax.jit(differentiate(outcome, argnums=(0, 1, 2)))(spring, still, V)
        for leaf in jax.tree.leaves(slopes):
            assert np.all(np.isfinite(leaf))
        by_place = slopes[0][1]
        np.testing.assert_allclose(by_place[0, :3, 0, :3], -30.0 * np.eye(3), atol=1e-12)


@pytest.mark.smoke
def test_weight_is_the_slope_of_its_potential():
    body = models.random_body(np.random.default_rng(2))
    field = forces.Gravity((1.0, -2.0, -9.0))
    X, V = jax.tree.map(lambda x: x[0], random_motion(1))

    def height(delta):
        return field.potential(T, body, se3.retract(X, delta))

    W = field.wrench(T, body, X, V)
    np.testing.assert_allclose(W, -jax.jit(jax.grad(height))(jnp.zeros(6)), atol=1e-13)
    # About the centre of mass it has no moment, and its size is m g.
    at_com = se3.transform_wrench_back(Pose(body.com, jnp.eye(3)), W)
    np.testing.assert_allclose(at_com[3:], 0.0, atol=1e-14)
    np.testing.assert_allclose(X.R @ W[:3], body.mass * field.g, rtol=1e-14)


def test_standard_gravity():
    body = models.random_body(np.random.default_rng(2))
    W = forces.Gravity().wrench(T, body, Pose.identity(), jnp.zeros(6))
    np.testing.assert_allclose(W[:3], [0.0, 0.0, -9.81 * body.mass], rtol=1e-15)


@pytest.mark.parametrize("follower", [False, True])
@pytest.mark.parametrize("kind", [forces.AppliedForce, forces.AppliedTorque])
def test_applied_load_keeps_its_axes_or_follows_the_frame(kind, follower):
    X, V = random_motion(1)
    value = jnp.array([1.0, -2.0, 3.0])
    W = kind("a", value, follower=follower).wrenches(T, X, V)[0]
    mine, other = (W[:3], W[3:]) if kind is forces.AppliedForce else (W[3:], W[:3])
    np.testing.assert_array_equal(other, 0.0)
    np.testing.assert_allclose(mine if follower else X.R[0] @ mine, value, rtol=1e-14)


def test_applied_load_follows_its_signal():
    push = forces.AppliedForce("a", signals.Polynomial([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]))
    X = Pose(jnp.zeros((1, 3)), jnp.eye(3)[None])
    W = push.wrenches(T, X, jnp.zeros((1, 6)))
    np.testing.assert_allclose(W[0], [1.0, 1.4, 0, 0, 0, 0], rtol=1e-15)


@pytest.mark.parametrize("name", LAWS)
def test_wrenches_have_one_row_for_each_frame(name):
    law = LAWS[name]
    n = 2 if isinstance(law, forces.SpringDamper) else 1
    assert law.wrenches(T, *random_motion(n)).shape == (n, 6)
    assert np.isfinite(law.potential(T, random_motion(n)[0]))
