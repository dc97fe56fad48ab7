"""Collision shapes of URDF files."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces
from jaxmbd.io import from_urdf, urdf_shapes

STL = """solid wedge
facet normal 0 0 1
outer loop
vertex 0 0 0
vertex 0.2 0 0.1
vertex 0 0.4 0
endloop
endfacet
endsolid wedge
"""
ROBOT = """<robot name="stool">
<link name="seat"><inertial><mass value="3"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0"
  ixz="0" iyz="0"/></inertial>
  <collision><origin xyz="0 0 0.1" rpy="0 0 1"/><geometry><box size="0.4 0.3 0.05"/></geometry>
  </collision>
  <collision><geometry><cylinder radius="0.05" length="0.3"/></geometry></collision></link>
<link name="foot"><collision><origin xyz="0 0 -0.1"/><geometry><sphere radius="0.04"/></geometry>
  </collision></link>
<link name="fin"><collision><origin xyz="1 0 0" rpy="0 0 1.5707963267948966"/><geometry>
  <mesh filename="package://stool/meshes/wedge.stl" scale="2 1 1"/></geometry></collision></link>
<joint name="leg" type="fixed"><origin xyz="0 0 -0.5"/><parent link="seat"/><child link="foot"/>
</joint>
<joint name="side" type="fixed"><origin xyz="0 0 0.5"/><parent link="seat"/><child link="fin"/>
</joint></robot>"""


@pytest.fixture
def stool(tmp_path):
    """The file of a robot in the folder `urdf` of its package."""
    package = tmp_path / "stool"
    for name in ("urdf", "meshes"):
        (package / name).mkdir(parents=True)
    (package / "meshes" / "wedge.stl").write_text(STL)
    path = package / "urdf" / "stool.urdf"
    path.write_text(ROBOT)
    return path


def test_shapes_are_on_the_bodies_of_the_model(stool):
    pytest.importorskip("meshio")
    shapes = urdf_shapes(stool, floating_base=True)
    assert {name: type(x) for name, x in shapes.items()} == {
        "seat": contact.Box,
        "seat 2": contact.Cylinder,
        "foot": contact.Sphere,
        "fin": contact.Box,
    }
    assert {x.frame.body for x in shapes.values()} == {"seat"}
    np.testing.assert_allclose(shapes["seat"].frame.p, [0.0, 0.0, 0.1])
    np.testing.assert_allclose(shapes["seat"].frame.R[:2, 0], [np.cos(1.0), np.sin(1.0)])
    np.testing.assert_allclose(shapes["foot"].frame.p, [0.0, 0.0, -0.6])
    # The box around the mesh, scaled along its x axis, then turned by a quarter.
    np.testing.assert_allclose(shapes["fin"].size, [0.4, 0.4, 0.1], rtol=1e-6)
    np.testing.assert_allclose(shapes["fin"].frame.p, [0.8, 0.2, 0.55], rtol=1e-6)
    ball = urdf_shapes(stool, floating_base=True, meshes={"fin": "sphere"})["fin"]
    np.testing.assert_allclose(ball.radius, 0.15, rtol=1e-6)
    assert "fin" not in urdf_shapes(stool, floating_base=True, meshes="skip")


def test_collision_meshes_come_from_given_folders(stool):
    """Meshes of a package elsewhere, found by its name or by the folder that contains it."""
    pytest.importorskip("meshio")
    text = stool.read_text()
    inside = urdf_shapes(stool, floating_base=True)["fin"]
    for packages in ([stool.parents[2]], {"stool": stool.parents[1]}):
        shape = urdf_shapes(text, floating_base=True, packages=packages)["fin"]
        np.testing.assert_array_equal(shape.size, inside.size)
    model = from_urdf(text, floating_base=True, contacts=True, packages=[stool.parents[2]])
    assert "fin-floor" in model.forces
    with pytest.raises(mbd.ModelError, match="unknown package 'stool'; give its folder"):
        urdf_shapes(text, floating_base=True)


@pytest.mark.long
def test_contacts_with_a_floor(stool):
    """Names, laws and force of the foot by its depth."""
    model = from_urdf(stool, floating_base=True, contacts=True, meshes="skip")
    assert set(model.forces) == {"gravity", "seat-floor", "seat 2-floor", "foot-floor"}
    law = model.forces["foot-floor"].normal
    np.testing.assert_allclose(law.force(jnp.asarray(2e-3), jnp.asarray(0.0)), 3.0 * 9.81)
    soft = forces.Material(contact.HuntCrossley(1e3, 0.0, 1.0))
    hill = contact.HalfSpace(mbd.Frame("ground", [0.0, 0.0, 0.1]))
    model = from_urdf(stool, floating_base=True, contacts=soft, surface=hill, meshes="skip")
    touch = model.forces["foot-floor"]
    assert touch.friction is None
    at = jnp.stack([jnp.array([0.0, 0.0, 0.13]), jnp.array([0.0, 0.0, 0.1])])
    X = mbd.Pose(at, jnp.broadcast_to(jnp.eye(3), (2, 3, 3)))
    load = touch.load(jnp.asarray(0.0), X, jnp.zeros((2, 6)), jnp.zeros(0))
    np.testing.assert_allclose(load[0, :3], [0.0, 0.0, 10.0], atol=1e-9)
    assert set(from_urdf(stool, floating_base=True).forces) == {"gravity"}


def test_links_on_the_ground_have_no_contact():
    arm = ROBOT.replace('name="leg" type="fixed"', 'name="leg" type="revolute"').replace(
        '<child link="foot"/>', '<child link="foot"/><limit effort="1" velocity="1"/>'
    )
    inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"'
    arm = arm.replace('<link name="foot">', f'<link name="foot">{inertial}/></inertial>')
    model = from_urdf(arm, contacts=True, meshes="skip")
    assert [name for name in model.forces if name.endswith("floor")] == ["foot-floor"]


WRONG = {
    "there is no link 'toe'": ("", "", {"toe": "box"}),
    "'ball' is none of 'box', 'sphere', 'skip'": ("", "", "ball"),
    "no mesh 'package://stool/meshes/lost.stl'; looked": ("wedge.stl", "lost.stl", "box"),
    "'package://stool/../wedge.stl' leads out of": ("meshes/wedge", "../wedge", "box"),
    "unknown package 'bench'; give its folder": ("package://stool", "package://bench", "box"),
    "radius must be positive, got -0.04": ('radius="0.04"', 'radius="-0.04"', "skip"),
    "unknown shape; known are": ("<sphere ", "<blob ", "skip"),
    "collision: <geometry> is missing": ('<box size="0.4 0.3 0.05"/></geometry>', "", "skip"),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_shapes_name_the_element(stool, message):
    old, new, meshes = WRONG[message]
    text = stool.read_text().replace(old, new) if old else stool.read_text()
    if "is missing" in message:
        text = text.replace('rpy="0 0 1"/><geometry>', 'rpy="0 0 1"/>')
    stool.write_text(text)
    with pytest.raises(mbd.ModelError, match=message):
        urdf_shapes(stool, floating_base=True, meshes=meshes)
