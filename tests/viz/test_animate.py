import base64
import importlib
import re
import sys
import zlib

import jax
import jax.numpy as jnp
import msgpack
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, inertia, joints
from tests import models
from tests.viz import motions

TS = np.linspace(1.0, 2.0, 21)


@pytest.fixture(scope="module")
def swing() -> mbd.Solution:
    return motions.motion(motions.crane(), TS, motions.swinging)


@pytest.fixture(scope="module")
def plot(swing):
    return swing.animate(trace="tip")


def named(plot, name: str):
    return next(x for x in plot.objects if x.name == name)


@pytest.mark.thorough
def test_page_needs_no_network_and_names_the_bodies(swing, tmp_path):
    path = tmp_path / "crane & cart.html"
    swing.animate(path)
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)\s*=", page.split("var data")[0])
    assert "<title>crane &amp; cart</title>" in page
    assert 'type: "range"' in page
    data = base64.b64decode(re.search(r"var data = '([^']*)'", page).group(1))
    snapshot = msgpack.unpackb(zlib.decompress(data), strict_map_key=False)
    assert {"cart", "rod", "hinge", "rail", "spring"} <= {x["name"] for x in snapshot["objects"]}
    texts = next(x["text"] for x in snapshot["objects"] if x["name"] == "names")
    assert [re.sub("<.*?>", "", text) for text in texts] == ["cart", "rod"]


@pytest.mark.long
@pytest.mark.parametrize(("fps", "speed", "expected"), [(30, 1, 31), (10, 1, 11), (30, 0.5, 61)])
def test_keyframes_follow_fps_and_speed(swing, fps, speed, expected):
    series = named(swing.animate(fps=fps, speed=speed, labels=False), "rod").model_matrix
    assert len(series) == expected
    assert [float(min(series, key=float)), float(max(series, key=float))] == [0.0, 1.0 / speed]


@pytest.mark.long
def test_bodies_are_where_the_motion_has_them(swing):
    series = named(swing.animate(fps=20), "rod").model_matrix
    poses = np.stack([series[t] for t in sorted(series, key=float)])
    np.testing.assert_allclose(poses[:, :3, 3], swing.frames["rod"].p, atol=1e-6)
    np.testing.assert_allclose(poses[:, :3, :3], swing.frames["rod"].R, atol=1e-6)


@pytest.mark.long
def test_springs_end_at_their_frames(swing):
    series = named(swing.animate(fps=20), "spring").model_matrix
    poses = np.stack([series[t] for t in sorted(series, key=float)])
    np.testing.assert_allclose(poses[:, :3, 3], np.tile([-1, 0, 1], (21, 1)), atol=1e-6)
    np.testing.assert_allclose(poses[:, :3, 2] + poses[:, :3, 3], swing.frames["cart"].p, atol=1e-6)
    sides = poses[:, :3, :2]
    np.testing.assert_allclose(
        np.swapaxes(sides, 1, 2) @ sides, np.tile(np.eye(2), (21, 1, 1)), atol=1e-6
    )


@pytest.mark.long
def test_grid_and_camera_take_in_the_whole_motion(swing, plot):
    low, high = np.asarray(plot.grid[:3]), np.asarray(plot.grid[3:])
    seen = np.concatenate([swing.frames[name].p for name in ("cart", "rod", "tip")])
    assert np.all(low < seen)
    assert np.all(seen < high)
    eye, target, up = np.reshape(plot.camera, (3, 3))
    back = (eye - target) / np.linalg.norm(eye - target)
    right = np.cross(up, back) / np.linalg.norm(np.cross(up, back))
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    ray = low + corners * (high - low) - eye
    assert np.all(-ray @ back > 0)
    vertical = np.abs(ray @ np.cross(back, right)) / -(ray @ back)
    assert vertical.max() < np.tan(np.deg2rad(plot.camera_fov / 2))
    assert list(up) == [0, 0, 1]
    assert not plot.camera_auto_fit
    assert not plot.grid_auto_fit


def test_path_of_a_frame(swing, plot):
    path = named(plot, "path of tip")
    assert path.color == named(plot, "rod").colors[0]
    assert len(path.vertices) > 100
    np.testing.assert_allclose(
        path.vertices[[0, -1]], swing.frames["tip"].p[jnp.array([0, -1])], atol=1e-6
    )


