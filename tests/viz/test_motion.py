import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import inertia
from jaxmbd.viz import keyframes, meshes
from jaxmbd.viz.stage import equivalent_boxes
from tests.viz import motions


@pytest.fixture(scope="module")
def fine() -> mbd.Solution:
    return motions.motion(motions.crane(), np.linspace(0.0, 1.0, 41), motions.swinging)


@pytest.mark.thorough
@pytest.mark.parametrize("every", [2, 4, 8])
def test_between_saved_times_the_motion_is_followed(fine, every):
    rows = jnp.arange(0, 41, every)
    states = jax.tree.map(lambda x: x[rows], fine.states)
    coarse = motions.solution(fine.system, fine.ts[rows], states)
    found = keyframes.keyframes(coarse, 0.025)
    frames = fine.frames
    h = every * 0.025
    np.testing.assert_allclose(found.ts, fine.ts, atol=1e-12)
    # A cubic's error is h⁴/384 times the fourth derivative, here up to about 3⁴ · 0.8 · 1.2.
    np.testing.assert_allclose(found.p, frames.pose.p, atol=h**4)
    np.testing.assert_allclose(found.R, frames.pose.R, atol=h**4)


def test_fast_turns_do_not_swing_over():
    model = mbd.Model({"top": inertia.sphere(1.0, 0.1)})
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    quarter = jnp.array([0.0, 0, 0, jnp.cos(0.4), 0, 0, jnp.sin(0.4)])
    q = jnp.stack([jnp.array([0.0, 0, 0, 1, 0, 0, 0]), quarter])
    v = jnp.zeros((2, 6)).at[:, 5].set(200.0)
    found = keyframes.keyframes(
        motions.solution(system, jnp.array([0.0, 1.0]), mbd.State(q, v)), 0.1
    )
    angle = np.arctan2(found.R[:, 1, 1, 0], found.R[:, 1, 0, 0])
    np.testing.assert_allclose(angle, np.linspace(0.0, 0.8, 11), atol=1e-12)


@pytest.mark.long
def test_frames_off_the_axis_of_fast_turns_stay_between_their_positions():
    """Their velocity times the interval is much longer than their way."""
    model = mbd.Model({"wheel": inertia.sphere(1.0, 0.1)})
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    q = jnp.array([[1.0, 0, 0, 1, 0, 0, 0], [0.0, 1, 0, np.sqrt(0.5), 0, 0, np.sqrt(0.5)]])
    v = jnp.zeros((2, 6)).at[:, 5].set(200.0).at[:, 1].set(200.0)
    found = keyframes.keyframes(
        motions.solution(system, jnp.array([0.0, 1.0]), mbd.State(q, v)), 0.1
    )
    between = np.linspace(q[0, :3], q[1, :3], 11)
    np.testing.assert_allclose(found.p[:, 1], between, atol=1e-12)


@pytest.mark.long
def test_long_motions_get_fewer_keyframes(fine):
    assert len(keyframes.keyframes(fine, 1e-5).ts) == keyframes.MAX_KEYFRAMES


@pytest.mark.long
def test_many_rows_are_thinned_before_anything_is_evaluated(fine, monkeypatch):
    monkeypatch.setattr(keyframes, "MAX_KEYFRAMES", 11)
    found = keyframes.keyframes(fine, 1e-3)
    np.testing.assert_allclose(found.p, fine.frames.pose.p[::4], atol=1e-12)


@pytest.mark.long
def test_repeated_times_and_float32(fine):
    ts = fine.ts.at[-1].set(fine.ts[-2])
    found = keyframes.keyframes(motions.solution(fine.system, ts, fine.states), 0.1)
    assert np.all(np.isfinite(found.p))
    narrow = jax.tree.map(
        lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, fine
    )
    found = keyframes.keyframes(narrow, 0.1)
    assert found.p.dtype == np.float32


def test_equivalent_boxes_are_the_boxes_that_bodies_were_made_of():
    R = mbd.lie.so3.to_matrix(jnp.array([0.9, 0.1, -0.3, 0.2]))
    block = inertia.rotated(inertia.shifted(inertia.box(3.0, (0.2, 0.5, 0.9)), (0.1, 0, 0)), R)
    system = mbd.formulate(mbd.Model({"block": block}), mbd.MaximalCoordinates())
    sizes, axes, centers = equivalent_boxes(system.mechanism)
    np.testing.assert_allclose(np.sort(sizes[0]), [0.2, 0.5, 0.9], atol=1e-12)
    np.testing.assert_allclose(centers[0], block.com)
    longest = axes[0][:, np.argmax(sizes[0])]
    np.testing.assert_allclose(abs(longest @ R[:, 2]), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(axes), 1.0)


def volume(mesh: meshes.Mesh) -> float:
    """Volume of a closed surface whose triangles run counterclockwise, seen from outside."""
    a, b, c = np.moveaxis(mesh.vertices[mesh.triangles], 1, 0)
    return np.sum(np.cross(a, b) * c) / 6


def test_surfaces_are_closed_and_face_outwards():
    start, end = np.array([0.3, -0.2, 0.1]), np.array([0.5, 0.7, -0.4])
    R = meshes.basis((end - start) / np.linalg.norm(end - start))
    np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-12)
    assert volume(meshes.box(np.array([1.0, 2, 3]), end, R, 0)) == pytest.approx(6.0)
    rod = meshes.cylinder(start, end, 0.2, 0)
    assert volume(rod) == pytest.approx(np.pi * 0.04 * np.linalg.norm(end - start), rel=0.05)
    assert volume(meshes.sphere(end, 0.5, 0)) == pytest.approx(np.pi / 6, rel=0.1)
    assert volume(meshes.merged([rod, rod])) == pytest.approx(2 * volume(rod))
    spring = meshes.coil(0.1, 0.01, 0.5, 0)
    np.testing.assert_allclose(np.ptp(spring.vertices[:, 2]), 1.0, atol=0.1)
    wire = 8 * np.hypot(2 * np.pi * 0.1, 0.5 / 8) * np.pi * 0.01**2
    assert 0.5 * volume(spring) == pytest.approx(wire, rel=0.3)  # Six-sided wire, tapered ends.
