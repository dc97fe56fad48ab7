"""Pictures of mechanisms in one line, with and without sliders."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces
from tests import models

ROBOT = """<robot name="arm">
  <link name="arm">
    <inertial>
      <mass value="1.0"/>
      <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/>
    </inertial>
  </link>
  <link name="base"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/>
    <child link="arm"/>
    <axis xyz="0 1 0"/>
    <limit lower="-1" upper="2" effort="10" velocity="2"/>
  </joint>
</robot>
"""


def named(plot, name):
    return next(x for x in plot.objects if x.name == name)


@pytest.fixture(scope="module")
def pendulum():
    model = models.chain(1)
    stop = forces.JointStop("jlink0000", -0.5, 0.8, stiffness=1e3, transition=0.01)
    return mbd.Model(model.bodies, model.joints, {**model.forces, "stop": stop})


@pytest.mark.long
def test_a_slider_moves_the_picture(pendulum):
    box = mbd.show(pendulum, {"jlink0000": 0.2}, widgets=True)
    plot, slider, message = box.children
    assert (slider.min, slider.max, slider.value) == (-0.5, 0.8, 0.2)
    assert slider.description == "jlink0000 [rad]"
    slider.value = 0.6
    system = mbd.formulate(pendulum)
    pose = system.frames(0.0, jnp.array([0.6]))["link0000"]
    matrix = named(plot, "link0000").model_matrix
    assert np.allclose(matrix[:3, :3], pose.R, atol=1e-6)
    assert message.value == ""


@pytest.mark.thorough
def test_joints_of_a_loop_follow():
    box = mbd.show(models.four_bar(), {"left": 1.0}, widgets=True)
    plot, *sliders, message = box.children
    left = next(x for x in sliders if x.description == "left [rad]")
    right = next(x for x in sliders if x.description == "right [rad]")
    before = right.value
    left.value = 1.2
    assert abs(right.value - before) > 0.02
    assert message.value == ""
    system = mbd.formulate(models.four_bar())
    state = mbd.assemble(system, {"left": 1.2, "right": right.value}, hold=("left",))
    expected = system.frames(0.0, state.q)["rocker"].p
    assert np.allclose(named(plot, "rocker").model_matrix[:3, 3], expected, atol=1e-5)
    crank = np.array(named(plot, "crank").model_matrix)
    right.value = 3.0  # Farther than the loop reaches.
    assert "stay open" in message.value
    assert np.array_equal(crank, named(plot, "crank").model_matrix)


def test_a_plain_picture(pendulum, tmp_path):
    figure = mbd.show(pendulum)  # No notebook runs.
    path = tmp_path / "pendulum.png"
    figure.savefig(path)
    assert path.stat().st_size > 10_000
    (axes,) = figure.axes
    assert axes.get_xlabel() == "x [m]"
    # Rods of a pendulum at its reference position lie along x.
    assert axes.get_xlim()[1] > 0.5


@pytest.mark.long
def test_a_robot_from_a_file(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ROBOT)
    slider = mbd.show(str(path), widgets=True).children[1]
    assert slider.description == "shoulder [rad]"
    assert (slider.min, slider.max) == (-1.0, 2.0)


@pytest.mark.long
@pytest.mark.peers
def test_a_model_of_mujoco_from_a_file(tmp_path):
    path = tmp_path / "arm.xml"
    joint = '<joint name="shoulder" range="-1 2" ref="1"/><geom size=".1"/>'
    body = f'<body name="arm">{joint}</body>'
    path.write_text(f'<mujoco><compiler angle="radian"/><worldbody>{body}</worldbody></mujoco>')
    slider = mbd.show(path, widgets=True).children[1]
    assert slider.description == "shoulder [rad]"
    assert (slider.min, slider.max, slider.value) == (-1.0, 2.0, 1.0)
    path.write_text(ROBOT)
    assert mbd.show(path, widgets=True).children[1].max == 2.0


def test_nothing_to_show():
    with pytest.raises(
        mbd.ModelError, match="give a Model, a system, the path of a URDF or MJCF file"
    ):
        mbd.show(3.0)
    with pytest.raises(mbd.ModelError, match=r"cannot read the URDF file 'none.urdf'"):
        mbd.show("none.urdf")
    with pytest.raises(mbd.ModelError, match="the colour of"):
        mbd.show(models.chain(1), colors={"link0000": "blue-ish"})
