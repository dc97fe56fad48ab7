"""Several poses in one picture: of motions, of modes and of paths of equilibria."""

import io

import jax
import numpy as np
import pytest
import trimesh
from PIL import Image

import jaxmbd as mbd
from jaxmbd import Frame, forces, inertia, joints
from jaxmbd.viz import meshes
from tests.viz import motions

TS = np.linspace(0.0, 1.0, 5)


def block() -> mbd.Model:
    """A block on a rail, held by a spring."""
    return mbd.Model(
        bodies={"block": inertia.box(1.0, (0.2, 0.2, 0.2))},
        joints={"rail": joints.Prismatic(mbd.ground, "block", axis=(1, 0, 0))},
        forces={
            "spring": forces.TorsionalSpringDamper("rail", 100.0),
            "push": forces.JointTorque("rail", 10.0),
        },
    )


def green(position=(0.0, 0.0, 0.0)) -> trimesh.Trimesh:
    ball = trimesh.creation.icosphere(subdivisions=2, radius=0.1)
    ball.apply_translation(position)
    ball.visual.face_colors = [0, 255, 0, 255]
    return ball


@pytest.fixture(scope="module")
def slide() -> mbd.Solution:
    return motions.motion(block(), TS, lambda t: {"rail": 2.0 * t})


def pixels(figure) -> np.ndarray:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return np.asarray(Image.open(buffer).convert("RGB")).astype(int)


def columns(image: np.ndarray, faint: bool) -> list[int]:
    """Centres of the groups of neighbouring columns with faint or strong green pixels."""
    excess = image[..., 1] - image[..., 0]
    found = (excess > 20) & (excess < 90) if faint else excess > 110
    (at,) = np.nonzero(found.sum(axis=0) > 8)
    groups = np.split(at, np.flatnonzero(np.diff(at) > 10) + 1)
    return [int(group.mean()) for group in groups if len(group)]


@pytest.mark.long
def test_one_pose_is_solid_and_the_others_are_faint(slide):
    """Visuals of trimesh, at equal distances, the solid one where it was asked for."""
    options = {"visuals": {"block": [green()]}, "view": (0, -1, 0.01), "size": (400, 200)}
    last, first = (pixels(slide.snapshots(3, solid=k, **options)) for k in (-1, 0))
    assert last.shape == (200, 400, 3)
    (solid,), faint = columns(last, faint=False), columns(last, faint=True)
    assert len(faint) == 2
    assert solid - faint[1] == pytest.approx(faint[1] - faint[0], rel=0.1)
    assert columns(first, faint=False) == [pytest.approx(faint[0], abs=3)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n": 1}, mbd.ModelError, "n must be at least 2, got 1"),
        ({"n": 2.5}, mbd.ModelError, "snapshots: n"),
        ({"n": 3, "solid": 3}, mbd.ModelError, "solid must be one of the 3 poses, from 0, got 3"),
        ({"size": (0, 10)}, mbd.ModelError, "size must be positive"),
        ({"trace": "tip"}, KeyError, "unknown frame 'tip'"),
        ({"visuals": {"block": ["ball"]}}, mbd.ModelError, "'block' needs .* got a str"),
    ],
)
def test_wrong_options_are_errors(slide, options, error, message):
    with pytest.raises(error, match=message):
        slide.snapshots(**options)


def test_a_batch_is_an_error(slide):
    batch = jax.tree.map(lambda x: np.stack([x, x]) if hasattr(x, "shape") else x, slide)
    with pytest.raises(mbd.ModelError, match="batch"):
        batch.snapshots()


@pytest.mark.long
def test_a_mode_swings_to_both_sides():
    """The operating point is solid, in the middle of the faint poses."""
    modes = mbd.linearize(block().with_(forces={"push": None})).modes()
    options = {"visuals": {"block": [green()]}, "view": (0, -1, 0.01), "size": (500, 200)}
    image = pixels(modes.snapshots(0, amplitude=10.0, n=3, **options))
    (solid,), faint = columns(image, faint=False), columns(image, faint=True)
    assert len(faint) == 2
    assert solid == pytest.approx(np.mean(faint), abs=3)
    with pytest.raises(mbd.ModelError, match="there is no mode 1"):
        modes.snapshots(1)


@pytest.mark.long
def test_equilibria_of_a_path_are_a_motion():
    path = mbd.load_path(block(), {"rail": 0.1}, "push", [1.0, 2.0])
    motion = path.motion(block())
    np.testing.assert_allclose(motion.ts, [0.0, 1.0])
    np.testing.assert_allclose(motion.frames["block"].p[:, 0], [0.1, 0.2], atol=1e-9)
    other = mbd.Model({"rod": inertia.rod(1.0, 1.0)}, {"ball": joints.Spherical("ground", "rod")})
    with pytest.raises(mbd.ModelError, match=r"Branch\.motion: the states of the path have 1 coor"):
        path.motion(other)


@pytest.mark.long
def test_a_distance_is_drawn_as_a_rod(slide):
    links = {
        "rail": joints.Prismatic(mbd.ground, "block", axis=(1, 0, 0)),
        "link": joints.Distance(Frame("ground", (0, 0, 1.0)), "block", 1.25),
    }
    model = mbd.Model(block().bodies, links)
    plot = motions.motion(model, [0.0], lambda t: {"rail": 0.75}).animate()
    rod = next(x for x in plot.objects if x.name == "link")
    matrix = np.asarray(rod.model_matrix)
    np.testing.assert_allclose(matrix[:3, 3], [0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(matrix[:3, 2], [0.75, 0, -1], atol=1e-6)


def test_divided_triangles_are_short_and_cover_the_same_area():
    mesh = meshes.cylinder(np.zeros(3), np.array([0.0, 0.0, 2.0]), 0.1, 0x123456)
    fine = meshes.divided(mesh, 0.2)
    corners, before = fine.vertices[fine.triangles], mesh.vertices[mesh.triangles]
    assert np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max() <= 0.2
    assert set(fine.colors.tolist()) == {0x123456}

    def area(x):
        return 0.5 * np.linalg.norm(np.cross(x[:, 1] - x[:, 0], x[:, 2] - x[:, 0]), axis=1).sum()

    assert area(corners) == pytest.approx(area(before))


def test_a_long_rail_has_few_triangles():
    """Two for each length along it: halves of needles would be needles that are as long."""
    rail = meshes.cylinder(np.zeros(3), np.array([8.0, 0.0, 0.0]), 0.005, 0x808080)
    fine = meshes.divided(rail, 0.05)
    assert len(fine.triangles) <= 2 * 160 * len(rail.triangles)
    assert np.abs(np.diff(fine.vertices.reshape(-1, 3, 3), axis=1)).max() <= 0.05 * (1 + 1e-12)
