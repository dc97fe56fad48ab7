"""Rigid motions: laws of the group, twists and wrenches, smoothness at zero."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest

from jaxmbd.lie import Pose, se3, so3, vector
from tests.lie import draws

EPS = 2.3e-16
TWISTS = jnp.asarray(draws.twists())
COUNT = TWISTS.shape[0]


def each(f, *args):
    return jax.jit(jax.vmap(f))(*args)


def matrix(X: Pose):
    """The 4 × 4 homogeneous matrix."""
    top = jnp.concatenate([X.R, X.p[:, None]], axis=1)
    return jnp.concatenate([top, jnp.array([[0.0, 0.0, 0.0, 1.0]])])


def generator(V):
    """The 4 × 4 matrix whose exponential is the motion of a twist."""
    return matrix(Pose(V[:3], so3.hat(V[3:]))).at[3, 3].set(0.0)


@pytest.fixture(scope="module")
def poses():
    return tuple(each(se3.exp, jnp.roll(TWISTS, k, axis=0)) for k in (0, 5, 17))


def test_displaced_coordinates_have_the_pose_of_the_retraction(poses):
    def both(X, V):
        x = se3.displaced(jnp.concatenate([X.p, 1.3 * so3.from_matrix(X.R)]), V)
        return Pose(x[:3], so3.to_matrix(x[3:])), se3.retract(X, V), x[3:] @ x[3:]

    got, expected, squares = each(both, poses[0], TWISTS)
    np.testing.assert_allclose(got.R, expected.R, atol=2e-15)
    np.testing.assert_allclose(got.p, expected.p, atol=2e-14)
    np.testing.assert_allclose(squares, 1.69, rtol=1e-14)


@pytest.mark.smoke
def test_exponential_is_that_of_the_matrix():
    got = each(lambda V: matrix(se3.exp(V)), TWISTS)
    np.testing.assert_allclose(got, each(lambda V: jsl.expm(generator(V)), TWISTS), atol=1e-14)


@pytest.mark.smoke
def test_group_of_poses(poses):
    def errors(A, B, C):
        one = jnp.eye(4)
        return (
            matrix((A @ B) @ C) - matrix(A @ (B @ C)),
            matrix(A @ B) - matrix(A) @ matrix(B),
            matrix(A @ A.inverse()) - one,
            matrix(A.inverse() @ A) - one,
            matrix(A @ Pose.identity()) - matrix(A),
            matrix(A @ se3.between(A, B)) - matrix(B),
        )

    for error in each(errors, *poses):
        np.testing.assert_allclose(error, 0.0, atol=40 * EPS)


def test_point(poses):
    point = jnp.array([0.3, -0.8, 1.2])
    got = each(lambda X: X.apply(point), poses[0])
    wanted = each(lambda X: (matrix(X) @ jnp.append(point, 1.0))[:3], poses[0])
    np.testing.assert_allclose(got, wanted, atol=8 * EPS)


def test_adjoint_is_a_homomorphism(poses):
    got = each(lambda A, B: se3.adjoint(A @ B), *poses[:2])
    np.testing.assert_allclose(
        got, each(lambda A, B: se3.adjoint(A) @ se3.adjoint(B), *poses[:2]), atol=60 * EPS
    )


def test_adjoint_conjugates_the_exponential(poses):
    """X exp(V) X⁻¹ = exp(Ad(X) V)."""
    V = jnp.asarray(np.random.default_rng(2).uniform(-1, 1, (COUNT, 6)))
    got = each(lambda X, V: matrix(X @ se3.exp(V) @ X.inverse()), poses[0], V)
    wanted = each(lambda X, V: matrix(se3.exp(se3.transform_twist(X, V))), poses[0], V)
    np.testing.assert_allclose(got, wanted, atol=1e-14)


def test_transforms_are_the_adjoint_its_inverse_and_their_transposes(poses):
    U = jnp.asarray(np.random.default_rng(4).normal(size=(COUNT, 6)))

    def errors(X, U):
        Ad, inverse = se3.adjoint(X), se3.adjoint(X.inverse())
        return (
            se3.transform_twist(X, U) - Ad @ U,
            se3.transform_twist_back(X, U) - inverse @ U,
            se3.transform_wrench(X, U) - inverse.T @ U,
            se3.transform_wrench_back(X, U) - Ad.T @ U,
        )

    for error in each(errors, poses[0], U):
        np.testing.assert_allclose(error, 0.0, atol=60 * EPS)


def test_brackets_are_derivatives_of_the_transforms():
    """At s = 0, d/ds Ad(exp(sV)) U = ad(V) U, and likewise for wrenches."""
    U = jnp.asarray(np.random.default_rng(6).normal(size=(COUNT, 6)))

    def errors(V, U):
        def carried(transform):
            along = lambda s: transform(se3.exp(s * V), U)  # noqa: E731
            return jax.jvp(along, (jnp.zeros(()),), (jnp.ones(()),))[1]

        return (
            carried(se3.transform_twist) - se3.cross_twist(V, U),
            carried(se3.transform_wrench) - se3.cross_wrench(V, U),
        )

    for error in each(errors, TWISTS, U):
        np.testing.assert_allclose(error, 0.0, atol=60 * EPS)


def test_velocity_inverts_rate(poses):
    V = jnp.asarray(np.random.default_rng(9).normal(size=(COUNT, 6)))
    got = each(lambda X, V: se3.velocity(X, se3.rate(X, V)), poses[0], V)
    np.testing.assert_allclose(got, V, atol=20 * EPS)


def test_retraction_moves_along_the_body_twist(poses):
    V = jnp.asarray(np.random.default_rng(9).normal(size=(COUNT, 6)))

    def error(X, V):
        along = lambda s: se3.retract(X, s * V)  # noqa: E731
        X, X_dot = jax.jvp(along, (jnp.zeros(()),), (jnp.ones(()),))
        return se3.velocity(X, X_dot) - V

    np.testing.assert_allclose(each(error, poses[0], V), 0.0, atol=20 * EPS)


@pytest.mark.long
def test_exponential_is_smooth_at_zero():
    """Its first two derivatives there are those of 1 + A + A²/2."""

    def quadratic(V):
        A = generator(V)
        return jnp.eye(4) + A + 0.5 * A @ A

    f = lambda V: matrix(se3.exp(V))  # noqa: E731
    zero = jnp.zeros(6)
    first, second = jax.jacfwd(quadratic)(zero), jax.jacfwd(jax.jacfwd(quadratic))(zero)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(f))(zero), first, atol=EPS)
    np.testing.assert_allclose(jax.jit(jax.jacrev(f))(zero), first, atol=EPS)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(jax.jacrev(f)))(zero), second, atol=EPS)


@pytest.mark.long
def test_length_and_direction_at_zero():
    """Finite in value, gradient and Hessian, all zero by convention; right elsewhere."""
    zero, d = jnp.zeros(3), jnp.array([2.0, -3.0, 6.0])
    for f in (vector.length, vector.direction):
        for derivative in (f, jax.jacfwd(f), jax.jacrev(f), jax.jacfwd(jax.jacrev(f))):
            np.testing.assert_array_equal(jax.jit(derivative)(zero), 0.0)
    u = d / 7.0
    np.testing.assert_allclose(vector.length(d), 7.0, rtol=EPS)
    np.testing.assert_allclose(jax.grad(vector.length)(d), u, rtol=4 * EPS)
    np.testing.assert_allclose(
        jax.jacrev(vector.direction)(d), (np.eye(3) - np.outer(u, u)) / 7.0, atol=EPS
    )