def test_colors(swing):
    plot = swing.animate(colors={"rod": "#ff0080", "cart": 0x123456})
    assert named(plot, "rod box").colors[0] == 0xFF0080
    assert named(plot, "cart box").colors[0] == 0x123456


@pytest.mark.thorough
def test_joints_by_kind():
    model = models.random_tree(3)
    found = {x.name for x in motions.motion(model, [0.0]).animate().objects}
    assert set(model.bodies) <= found
    for name, joint in model.joints.items():
        rails = {f"{name} rail"} if joint.translation else set()
        drawn = set() if isinstance(joint, joints.Free) else {name, *rails}
        assert drawn == {x for x in found if x == name or x == f"{name} rail"}


@pytest.mark.thorough
def test_a_disc_that_rolls_is_a_disc():
    """The drawn disc has its radius about its axis, and a bar that shows its turning."""
    disc = mbd.inertia.cylinder(2.0, 0.3, 0.01, axis=(0, 1, 0))
    rim = joints.RollingDisc(mbd.Frame("ground", [0.0, 0.0, -0.3]), "disc", 0.3, axis=(0, 2, 0))
    model = mbd.Model({"disc": disc}, {"rim": rim})
    points = np.asarray(named(motions.motion(model, [0.0]).animate(), "rim").vertices)
    assert np.hypot(points[:, 0], points[:, 2]).max() == pytest.approx(0.3, rel=1e-6)
    assert np.abs(points[:, 1]).max() < 0.05


@pytest.mark.long
def test_contacts_are_shapes_and_arrows():
    """A ball of 1 kg that rests: one shape on each side, and an arrow upwards from the floor."""
    contact = mbd.contact
    law = contact.HuntCrossley(1e4, 0.0, 1.0)
    pair = contact.Sphere("ball", 0.1), contact.HalfSpace("ground")
    touch = {name: forces.Contact(*pair, law) for name in ("touch", "again")}
    model = mbd.Model({"ball": mbd.inertia.sphere(1.0, 0.1)}, forces=touch)
    system = mbd.formulate(model, mbd.JointCoordinates())
    rest = mbd.assemble(system, {"ball": mbd.Pose(jnp.array([0.5, 0.0, 0.099]), jnp.eye(3))})
    states = jax.tree.map(lambda x: x[None], rest)
    plot = motions.solution(system, jnp.zeros(1), states).animate()
    drawn = {x.name for x in plot.objects}
    assert {"again.shape_a", "again.shape_b", "touch force 0", "again force 0"} <= drawn
    assert not {"touch", "again", "touch.shape_a", "touch.shape_b"} & drawn
    floor = np.asarray(named(plot, "again.shape_b").vertices)
    assert np.all(floor[:, 2] == 0)
    assert np.ptp(floor[:, 0]) > 0.2
    pose = np.asarray(named(plot, "touch force 0").model_matrix)
    np.testing.assert_allclose(pose[:3, 3], [0.5, 0.0, -5e-4], atol=1e-6)
    assert pose[2, 2] > 0.01
    np.testing.assert_allclose(pose[:2, 2], 0.0, atol=1e-6)


@pytest.mark.long
def test_tyres_are_wheels_and_arrows():
    """One that rests: a disc, the road once, and an arrow upwards; no line between their frames."""
    across = mbd.Frame("wheel", R=np.array([[1.0, 0, 0], [0, 0, 1.0], [0, -1.0, 0]]))
    disc, road = mbd.contact.Disc(across, 0.3), mbd.contact.HalfSpace("ground")
    laws = mbd.contact.KelvinVoigt(1e4), mbd.tyres.Linear(10.0)
    tyre = forces.Tyre(disc, road, *laws, relaxation=0.3)
    body = mbd.RigidBody(10.0, [0.3, 0.5, 0.3])
    system = mbd.formulate(
        mbd.Model({"wheel": body}, forces={"tyre": tyre}), mbd.JointCoordinates()
    )
    rest = mbd.assemble(system, {"wheel": mbd.Pose(jnp.array([0.5, 0.0, 0.29]), jnp.eye(3))})
    plot = motions.solution(system, jnp.zeros(1), jax.tree.map(lambda x: x[None], rest)).animate()
    drawn = {x.name for x in plot.objects}
    assert {"tyre.wheel", "tyre.road", "tyre force 0"} <= drawn
    assert "tyre" not in drawn
    points = np.asarray(named(plot, "tyre.wheel").vertices)
    assert np.hypot(points[:, 0], points[:, 1]).max() == pytest.approx(0.3, rel=1e-6)
    pose = np.asarray(named(plot, "tyre force 0").model_matrix)
    np.testing.assert_allclose(pose[:3, 3], [0.5, 0.0, 0.0], atol=1e-6)
    assert pose[2, 2] > 0.01
    np.testing.assert_allclose(pose[:2, 2], 0.0, atol=1e-6)


