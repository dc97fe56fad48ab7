"""Vectorial parameterizations: angles, inverses, tangents, screws, smoothness at zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd import lie
from jaxmbd.lie import se3, so3

KINDS = {
    lie.Exponential(): lambda angle: angle,
    lie.EulerRodrigues(): lambda angle: 2 * np.sin(angle / 2),
    lie.Cayley(): lambda angle: 2 * np.tan(angle / 2),
    lie.CayleyGibbsRodrigues(): lambda angle: 2 * np.tan(angle / 2),
    lie.WienerMilenkovic(): lambda angle: 4 * np.tan(angle / 4),
}
RNG = np.random.default_rng(0)
AXES = RNG.normal(size=(5, 3))
AXES /= np.linalg.norm(AXES, axis=1)[:, None]
ANGLES = np.array([0.0, 1e-9, 1e-3, 0.7, 2.5])
SCREWS = jnp.asarray(
    RNG.uniform(-0.6, 0.6, size=(5, 6)) * np.array([1e-7, 1e-3, 1.0, 1.0, 0.0])[:, None]
)


@pytest.fixture(params=KINDS, ids=lambda kind: type(kind).__name__)
def kind(request):
    return request.param


def test_angle_and_axis(kind):
    for axis, angle in zip(AXES, ANGLES, strict=True):
        p = jnp.asarray(KINDS[kind](angle) * axis)
        np.testing.assert_allclose(
            so3.to_matrix(kind.rotation(p)),
            so3.about(jnp.asarray(axis), jnp.asarray(angle)),
            atol=2e-15,
        )
        np.testing.assert_allclose(kind.parameters(-1.7 * kind.quaternion(p)), p, atol=5e-15)


@pytest.mark.thorough
def test_tangents_of_rotation_and_motion(kind):
    """Against the derivative of the matrices that they are the tangents of."""
    rate = jnp.asarray(RNG.normal(size=6))
    for Q in SCREWS:
        R, dR = jax.jvp(lambda p: so3.to_matrix(kind.quaternion(p)), (Q[3:],), (rate[3:],))
        np.testing.assert_allclose(kind.tangent(Q[3:]) @ rate[3:], so3.vee(R.T @ dR), atol=3e-15)
        X, dX = jax.jvp(kind.motion, (Q,), (rate,))
        np.testing.assert_allclose(kind.motion_tangent(Q) @ rate, se3.velocity(X, dX), atol=5e-15)


def test_motion_is_a_screw_that_leaves_its_parameters_alone(kind):
    """Ad(C(Q)) Q = Q, eq. (22) of Bauchau et al. (2013) rests on it; -Q is the backward pass."""
    for Q in SCREWS:
        X = kind.motion(Q)
        np.testing.assert_allclose(se3.transform_twist(X, Q), Q, atol=2e-15)
        back = X @ kind.motion(-Q)
        np.testing.assert_allclose(back.p, 0, atol=1e-15)
        np.testing.assert_allclose(back.R, np.eye(3), atol=1e-15)


def test_exponential_is_that_of_the_group():
    for Q in SCREWS:
        ours, known = lie.Exponential().motion(Q), se3.exp(Q)
        np.testing.assert_allclose(ours.p, known.p, atol=1e-15)
        np.testing.assert_allclose(ours.R, known.R, atol=1e-15)


def test_points_move_by_the_cayley_increment_about_their_mean(kind):
    for Q in SCREWS:
        r, s = kind.cayley_ratio(Q)
        v, w = r * Q[:3] + s * Q[3:], r * Q[3:]
        X, point = kind.motion(Q), jnp.array([0.3, -0.5, 0.2])
        moved = X.apply(point)
        expected = v + jnp.cross(w, 0.5 * (moved + point))
        np.testing.assert_allclose(moved - point, expected, atol=1e-15)


@pytest.mark.thorough
def test_smooth_at_zero(kind):
    """Value, first and second derivatives at no motion are those of the exponential."""

    def flat(kind):
        def pose(Q):
            X = kind.motion(Q)
            return jnp.concatenate([X.p, X.R.ravel()])

        return pose

    zero = jnp.zeros(6)
    for derivative in (jax.jacfwd, jax.jacrev, lambda f: jax.jacfwd(jax.jacrev(f))):
        np.testing.assert_allclose(
            derivative(flat(kind))(zero), derivative(flat(lie.Exponential()))(zero), atol=1e-15
        )
    assert np.isfinite(jax.jacrev(kind.motion_tangent)(zero)).all()
