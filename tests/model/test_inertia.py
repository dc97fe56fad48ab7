"""Mass properties of shapes, and the parameters that fitting may vary freely."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import inertia
from jaxmbd.lie import so3
from jaxmbd.system.mass_and_energy import momentum_of, spatial_inertia
from tests import models


def particles(inside, size, n=40) -> np.ndarray:
    """Points of a fine grid within a shape."""
    axes = [(np.arange(n) + 0.5) / n * s - s / 2 for s in size]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    return grid[inside(*grid.T)]


def moments(points: np.ndarray, mass: float) -> np.ndarray:
    second = points.T @ points / len(points)
    return mass * (np.trace(second) * np.eye(3) - second)


SHAPES = {
    "box": (
        inertia.box(2.0, (0.4, 0.6, 1.0)),
        particles(lambda x, y, z: x == x, (0.4, 0.6, 1.0)),
    ),
    "cylinder": (
        inertia.cylinder(2.0, 0.3, 1.0),
        particles(lambda x, y, z: x**2 + y**2 < 0.09, (0.6, 0.6, 1.0), 80),
    ),
    "cylinder along x": (
        inertia.cylinder(2.0, 0.3, 1.0, axis=(-2, 0, 0)),
        particles(lambda x, y, z: z**2 + y**2 < 0.09, (1.0, 0.6, 0.6), 80),
    ),
    "sphere": (
        inertia.sphere(2.0, 0.5),
        particles(lambda x, y, z: x**2 + y**2 + z**2 < 0.25, (1.0, 1.0, 1.0), 80),
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_against_a_cloud_of_particles(name):
    body, points = SHAPES[name]
    assert body.mass == 2.0
    np.testing.assert_array_equal(body.com, 0.0)
    np.testing.assert_allclose(body.inertia, moments(points, 2.0), atol=2e-3 * np.max(body.inertia))


def test_rod():
    body = inertia.rod(12.0, 2.0, axis=(0, 3, 0), radius=0.1)
    np.testing.assert_allclose(body.inertia, np.diag([4.0, 0.06, 4.0]), atol=1e-15)
    thin = inertia.rod(12.0, 2.0)
    np.testing.assert_allclose(jnp.diagonal(thin.inertia), [12 * 0.02**2 / 2, 4, 4], rtol=1e-12)


def test_shift_and_rotation_move_the_material():
    R = np.asarray(so3.exp_matrix(jnp.array([0.3, -1.0, 0.5])))
    body = inertia.shifted(inertia.rotated(inertia.box(2.0, (0.4, 0.6, 1.0)), R), (1.0, 2.0, 3.0))
    box = particles(lambda x, y, z: x == x, (0.4, 0.6, 1.0))
    points = box @ R.T + np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(body.com, points.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(body.inertia, moments(points - np.asarray(body.com), 2.0), atol=1e-3)
    turned = inertia.rotated(inertia.shifted(inertia.sphere(1.0, 0.1), (1.0, 0, 0)), R)
    np.testing.assert_allclose(turned.com, R[:, 0], atol=1e-15)


def test_principal_moments():
    R = so3.exp_matrix(jnp.array([0.3, -1.0, 0.5]))
    body = inertia.principal(2.0, (0.2, 0.3, 0.4), R, com=(0.1, 0.0, 0.0))
    np.testing.assert_allclose(jnp.diagonal(R.T @ body.inertia @ R), [0.2, 0.3, 0.4], rtol=1e-14)
    np.testing.assert_array_equal(body.com, [0.1, 0.0, 0.0])
    plain = inertia.principal(2.0, (0.2, 0.3, 0.4))
    np.testing.assert_array_equal(plain.inertia, np.diag([0.2, 0.3, 0.4]))


def test_spatial_inertia_is_the_kinetic_energy_of_particles():
    rng = np.random.default_rng(1)
    masses, points = rng.uniform(0.1, 0.5, 9), rng.normal(size=(9, 3))
    com = masses @ points / masses.sum()
    s = points - com
    second = np.einsum("n,ni,nj->ij", masses, s, s)
    body = mbd.RigidBody(masses.sum(), np.trace(second) * np.eye(3) - second, com)
    V = rng.normal(size=6)
    velocities = V[:3] + np.cross(V[3:], points)
    energy = 0.5 * np.sum(masses[:, None] * velocities**2)
    momentum = np.concatenate(
        [masses @ velocities, np.sum(masses[:, None] * np.cross(points, velocities), axis=0)]
    )
    I = spatial_inertia(body)
    np.testing.assert_allclose(0.5 * V @ I @ V, energy, rtol=1e-13)
    np.testing.assert_allclose(I @ V, momentum, rtol=1e-12)
    np.testing.assert_allclose(momentum_of(body, jnp.asarray(V)), momentum, rtol=1e-12)


@pytest.mark.smoke
def test_log_cholesky_round_trip():
    body = models.random_body(np.random.default_rng(4))
    theta = inertia.to_log_cholesky(body)
    models.near(inertia.from_log_cholesky(theta), body, 1e-14)
    again = inertia.to_log_cholesky(inertia.from_log_cholesky(theta + 0.1))
    np.testing.assert_allclose(again, theta + 0.1, atol=1e-13)


def test_every_log_cholesky_parameter_gives_a_possible_body():
    """Ten numbers drawn at random, with full rank: no direction of the ten is lost."""
    thetas = jnp.asarray(np.random.default_rng(5).normal(size=(50, 10)))
    possible = jax.vmap(lambda theta: inertia.from_log_cholesky(theta).is_possible())
    assert np.all(jax.jit(possible)(thetas))

    def flat(theta):
        body = inertia.from_log_cholesky(theta)
        second = body.inertia + body.mass * jnp.outer(body.com, body.com)
        return jnp.concatenate([body.mass[None], body.com, second[jnp.triu_indices(3)]])

    assert np.linalg.matrix_rank(jax.jit(jax.jacfwd(flat))(thetas[0])) == 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: inertia.rod(1.0, -1.0), "rod: length must be positive, got -1.0"),
        (lambda: inertia.rod(1.0, 1.0, axis=(0, 0, 0)), "axis must not be the zero vector"),
        (lambda: inertia.cylinder(1.0, 0.0, 1.0), "cylinder: radius must be positive"),
        (lambda: inertia.box(0.0, (1, 1, 1)), "box: mass must be positive"),
        (lambda: inertia.box(1.0, (1, 1)), "box: size must be an array of shape (3,)"),
        (lambda: inertia.sphere(1.0, np.nan), "sphere: radius must be positive"),
        (lambda: inertia.principal(1.0, (1, 2, -3)), "principal: moments must be positive"),
    ],
)
def test_errors(make, message):
    with pytest.raises(mbd.ModelError) as caught:
        make()
    assert message in str(caught.value)