def test_an_ended_motion_stops_where_it_ended(swing):
    ts = jnp.concatenate([swing.ts[:11], jnp.full(10, jnp.inf)])
    ended = motions.solution(swing.system, ts, swing.states)
    series = named(ended.animate(), "rod").model_matrix
    assert float(max(series, key=float)) == 0.5
    assert len(series) == 16


def test_rows_without_a_state_are_left_out(swing):
    states = jax.tree.map(lambda x: x.at[15:].set(jnp.nan), swing.states)
    lost = motions.solution(swing.system, swing.ts, states)
    assert np.all(np.isfinite(lost.animate().grid))
    states = jax.tree.map(lambda x: x * jnp.nan, swing.states)
    with pytest.raises(mbd.ModelError, match="no time of this motion is finite"):
        motions.solution(swing.system, swing.ts, states).animate()


@pytest.mark.long
@pytest.mark.parametrize("ts", [[0.0], [0.0, 1.0]], ids=["one time", "at rest"])
def test_where_nothing_moves(ts, tmp_path):
    dust = mbd.Model({"dust": mbd.RigidBody(1.0, (1e-12, 1e-12, 1e-12))})
    path = tmp_path / "still.html"
    plot = motions.motion(dust, ts).animate(path)
    low, high = np.asarray(plot.grid[:3]), np.asarray(plot.grid[3:])
    assert np.all(high > low)
    assert np.all(np.isfinite(plot.camera))
    assert path.stat().st_size > 0


def test_errors(swing, tmp_path):
    with pytest.raises(KeyError, match=r"unknown frame 'toe'; known are 'cart', .*'tip'"):
        swing.animate(trace=["tip", "toe"])
    with pytest.raises(KeyError, match="unknown body 'toe'; known are 'cart', 'rod'"):
        swing.animate(colors={"toe": 0})
    with pytest.raises(mbd.ModelError, match="colour of 'rod' must be #rrggbb, got 'red'"):
        swing.animate(colors={"rod": "red"})
    with pytest.raises(mbd.ModelError, match=r"must end in \.html"):
        swing.animate(tmp_path / "crane.mp4")
    for option in ("fps", "speed", "scale"):
        with pytest.raises(mbd.ModelError, match=f"{option} must be positive"):
            swing.animate(**{option: 0.0})
    for view in ((0, 0, 0), (1, 2)):
        with pytest.raises(mbd.ModelError, match="view must be a direction"):
            swing.animate(view=view)
    with pytest.raises(mbd.ModelError, match="batch of motions"):
        jax.tree.map(lambda x: x[None], swing).animate()


@pytest.mark.long
def test_other_forces_between_frames_are_lines_and_views_may_be_from_above(swing):
    class Cord(forces.abstract.AbstractFrameForce):
        a: Frame
        b: Frame

        def wrenches(self, t, X, V):
            return jnp.zeros((2, 6))

    bodies = {"stone": inertia.sphere(1.0, 0.1)}
    cord = Cord(Frame("ground", (0, 0, 1)), Frame("stone", (0, 0, 0.1)))
    plot = motions.motion(mbd.Model(bodies, forces={"cord": cord}), [0.0]).animate(view=(0, 0, 1))
    np.testing.assert_allclose(named(plot, "cord").model_matrix[:3, 2], [0, 0, -0.9], atol=1e-6)
    assert plot.camera[6:] == [0, 1, 0]


@pytest.mark.long
def test_missing_k3d_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "k3d", None)
    monkeypatch.delitem(sys.modules, "jaxmbd.viz.animate", raising=False)
    with pytest.raises(ImportError, match=r'pip install "jaxmbd\[viz\]"'):
        importlib.import_module("jaxmbd.viz.animate")
