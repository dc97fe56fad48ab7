"""Animations as GIF files."""

import io

import numpy as np
import pytest
from PIL import Image

import jaxmbd as mbd
from jaxmbd.viz import gif, meshes
from jaxmbd.viz.scene import Drawing
from tests.viz import motions

TS = np.linspace(1.0, 2.0, 21)


@pytest.fixture(scope="module")
def swing() -> mbd.Solution:
    return motions.motion(motions.crane(), TS, motions.swinging)


def pictures(gif):
    picture = Image.open(io.BytesIO(gif.data))
    for row in range(picture.n_frames):
        picture.seek(row)
        yield np.asarray(picture.convert("RGB")).astype(int)


def test_a_gif_shows_the_motion(swing, tmp_path):
    path = tmp_path / "crane.gif"
    gif = swing.animate(path, trace="tip", fps=10, size=(160, 120))
    assert path.read_bytes() == gif.data
    frames = list(pictures(gif))
    assert [frame.shape for frame in frames] == [(120, 160, 3)] * 11
    drawn = [np.argwhere(frame.sum(axis=2) < 720) for frame in frames]
    assert all(len(pixels) > 50 for pixels in drawn)
    assert any(np.abs(frames[0] - frame).max() > 50 for frame in frames)
    assert "data:image/gif;base64,R0lGOD" in gif._repr_html_()
    for pixels in drawn:  # Nothing is cut off.
        assert pixels.min() > 0
        assert pixels[:, 0].max() < 119
        assert pixels[:, 1].max() < 159


def test_visuals_take_the_place_of_boxes_and_stay_inside(swing, tmp_path):
    """The camera frames shapes that extend beyond joints and boxes."""
    ball = meshes.sphere(np.array([0.0, 0.0, -2.0]), 0.5, 0x00FF00)
    ball = mbd.io.Visual(ball.vertices, ball.triangles, 0x00FF00, 1.0)
    options = {"fps": 10, "size": (160, 120), "boxes": False}
    frames = list(pictures(swing.animate(tmp_path / "a.gif", visuals={"rod": [ball]}, **options)))
    for frame in frames:
        green = np.argwhere((frame[..., 1] > 120) & (frame[..., 0] < 60) & (frame[..., 2] < 60))
        assert len(green) > 50
        assert green.min() > 0
        assert green[:, 0].max() < 119
        assert green[:, 1].max() < 159
    without = swing.animate(tmp_path / "b.gif", **options)
    assert without.data != swing.animate(tmp_path / "c.gif", **options | {"boxes": True}).data


@pytest.mark.long
def test_the_camera_follows_a_frame(tmp_path):
    """A ball that rolls far is drawn as large, and in the same place, all the way."""
    model = mbd.Model(
        {"ball": mbd.inertia.sphere(1.0, 0.1)}, forces={"gravity": mbd.forces.Gravity()}
    )
    system = mbd.formulate(model)
    start = mbd.assemble(system, {}, {"ball": [20.0, 0, 0, 0, 0, 0]})
    fall = mbd.simulate(system, start, t1=1.0, saveat=0.1)
    path = tmp_path / "fall.gif"
    frames = list(pictures(fall.animate(path, fps=10, size=(80, 60), follow="ball")))[1:]
    drawn = [np.argwhere(frame.sum(axis=2) < 720) for frame in frames]
    ends = np.array([[*pixels.min(axis=0), *pixels.max(axis=0)] for pixels in drawn])
    assert np.ptp(ends, axis=0).max() <= 2
    assert (ends[:, 2] - ends[:, 0]).min() > 30
    with pytest.raises(KeyError, match="follow: unknown frame 'bal'"):
        fall.animate(path, follow="bal")


def test_triangles_behind_the_camera_are_not_drawn():
    """Terrain extends beyond the motion: its projection would cover the picture."""
    cube = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    eye = gif.eye_of(cube, (0, -1, 0.1), (80, 60))
    behind = eye.position + 2 * eye.axes[2]
    vertices = np.stack([behind, cube[0], cube[1], cube[4]])
    mesh = meshes.painted(vertices, np.array([[0, 1, 2], [1, 2, 3]]), 0xFF0000)
    road = Drawing("road", "contact", mesh, np.eye(4)[None])
    flat, depth, colors = gif._triangles(road, 0, eye)
    assert len(flat) == len(depth) == len(colors) == 1
    assert np.all(np.abs(flat) < 1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"fps": 0}, "fps must be positive"), ({"speed": 1e-3}, "multiply speed by 5")],
)
def test_options_without_a_meaning_are_errors(swing, tmp_path, options, message):
    with pytest.raises(mbd.ModelError, match=message):
        swing.animate(tmp_path / "crane.gif", **options)


def test_other_endings_are_errors(swing):
    with pytest.raises(mbd.ModelError, match=r"must end in \.html or \.gif"):
        swing.animate("crane.png")
