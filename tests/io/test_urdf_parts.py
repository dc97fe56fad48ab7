"""Visual geometry, transmissions, xacro files, and URDF files written from models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, inertia, joints
from jaxmbd.io import (
    JointLimits,
    expand_xacro,
    from_urdf,
    to_urdf,
    urdf_limits,
    urdf_transmissions,
    urdf_visuals,
)

STL = """solid one
facet normal 0 0 1
outer loop
vertex 0 0 0
vertex 1 0 0
vertex 0 1 0
endloop
endfacet
endsolid one
"""

ROBOT = """<robot name="arm" xmlns:xacro="http://wiki.ros.org/xacro">
<material name="red"><color rgba="1 0 0 0.5"/></material>
<link name="base"><visual><geometry><box size="1 2 3"/></geometry></visual></link>
<link name="rod">
 <inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
 <visual><origin xyz="0 0 1" rpy="0 1.5707963267948966 0"/><material name="red"/>
  <geometry><mesh filename="MESH" scale="2 2 2"/></geometry></visual>
 <visual><geometry><sphere radius="0.1"/></geometry></visual>
</link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/>
 <origin xyz="0 0 1"/></joint>
<transmission name="drive"><type>transmission_interface/SimpleTransmission</type>
 <joint name="JOINT"/>
 <actuator name="motor"><mechanicalReduction>50</mechanicalReduction></actuator>
