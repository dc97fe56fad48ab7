"""Drawings of flexible bodies."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxmbd as mbd
from jaxmbd import Frame, flexible, joints
from jaxmbd.viz import deformed
from tests.flexible.test_mesh import of_block
from tests.viz import motions

TS = np.linspace(0.0, 1.0, 11)
RATE = np.pi / 2.0


def coordinates(t):
    return np.array([0.02, -0.01]) * np.sin(RATE * t)


@pytest.fixture(scope="module")
def bending() -> mbd.Solution:
    """A rod on a hinge that bends and swings, with a stone at its tip, by prescribed values."""
    rod = flexible.beam(
        0.5, 7e9, 2.8e9, 2700.0, flexible.Rectangle(0.03, 0.02), 4, 2, stiffening=False
    )
    base, tip = (Frame("rod", node=name) for name in ("base", "tip"))
    model = mbd.Model(
        {"rod": rod, "stone": mbd.inertia.sphere(0.1, 0.01)},
        {
            "hinge": joints.Revolute("ground", base, [0, 1, 0]),
            "weld": joints.Fixed(tip, "stone"),
        },
        frames={"tip": tip},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    states = []
    for t in TS:
        state = mbd.assemble(system, {"hinge": 0.4 * t}, elastic={"rod": coordinates(t)})
        rates = np.array([0.4, *(np.array([0.02, -0.01]) * RATE * np.cos(RATE * t))])
        states.append(mbd.State(state.q, jnp.asarray(rates)))
    return motions.solution(system, jnp.asarray(TS), jax.tree.map(lambda *x: jnp.stack(x), *states))


def named(plot, name: str):
    return next(x for x in plot.objects if x.name == name)


def series(values):
    return np.stack([values[t] for t in sorted(values, key=float)])


@pytest.fixture(scope="module")
def plot(bending):
    return bending.animate(fps=20, contours="strain", trace="tip")


@pytest.mark.long
def test_a_gif_has_the_colours_of_strains(bending, tmp_path):
    """Red where fibres are stretched and blue where they are compressed, none of both at rest."""
    options = {"contours": "strain", "boxes": False, "view": (0, -1, 0), "fps": 10}
    data = bending.animate(tmp_path / "rod.gif", **options).data
    picture = Image.open(io.BytesIO(data))
    reds, blues = [], []
    for row in range(picture.n_frames):
        picture.seek(row)
        r, _, b = np.moveaxis(np.asarray(picture.convert("RGB")).astype(int), 2, 0)
        reds.append(np.sum(r - b > 60))
        blues.append(np.sum(b - r > 60))
    assert max(reds) - min(reds) > 100
    assert max(blues) - min(blues) > 100


@pytest.mark.thorough
def test_a_beam_is_swept_along_its_deformed_nodes(bending, plot):
    """Each ring of vertices is the section at its node, also between saved times."""
    rod = bending.system.mechanism.bodies[0].body
    points = series(named(plot, "rod").vertices)
    assert points.shape == (21, 5 * 16, 3)
    body = jax.tree.map(lambda x: x[0], rod)
    half = np.array([[0, y, z] for y in (-0.015, 0.015) for z in (-0.01, 0.01)])
    for row, t in ((0, 0.0), (7, 0.35), (20, 1.0)):
        for node in (1, 4):
            ring = points[row, 16 * node : 16 * (node + 1)]
            X = body.frame_at_node(
                node, mbd.lie.Pose(body.positions[node], jnp.eye(3)), jnp.asarray(coordinates(t))
            )
            np.testing.assert_allclose(ring.mean(axis=0), X.p, atol=1e-6)
            corners = np.asarray(X.p) + half @ np.asarray(X.R).T
            distances = np.linalg.norm(corners[:, None] - ring[None], axis=2).min(axis=1)
            np.testing.assert_allclose(distances, 0.0, atol=1e-6)
    triangles = np.asarray(named(plot, "rod").indices).reshape(-1, 3)
    a, b, c = (points[0][triangles[:, i]] for i in range(3))
    volume = np.sum(a * np.cross(b, c)) / 6.0
    assert volume == pytest.approx(0.5 * 0.03 * 0.02, rel=1e-5)  # Closed, and turned outwards.


@pytest.mark.long
def test_symbols_and_paths_are_at_the_deformed_tip(bending, plot):
    weld = series(named(plot, "weld").model_matrix)
    np.testing.assert_allclose(weld[::2, :3, 3], bending.frames["tip"].p, atol=1e-6)
    np.testing.assert_allclose(
        named(plot, "path of tip").vertices[-1], bending.frames["tip"].p[-1], atol=1e-6
    )


@pytest.mark.long
def test_colours_are_the_strain_that_a_gauge_measures(bending, plot):
    mesh = named(plot, "rod")
    strains, points = series(mesh.attribute), series(mesh.vertices)
    y, z = points[0, 16:32, 1], points[0, 16:32, 2]
    for k in (0, 5):
        gauge = mbd.sensors.Strain("rod", 1, [float(y[k]), float(z[k])])
        state = jax.tree.map(lambda x: x[-1], bending.states)
        expected = gauge(bending.system, jnp.ones(()), state)
        np.testing.assert_allclose(strains[-1, 16 + k], expected, rtol=1e-5)
    assert mesh.color_range == pytest.approx([-np.abs(strains).max(), np.abs(strains).max()])


@pytest.mark.long
def test_deformation_is_a_factor_of_the_picture_alone(bending, plot):
    """The scale multiplies displacements of the surface and its frames, not its colours."""
    larger = bending.animate(fps=20, deformation=3, contours="displacement")
    points, tripled = (series(named(x, "rod").vertices) for x in (plot, larger))
    shift, of_tripled = (np.mean((x - x[:1])[-1, -16:], axis=0) for x in (points, tripled))
    np.testing.assert_allclose(of_tripled, 3.0 * shift, atol=1e-6)
    values = series(named(larger, "rod").attribute)
    np.testing.assert_allclose(
        values, np.linalg.norm(points - points[:1], axis=2), rtol=1e-4, atol=1e-7
    )
    grid = np.asarray(larger.grid)
    pose = series(named(larger, "rod").model_matrix)[-1]
    seen = tripled[-1] @ pose[:3, :3].T + pose[:3, 3]
    assert np.all(grid[:3] < seen)
    assert np.all(seen < grid[3:])


@pytest.mark.thorough
def test_stress_colours_the_surface_of_a_mesh():
    """Colours are equivalent stresses of the sensor, without the factor `deformation`."""
    body = of_block(n_modes=2)
    clamp = joints.Fixed("ground", Frame("block", node="left"))
    system = mbd.formulate(mbd.Model({"block": body}, {"clamp": clamp}), mbd.JointCoordinates())
    eta = 1e-4 * np.linspace(1.0, 2.0, body.n_elastic)
    state = mbd.assemble(system, elastic={"block": eta})
    still = motions.solution(system, jnp.zeros(1), jax.tree.map(lambda x: x[None], state))
    mesh = named(still.animate(contours="stress", deformation=5), "block")
    for vertex in (3, 11):
        row = body.skin.rows[vertex]
        stress = mbd.sensors.Stress("block", row)(system, jnp.zeros(()), state)
        expected = flexible.von_mises(stress)
        found = np.asarray(mesh.attribute)
        np.testing.assert_allclose(found[vertex], expected, rtol=1e-5)
    assert mesh.color_range[0] == 0.0


@pytest.mark.long
def test_a_body_without_a_skin_is_rods_between_its_nodes():
    """From its first node to the others, that follow the deformation."""
    body = flexible.beam(
        1.0, 7e9, 2.8e9, 2700.0, flexible.Rectangle(0.03, 0.02), 2, 2, stiffening=False
    )
    skin = deformed._rods(body, 0.01)
    assert list(skin.rows) == [0] * 4 + [1] * 4 + [0] * 4 + [2] * 4
    eta = jnp.asarray([0.01, 0.0])
    points = body.skin_points(skin, eta)
    tip = body.positions[2] + eta @ body.translations[2]
    np.testing.assert_allclose(points[12:].mean(axis=0), tip, atol=1e-9)
    np.testing.assert_allclose(points[:4].mean(axis=0), 0.0, atol=1e-9)


@pytest.mark.thorough
def test_errors(bending):
    with pytest.raises(mbd.ModelError, match="contours must be one of 'displacement', 'strain'"):
        bending.animate(contours="pressure")
    with pytest.raises(mbd.ModelError, match="deformation must be positive"):
        bending.animate(deformation=0)
    rigid = motions.motion(motions.crane(), [0.0])
    with pytest.raises(mbd.ModelError, match="contours='strain' needs a flexible body with strain"):
        rigid.animate(contours="strain")
    with pytest.raises(mbd.ModelError, match="'stress' needs a flexible body with stresses"):
        bending.animate(contours="stress")
