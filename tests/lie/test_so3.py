"""Rotations: laws of the group, tangents against autodiff, smoothness at zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.lie import so3
from tests.lie import draws

EPS = 2.3e-16
PHI = jnp.asarray(draws.rotation_vectors())


def each(f, *args):
    return jax.jit(jax.vmap(f))(*args)


@pytest.mark.smoke
def test_matrix_of_the_exponential_is_a_rotation():
    R = each(so3.exp_matrix, PHI)
    np.testing.assert_allclose(
        each(lambda R: R.T @ R, R), np.broadcast_to(np.eye(3), R.shape), atol=8 * EPS
    )
    np.testing.assert_allclose(each(jnp.linalg.det, R), 1.0, atol=8 * EPS)


@pytest.mark.smoke
def test_logarithm_inverts_the_exponential():
    np.testing.assert_allclose(
        each(lambda phi: so3.log(so3.exp(phi)), PHI), PHI, rtol=4 * EPS, atol=20 * EPS
    )


def test_logarithm_is_that_of_the_rotation_not_of_the_quaternion():
    q = each(so3.exp, PHI)
    np.testing.assert_allclose(each(so3.log, -3.0 * q), each(so3.log, q), atol=20 * EPS)
    beyond = each(lambda phi: so3.log(so3.exp(phi)), jnp.array([[0.0, 4.0, 0.0]]))
    np.testing.assert_allclose(beyond, [[0.0, 4.0 - 2 * np.pi, 0.0]], atol=1e-14)


def test_quaternion_and_matrix_of_one_rotation_agree():
    q = each(so3.exp, PHI)
    np.testing.assert_allclose(each(so3.to_matrix, q), each(so3.exp_matrix, PHI), atol=10 * EPS)
    np.testing.assert_allclose(each(so3.to_matrix, -2.5 * q), each(so3.to_matrix, q), atol=8 * EPS)


def test_group_of_quaternions():
    a, b, c = (each(so3.exp, jnp.roll(PHI, k, axis=0)) for k in (0, 5, 17))
    multiply = jax.jit(jax.vmap(so3.multiply))
    np.testing.assert_allclose(
        multiply(multiply(a, b), c), multiply(a, multiply(b, c)), atol=8 * EPS
    )
    one = jnp.broadcast_to(so3.identity(), a.shape)
    np.testing.assert_allclose(multiply(one, a), a, atol=0)
    np.testing.assert_allclose(multiply(a, each(so3.conjugate, a)), one, atol=8 * EPS)
    R = each(so3.to_matrix, multiply(a, b))
    np.testing.assert_allclose(R, each(so3.to_matrix, a) @ each(so3.to_matrix, b), atol=10 * EPS)


def test_rotation_about_an_axis():
    phi = jnp.array([0.3, -1.1, 0.4])
    angle = jnp.linalg.norm(phi)
    np.testing.assert_allclose(so3.about(phi / angle, angle), so3.exp_matrix(phi), atol=8 * EPS)


def half_turns() -> np.ndarray:
    """Rotation matrices of angle π, exactly symmetric."""
    axes = np.concatenate([np.eye(3), np.random.default_rng(3).normal(size=(8, 3))])
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    return 2 * np.einsum("ni,nj->nij", axes, axes) - np.eye(3)


def test_quaternion_of_a_matrix():
    R = jnp.concatenate([each(so3.exp_matrix, PHI), jnp.asarray(half_turns())])
    q = each(so3.from_matrix, R)
    np.testing.assert_allclose(each(so3.to_matrix, q), R, atol=10 * EPS)
    np.testing.assert_allclose(jnp.sum(q * q, axis=1), 1.0, atol=8 * EPS)
    assert np.all(q[:, 0] >= 0)


def test_gradient_of_the_quaternion_of_a_matrix():
    """Along R hat(ω) it is the quaternion's rate, half turns included."""
    R = jnp.concatenate([each(so3.exp_matrix, PHI), jnp.asarray(half_turns())])
    omega = jnp.array([0.4, -0.7, 1.1])

    def both(R):
        q, q_dot = jax.jvp(so3.from_matrix, (R,), (R @ so3.hat(omega),))
        return q_dot, so3.rate(q, omega)

    got, wanted = each(both, R)
    np.testing.assert_allclose(got, wanted, atol=1e-14)