</transmission></robot>"""


def robot(mesh="package://arm/tip.stl", joint="hinge"):
    return ROBOT.replace("MESH", mesh).replace("JOINT", joint)


@pytest.fixture
def packages(tmp_path):
    folder = tmp_path / "packages" / "arm"
    folder.mkdir(parents=True)
    (folder / "tip.stl").write_text(STL)
    (tmp_path / "secret.stl").write_text(STL)
    return tmp_path / "packages"


def test_visuals_of_links(packages):
    by_root = urdf_visuals(robot(), packages=[packages])
    by_name = urdf_visuals(robot(), packages={"arm": packages / "arm"})
    (box,), (mesh, ball) = by_root["base"], by_root["rod"]
    assert np.allclose(np.ptp(box.vertices, axis=0), [1, 2, 3])
    assert np.allclose(np.linalg.norm(ball.vertices, axis=1), 0.1)
    # Twice as large, turned about y, and moved.
    corners = [[0, 0, 1], [0, 0, -1], [0, 2, 1]]
    assert np.allclose(sorted(mesh.vertices.round(9).tolist()), sorted(corners))
    assert (mesh.color, mesh.opacity) == (0xFF0000, 0.5)
    assert np.array_equal(by_name["rod"][0].vertices, mesh.vertices)


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ("package://leg/tip.stl", "there is no mesh"),
        ("package://arm/../../secret.stl", "leads out of"),
        ("package://arm/none.stl", r"there is no mesh 'package://arm/none.stl'; looked for"),
        ("tip.stl", "relative to a file"),
    ],
)
def test_meshes_outside_of_the_roots_are_refused(packages, mesh, message):
    with pytest.raises(mbd.ModelError, match=message):
        urdf_visuals(robot(mesh), packages=[packages])


def test_relative_meshes_stay_in_the_folder_of_the_file(packages):
    path = packages / "arm" / "robot.urdf"
    path.write_text(robot("tip.stl"))
    assert len(urdf_visuals(path)["rod"][0].triangles) == 1
    path.write_text(robot("../../secret.stl"))
    with pytest.raises(mbd.ModelError, match=r"robot.urdf:\d+: .*leads out of"):
        urdf_visuals(path)
    # The file is in a package of its own, and in no other.
    path.write_text(robot("package:///arm/tip.stl"))
    assert len(urdf_visuals(path)["rod"][0].triangles) == 1
    path.write_text(robot("package://leg/tip.stl"))
    with pytest.raises(mbd.ModelError, match="unknown package 'leg'; give its folder: packages="):
        urdf_visuals(path)
    path.write_text(robot())
    (packages / "arm" / "tip.stl").write_text("solid broken")
    with pytest.raises(mbd.ModelError, match=r"'tip\.stl'"):
        urdf_visuals(path, packages)


@pytest.mark.long
def test_visuals_are_drawn(packages):
    path = packages / "arm" / "robot.urdf"
    path.write_text(robot("tip.stl"))
    shown = mbd.show(path, widgets=False)
    path.write_text(robot("none.stl"))
    with pytest.warns(mbd.NotRepresentedWarning, match="show: visuals are left out: .*none.stl"):
        plain = mbd.show(path, widgets=False)
    faces = [len(x.axes[0].collections[0].get_facecolor()) for x in (shown, plain)]
    # Three meshes in the place of the rods, whose outlines have more triangles, and of the box.
    assert faces[0] < faces[1]


def test_transmissions():
    (name, drive), *others = urdf_transmissions(robot()).items()
    assert not others
    assert (name, *drive) == ("drive", "hinge", "motor", 50.0, "SimpleTransmission")
    with pytest.raises(mbd.ModelError, match="unknown joint 'elbow'; known are 'hinge'"):
        urdf_transmissions(robot(joint="elbow"))


def test_xacro_files(tmp_path):
    path = tmp_path / "robot.urdf.xacro"
    text = robot().replace(
        '<mass value="1"/>', '<xacro:arg name="m" default="1"/><mass value="${2 * $(arg m)}"/>'
    )
    path.write_text(text)
    with pytest.raises(mbd.ModelError, match=r"xacro file; read io.expand_xacro\(path\)"):
        from_urdf(text.replace("<xacro:arg", "<xacro:arg").replace("<link", "<xacro:x/><link", 1))
    assert from_urdf(expand_xacro(path, {"m": "3"})).bodies["rod"].mass == 6.0
    path.write_text(text.replace("2 *", "unknown *"))
    with pytest.raises(mbd.ModelError, match=r"expand_xacro: robot\.urdf\.xacro"):
        expand_xacro(path)


@pytest.fixture(scope="module")
def arm():
    """Every joint of URDF, with frames off the bodies' own ones, friction and a coupling."""
    pin = mbd.ground.at((0, 0, 1)), mbd.Frame("a", (0.2, 0, 0))
    turned = mbd.Frame("b", (0.1, 0.2, 0.3), quat=(1.0, 0.2, -0.3, 0.1))
    return mbd.Model(
        {name: inertia.shifted(inertia.box(1.0, (0.1, 0.2, 0.3)), (0.1, 0, 0)) for name in "abcd"},
        {
            "swing": joints.Revolute(*pin, (1, 2, 0)),
            "slide": joints.Prismatic(mbd.Frame("a", (0.5, 0, 0)), turned, (0, 0.6, 0.8)),
            "plane": joints.Planar("b", "c", (0, 0, 1)),
            "fly": joints.Free(mbd.ground, "d"),
        },
        {
            "gravity": forces.Gravity(),
            "oil": forces.ViscousFriction("swing", 0.3),
            "dry": forces.CoulombFriction("slide", 0.2),
        },
        {"tip": mbd.Frame("c", (0, 0, 1), quat=(1.0, 0, 1.0, 0))},
        {"rack": joints.RackAndPinion("slide", "swing", 0.1, 0.05)},
    )


@pytest.mark.long
def test_a_written_file_has_the_same_equations(arm):
    read = from_urdf(to_urdf(arm))
    assert {*read.joints} == {*arm.joints}
    systems = mbd.formulate(arm), mbd.formulate(read)
    rng = np.random.default_rng(3)
    q = rng.normal(size=systems[0].nq)
    v = jnp.asarray(rng.normal(size=systems[0].nv))
    ours, theirs = (_numbers(system, jnp.asarray(q), v) for system in systems)
    for name, x in ours.items():
        assert np.allclose(x, theirs[name], atol=1e-12), name
    for name in ("tip", "d"):
        assert np.allclose(*(s.frames(0.0, q)[name].p for s in systems), atol=1e-12)
    # The own frame of b is not that of its joint.
    own = systems[0].frames(0.0, q)["b"].R, systems[1].frames(0.0, q)["b frame"].R
    assert np.allclose(*own, atol=1e-12)


