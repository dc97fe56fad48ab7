import importlib
import sys

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import inertia, joints
from jaxmbd.joints.components import coordinate_components, velocity_components
from jaxmbd.viz.plot import _connected
from tests import models
from tests.viz import motions

TS = np.linspace(0.0, 1.0, 6)


@pytest.fixture(scope="module")
def swing() -> mbd.Solution:
    return motions.motion(motions.crane(), TS, motions.swinging)


def labels(figure) -> list[str]:
    return [axes.get_ylabel() for axes in figure.axes]


def curves(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_rows_by_unit_and_energy(swing):
    figure = swing.plot()
    assert labels(figure) == [
        "angle [rad]",
        "angular velocity [rad/s]",
        "displacement [m]",
        "velocity [m/s]",
        "energy [J]",
        "(E - E₀) / max T",
    ]
    np.testing.assert_array_equal(
        figure.axes[0].get_lines()[0].get_ydata(), swing.joints["hinge"].q
    )
    assert curves(figure.axes[3]) == ["rail"]
    assert curves(figure.axes[4]) == ["total", "kinetic", "field", "springs"]


def test_chosen_joints_without_energy(swing):
    assert labels(swing.plot(joints="rail", energy=False)) == ["displacement [m]", "velocity [m/s]"]
    assert len(swing.plot(joints=["hinge", "rail"], energy=False).axes) == 4


def test_a_notebook_shows_it_and_pyplot_does_not_know_it(swing):
    figure = swing.plot(energy=False)
    assert figure._repr_png_().startswith(b"\x89PNG")
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_errors(swing):
    with pytest.raises(KeyError, match="unknown joint 'elbow'; known are 'hinge', 'rail'"):
        swing.plot(joints=["elbow"])
    with pytest.raises(mbd.ModelError, match="nothing to show"):
        swing.plot(joints=[], energy=False)
    batch = jax.tree.map(lambda x: x[None], swing)
    with pytest.raises(mbd.ModelError, match="batch of motions"):
        batch.plot()


@pytest.mark.thorough
def test_forces_of_contacts():
    """A ball that slides on the floor under its weight, and a post that it does not touch."""
    floor = mbd.contact.HalfSpace("ground")
    wall = mbd.contact.HalfSpace(mbd.Frame("ground", [-9, 0, 0], quat=[0.5**0.5, 0, 0.5**0.5, 0]))
    law = mbd.contact.HuntCrossley(1e4, 0.0, 1.0), mbd.contact.Coulomb(0.3, 1e-3)
    ball = mbd.contact.Sphere("ball", 0.1)
    touching = {
        name: mbd.forces.Contact(ball, x, *law) for name, x in (("floor", floor), ("wall", wall))
    }
    gravity = {"gravity": mbd.forces.Gravity([0, 0, -10.0])}
    model = mbd.Model({"ball": mbd.inertia.sphere(2.0, 0.1)}, forces=gravity | touching)
    system = mbd.formulate(model, mbd.JointCoordinates())
    at = mbd.Pose(jnp.array([0.0, 0.0, 0.1 - 20.0 / 1e4]), jnp.eye(3))
    start = mbd.assemble(system, {"ball": at}, {"ball": [1.0, 0, 0, 0, 0, 0]})
    motion = mbd.simulate(system, start, t1=1e-3, dt=2e-4)
    axes = motion.plot(joints=[], energy=False).axes
    assert [axis.get_ylabel() for axis in axes] == ["normal force [N]", "tangential force [N]"]
    for axis, wanted in zip(axes, (20.0, 6.0), strict=True):
        found = {line.get_label(): line.get_ydata() for line in axis.get_lines()}
        np.testing.assert_allclose(found["floor"], wanted, rtol=1e-6)
        np.testing.assert_array_equal(found["wall"], 0.0)
    assert len(motion.plot(joints=[], contacts="floor").axes) == 4
    with pytest.raises(KeyError, match="unknown contact 'roof'"):
        motion.plot(contacts=["roof"])


@pytest.mark.parametrize("n", [12, pytest.param(60, marks=pytest.mark.long)])
def test_many_joints_keep_a_readable_legend(n):
    names = [f"b{k}" for k in range(n)]  # In the order of numbers, not of letters.
    model = mbd.Model(
        bodies=dict.fromkeys(names, inertia.sphere(1.0, 0.1)),
        joints={f"j{name}": joints.Revolute(mbd.ground, name) for name in names},
    )
    figure = motions.motion(model, TS).plot()
    axes = figure.axes[1]
    shown, title = curves(axes), axes.get_legend().get_title().get_text()
    assert (len(shown), title) == ((12, "") if n == 12 else (9, "9 of 60 curves"))
    assert (shown[0], shown[-1]) == ("jb0", f"jb{n - 1}")
    assert axes.get_legend()._ncols == (2 if n == 12 else 1)
    colours = {mpl.colors.to_hex(line.get_color()) for line in axes.get_lines()}
    assert len(colours) == n
    figure.draw_without_rendering()
    right = axes.get_legend().get_window_extent().x1
    assert right <= figure.bbox.x1 + 1
    assert axes.get_window_extent().width > 0.3 * figure.bbox.width
    assert [line.get_label() for line in axes.get_lines()] == [f"j{name}" for name in names]


def test_joints_with_several_coordinates():
    model = mbd.Model(
        bodies={"ball": inertia.sphere(1.0, 0.1), "drone": inertia.sphere(1.0, 0.1)},
        joints={"socket": joints.Spherical(mbd.ground, "ball")},
    )
    figure = motions.motion(model, TS).plot(energy=False)
    assert labels(figure)[::2] == ["displacement [m]", "quaternion"]
    names = [curves(axes) for axes in figure.axes]
    assert names[0] == ["drone x", "drone y", "drone z"]
    assert names[1] == ["drone vx", "drone vy", "drone vz"]
    assert names[2][-4:] == ["socket qw", "socket qx", "socket qy", "socket qz"]
    assert names[3][-3:] == ["socket wx", "socket wy", "socket wz"]


def test_lines_skip_jumps_that_mean_nothing():
    angle = np.array([[3.0], [3.1], [-3.1], [-3.0]])
    components = coordinate_components(joints.Revolute(mbd.ground, "a"))
    np.testing.assert_array_equal(_connected(angle, components), [[3.0, np.nan, -3.1, -3.0]])
    turns = np.array([[3.0], [7.0]])  # Counted turns, not wrapped ones.
    np.testing.assert_array_equal(_connected(turns, components), turns.T)
    quaternion = np.array([[0.1, 1, 0, 0], [0, -1, 0, 0], [0.1, -1, 0, 0], [0.2, 1, 0, 0]])
    components = coordinate_components(joints.Spherical(mbd.ground, "a"))
    np.testing.assert_array_equal(_connected(quaternion, components)[1], [1, 1, 1, 1])


def test_rest_is_no_division_by_zero():
    model = mbd.Model({"stone": inertia.sphere(1.0, 0.1)})
    axes = motions.motion(model, TS).plot().axes[-1]
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), 0.0)


@pytest.mark.parametrize("kind", models.JOINT_KINDS, ids=lambda kind: kind.__name__)
def test_every_coordinate_has_a_name_and_a_unit(kind):
    joint = models.random_joint(np.random.default_rng(0), kind, "ground", "a")
    nq, nv, _ = joint.sizes()
    assert len({c.name for c in coordinate_components(joint)}) == nq
    assert len({c.name for c in velocity_components(joint)}) == nv
    assert {c.unit for c in velocity_components(joint)} <= {"m/s", "rad/s"}


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "jaxmbd.viz.plot", raising=False)
    with pytest.raises(ImportError, match=r'pip install "jaxmbd\[viz\]"'):
        importlib.import_module("jaxmbd.viz.plot")