def test_rate_of_a_quaternion():
    """Ṙ = R hat(ω), for quaternions of any length."""
    omega = jnp.array([0.4, -0.7, 1.1])
    q = 1.7 * each(so3.exp, PHI)

    def error(q):
        R, R_dot = jax.jvp(so3.to_matrix, (q,), (so3.rate(q, omega),))
        return R_dot - R @ so3.hat(omega)

    np.testing.assert_allclose(each(error, q), 0.0, atol=20 * EPS)


def test_tangent_of_the_exponential():
    """ω = dexp(φ) φ̇ is vee(Rᵀ Ṙ)."""

    def by_autodiff(phi):
        R = so3.exp_matrix(phi)
        return jax.vmap(lambda dR: so3.vee(R.T @ dR), -1, -1)(jax.jacfwd(so3.exp_matrix)(phi))

    np.testing.assert_allclose(each(so3.dexp, PHI), each(by_autodiff, PHI), atol=20 * EPS)


ZERO_SAFE = {
    "exp": so3.exp,
    "log of exp": lambda phi: so3.log(so3.exp(phi)),
    "exp_matrix": so3.exp_matrix,
    "dexp": so3.dexp,
}


@pytest.mark.long
@pytest.mark.parametrize("name", ZERO_SAFE)
def test_smooth_at_zero(name):
    """Value, Jacobian and Hessian at zero are those next to it, in both modes."""
    f = ZERO_SAFE[name]
    points = jnp.array([[0.0, 0.0, 0.0], [1e-6, -2e-6, 1e-6]])
    derivatives = [
        (f, 0),
        (jax.jacfwd(f), 1),
        (jax.jacrev(f), 1),
        (jax.jacfwd(jax.jacrev(f)), 2),
        (jax.jacrev(jax.jacfwd(f)), 2),
    ]
    values = {}
    for derivative, order in derivatives:
        at_zero, beside = each(derivative, points)
        np.testing.assert_allclose(at_zero, beside, atol=5e-6)
        np.testing.assert_allclose(at_zero, values.setdefault(order, at_zero), atol=8 * EPS)
    assert np.abs(values[1]).max() >= 0.5


def test_hessian_of_the_exponential_at_zero():
    """∂²R/∂φᵢ∂φⱼ = ½ (êᵢ êⱼ + êⱼ êᵢ)."""
    H = jax.jit(jax.jacfwd(jax.jacrev(so3.exp_matrix)))(jnp.zeros(3))
    e = jax.vmap(so3.hat)(jnp.eye(3))
    product = jnp.einsum("iab,jbc->acij", e, e)
    np.testing.assert_allclose(H, 0.5 * (product + jnp.swapaxes(product, 2, 3)), atol=EPS)


def test_basis_of_an_axis():
    rng = np.random.default_rng(5)
    below = [[1e-9, 0, -1], [0, 0, -1], [1, 0, -1e-300], [1, 1e-12, 0.0], [0, 0, 1]]
    axes = jnp.asarray(np.concatenate([rng.normal(size=(40, 3)), below]))
    E = each(so3.basis, axes)
    np.testing.assert_allclose(
        each(lambda E: E.T @ E, E), np.broadcast_to(np.eye(3), E.shape), atol=8 * EPS
    )
    np.testing.assert_allclose(each(jnp.linalg.det, E), 1.0, atol=8 * EPS)
    unit = axes / jnp.linalg.norm(axes, axis=1, keepdims=True)
    np.testing.assert_allclose(E[:, :, 2], unit, atol=4 * EPS)
    assert np.all(np.isfinite(each(jax.jacrev(so3.basis), axes)))
    np.testing.assert_array_equal(so3.basis(jnp.array([0.0, 0.0, 2.0])), np.eye(3))