def _numbers(system, q, v):
    rest = mbd.inverse_dynamics(system, 0.0, mbd.State(q, v), jnp.zeros_like(v))
    return {"mass": system.mass(q), "bias and forces": rest}


def test_a_frame_named_world_is_the_ground(arm):
    """Files of robots have such a link, and a second one is no valid file."""
    text = to_urdf(arm.with_(frames={"world": mbd.ground}))
    assert text.count('<link name="world"') == 1
    with pytest.raises(mbd.ModelError, match="'world' names the ground in URDF; rename the frame"):
        to_urdf(arm.with_(frames={"world": mbd.Frame("a")}))


def test_limits_are_written(arm, tmp_path):
    given = {"swing": JointLimits(-1.0, 2.0, 3.0, 4.0)}
    path = tmp_path / "arm.urdf"
    assert path.write_text(to_urdf(arm, path, limits=given)) == len(path.read_bytes())
    limits = urdf_limits(path)
    assert limits["swing"] == given["swing"]
    assert limits["slide"].upper == 1e6


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("joints.fly", joints.Spherical(mbd.ground, "d"), "joint 'fly' is a Spherical; URDF has"),
        ("joints.fly", joints.Fixed("d", mbd.ground), "'fly' ends at the ground"),
        ("joints.fly", joints.Free(mbd.ground, "c"), "joints 'fly' and 'plane' both carry 'c'"),
    ],
)
def test_what_is_no_tree_of_links_is_refused(arm, part, value, message):
    with pytest.raises(mbd.ModelError, match=message):
        to_urdf(arm.replace({part: value}))


def test_what_is_left_out_is_listed(arm):
    spring = forces.SpringDamper("a", "d", 1.0)
    changed = arm.replace({"forces.oil": spring, "forces.gravity.g": (0, 0, -1.6)})
    with pytest.warns(mbd.NotRepresentedWarning, match=r"gravity.*force 'oil' \(SpringDamper\)"):
        to_urdf(changed)
    with pytest.raises(mbd.ModelError, match="traced; call it outside jit"):
        jax.eval_shape(lambda m: to_urdf(arm.replace({"bodies.a.mass": m})), 1.0)


def link(name, mass=0.0, moments=(0.0, 0.0, 0.0), com=(0.0, 0.0, 0.0)):
    if mass == 0.0:
        return f'<link name="{name}"/>'
    entries = dict(zip(("ixx", "iyy", "izz"), moments, strict=True)) | dict.fromkeys(
        ("ixy", "ixz", "iyz"), 0
    )
    inertia = " ".join(f'{key}="{x}"' for key, x in entries.items())
    origin = f'<origin xyz="{com[0]} {com[1]} {com[2]}"/>'
    inside = f'{origin}<mass value="{mass}"/><inertia {inertia}/>'
    return f'<link name="{name}"><inertial>{inside}</inertial></link>'


def described(*parts):
    """Links as texts, and joints as (name, type, parent, child, axis)."""
    written = []
    for part in parts:
        if not isinstance(part, str):
            name, kind, parent, child, axis = part
            ends = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="0 0 0.7"/>'
            part = f'<joint name="{name}" type="{kind}">{ends}<axis xyz="{axis}"/></joint>'
        written.append(part)
    return f'<robot name="r">{"".join(written)}</robot>'


ARM = link("arm", 2.0, (0.2, 0.2, 0.01), (0.0, 0.0, -0.5))
CROSS = (
    ("a", "continuous", "base", "cross", "1 0 0"),
    ("b", "continuous", "cross", "arm", "0 1 0"),
)


LINKS = link("base"), link("cross"), ARM


def test_two_hinges_through_a_link_without_mass():
    model = from_urdf(described(*LINKS, *CROSS))
    offset = np.array([0.0, 0.0, 0.2])  # Of the centre of mass from the first axis.
    moments = 0.2 + 2.0 * offset[2] ** 2, 0.2 + 2.0 * 0.5**2
    system = mbd.formulate(model)
    np.testing.assert_allclose(system.mass(jnp.zeros(2)), np.diag(moments), rtol=1e-14)
    at = mbd.assemble(system, {"b": np.pi / 2})  # The arm lies across: less inertia about a.
    about_a = 0.01 + 2.0 * 0.7**2
    np.testing.assert_allclose(system.mass(at.q)[0, 0], about_a, rtol=1e-12)
    again = from_urdf(to_urdf(model))
    assert {k: type(x) for k, x in again.bodies.items()} == {
        k: type(x) for k, x in model.bodies.items()
    }
    np.testing.assert_allclose(mbd.formulate(again).mass(at.q), system.mass(at.q), atol=1e-12)


TOOL = ("c", "continuous", "arm", "tool", "0 0 1")


TIP = ("d", "continuous", "tool", "tip", "0 0 1")
FLOATING = ("a", "floating", "base", "cross", "1 0 0")


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        ((*LINKS, link("tool"), *CROSS, TOOL), {}, "'tool': it moves and has no mass, nor"),
        (
            (*LINKS, link("tool"), link("tip"), *CROSS, TOOL, TIP),
            {},
            r"'tool': it moves and has no mass, nor has a link beyond it; .* or fix its joint",
        ),
        ((*LINKS, *CROSS), {"floating_base": True}, "'base': it floats and has no mass"),
        ((*LINKS, FLOATING, CROSS[1]), {}, "'cross': it floats and has no mass"),
    ],
)
def test_links_without_mass_that_nothing_holds(parts, options, message):
    with pytest.raises(mbd.ModelError, match=message):
        from_urdf(described(*parts), **options)


def test_a_base_behind_the_world_floats():
    base = link("base", 3.0, (0.1, 0.1, 0.1))
    for kind in ("fixed", "floating"):
        text = described(
            link("world"),
            base,
            ARM,
            ("w", kind, "world", "base", "1 0 0"),
            (*CROSS[0][:3], "arm", "1 0 0"),
        )
        model = from_urdf(text, floating_base=True)
        assert set(model.bodies) == {"base", "arm"}
        assert set(model.joints) == {"floating_base", "a"}
        system = mbd.formulate(model)
        poses = system.frames(0.0, mbd.assemble(system).q)
        np.testing.assert_allclose(poses["base"].p, [0, 0, 0.7])
        np.testing.assert_allclose(poses["world"].p, 0.0)


def test_impossible_inertias_are_balanced_as_by_mujoco():
    text = described(
        link("base"), link("arm", 2.0, (0.1, 0.2, 0.9)), (*CROSS[0][:3], "arm", "1 0 0")
    )
    with pytest.raises(mbd.ModelError, match=r"triangle inequality.*balance_inertia=True"):
        from_urdf(text)
    with pytest.warns(mbd.InertiaWarning, match=r"'arm' from \(0\.1, 0\.2, 0\.9\) to 0\.4$"):
        model = from_urdf(text, balance_inertia=True)
    np.testing.assert_allclose(model.bodies["arm"].inertia, 0.4 * np.eye(3), atol=1e-7)
    possible = described(link("base"), ARM, (*CROSS[0][:3], "arm", "1 0 0"))
    assert isinstance(from_urdf(possible, balance_inertia=True), mbd.Model)  # Without a warning.
    mujoco = pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
    option = '<mujoco><compiler balanceinertia="true"/></mujoco>'
    theirs = mujoco.MjModel.from_xml_string(text.replace("<link", option + "<link", 1))
    np.testing.assert_allclose(theirs.body_inertia[1], 0.4)
