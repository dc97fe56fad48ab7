"""Every way in which a URDF file can be wrong, once: the message names the line and the element."""

import re

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.io import from_urdf, urdf_limits, urdf_mimics

# One line an element, so that the line of each is known.
ARM = """<robot name="arm">
<link name="base"/>
<link name="upper">
<inertial>
<origin xyz="0 0 0.2"/>
<mass value="2"/>
<inertia ixx="0.03" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.01"/>
</inertial>
</link>
<joint name="shoulder" type="revolute">
<parent link="base"/>
<child link="upper"/>
<origin xyz="0 0 1" rpy="0 0 0"/>
<axis xyz="0 1 0"/>
<limit lower="-1" upper="1" effort="9" velocity="4"/>
<dynamics damping="0.1" friction="0"/>
</joint>
<link name="tool"/>
<joint name="mount" type="fixed">
<parent link="upper"/>
<child link="tool"/>
</joint>
</robot>
"""
BODY = '<inertial><mass value="1"/>%s</inertial>'
SPHERE = BODY % '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'


def hinge(name, parent, child, inside="", kind="continuous"):
    link = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'<joint name="{name}" type="{kind}">{link}{inside}</joint>'


def heavy(name):
    return f'<link name="{name}">{SPHERE}</link>'


def added(*elements):
    """The arm with further elements, the first of them on line 23."""
    return ARM.replace("</robot>", "\n".join(elements) + "\n</robot>")


def follower(inside, kind="continuous"):
    return added(heavy("a"), hinge("elbow", "upper", "a", inside, kind))


CHANGED = {
    # what the file then is wrong about: (old, new, message)
    "tag left open": (
        "<parent",
        "<parent>",
        "URDF:17: not an XML document: mismatched tag",
    ),
    "nameless link": ('link name="tool"', "link", "URDF:18: link: attribute 'name' is missing"),
    "empty name": ('<link name="tool"/>', '<link name=" "/>', "URDF:18: .*'name' is .*empty"),
    "link twice": ("tool", "base", "URDF:18: link 'base': another link has this name"),
    "joint twice": ("mount", "shoulder", "URDF:19: joint 'shoulder': another joint"),
    "mass missing": ('<mass value="2"/>', "", "URDF:4: link 'upper': inertial: <mass> is missing"),
    "mass twice": ("<mass", '<mass value="1"/><mass', "URDF:6: .*mass: a second <mass>"),
    "mass no number": ('value="2"', 'value="${m}"', r"mass: value must be one number, got '\$\{m"),
    "mass not a number": ('value="2"', 'value="nan"', "mass: value must be one number, got 'nan'"),
    "mass infinite": ('value="2"', 'value="inf"', "mass: value must be finite"),
    "mass negative": ('value="2"', 'value="-2"', "URDF:4: .*mass must not be negative, got -2.0"),
    "inertia missing": ("<inertia ", "<tensor ", "inertial: <inertia> is missing"),
    "inertia entry missing": ('iyz="0"', "", "URDF:7: .*inertia: attribute 'iyz' is missing"),
    "inertia indefinite": ('izz="0.01"', 'izz="-1"', "URDF:3: link 'upper': .*positive definite"),
    "inertia impossible": ('izz="0.01"', 'izz="0.1"', "'upper': .*with 'tool', .* triangle ineq"),
    "origin of two": ('xyz="0 0 0.2"', 'xyz="0 0"', "inertial: origin: xyz must be 3 numbers"),
    "origin no numbers": ('rpy="0 0 0"', 'rpy="0,0,0"', "'shoulder': origin: rpy must be 3 numb"),
    "origin infinite": ('rpy="0 0 0"', 'rpy="0 inf 0"', "URDF:13: .*rpy must be finite"),
    "axis zero": ('xyz="0 1 0"', 'xyz="0 0 0"', "URDF:14: joint 'shoulder': axis: .* zero vector"),
    "axis empty": (' xyz="0 1 0"', "", "axis: xyz must not be the zero vector"),
    "joint without type": (' type="fixed"', "", "joint 'mount': attribute 'type' is missing"),
    "joint of unknown type": ("fixed", "ball", "'mount': unknown type 'ball'; known are .*fixed"),
    "parent missing": ('<parent link="upper"/>', "", "joint 'mount': <parent> is missing"),
    "child missing": ('<child link="tool"/>', "", "joint 'mount': <child> is missing"),
    "parent unknown": ('parent link="upper"', 'parent link="x"', "unknown parent link 'x'; known"),
    "child unknown": ('child link="tool"', 'child link="x"', "URDF:19: .*unknown child link 'x'"),
    "itself": ('parent link="upper"', 'parent link="tool"', "connects link 'tool' to itself"),
    "limit missing": ("<limit", "<limits", "URDF:10: .*a revolute joint needs a <limit>"),
    "limit incomplete": ('effort="9"', "", "URDF:15: .*limit: attribute 'effort' is missing"),
    "limit not a number": ('effort="9"', 'effort="nan"', "limit: effort must be one number"),
    "limits crossed": ('upper="1"', 'upper="-2"', "lower is above upper: -1.0 > -2.0"),
    "damping negative": ('damping="0.1"', 'damping="-1"', "URDF:16: .*damping must not be neg"),
    "friction of a plane": (
        '"revolute">',
        '"planar">',
        "'shoulder': dynamics: damping has no meaning for a planar joint",
    ),
    "massless": ('<mass value="2"/>', '<mass value="0"/>', "'upper': it moves.*and has no mass"),
    "nothing moves": ("revolute", "fixed", "URDF:1: robot 'arm': no link moves"),
    "body named ground": ('"tool"', '"ground"', "URDF:18: link 'ground': this name means the w"),
}
ADDED = {
    "xacro": (added('<xacro:arm name="left"/>'), "URDF:23: xacro:arm 'left': .*expand_xacro"),
    "another format": ("<sdf/>", "URDF:1: sdf: a robot description begins with <robot>"),
    "no link": ('<robot name="r"/>', "URDF:1: robot 'r': there is no link"),
    "several roots": (
        added(heavy("a")),
        "robot 'arm': several links are not the child of a joint: 'base', 'a'",
    ),
    "closed loop": (
        added(heavy("a"), hinge("j", "base", "a"), hinge("k", "upper", "a")),
        "URDF:25: joint 'k': link 'a' already is the child of joint 'j'",
    ),
    "loop without a root": (
        f"<robot>{heavy('a')}{heavy('b')}{hinge('j', 'a', 'b')}{hinge('k', 'b', 'a')}</robot>",
        "URDF:1: robot: the joints close a loop",
    ),
    "loop beside the root": (
        added(heavy("a"), heavy("b"), hinge("j", "a", "b"), hinge("k", "b", "a")),
        "URDF:25: joint 'j': it is part of a loop that hangs on no root like 'base'",
    ),
    "follows nobody": (
        follower('<mimic joint="wrist"/>'),
        "URDF:24: joint 'elbow': it mimics the unknown joint 'wrist'; known are .*'shoulder'",
    ),
    "follows a fixed joint": (
        follower('<mimic joint="mount"/>'),
        "'elbow': it mimics joint 'mount', a fixed joint; that joint must be one of revolute",
    ),
    "follows itself": (
        added(
            heavy("a"),
            heavy("b"),
            hinge("j", "upper", "a", '<mimic joint="k"/>'),
            hinge("k", "a", "b", '<mimic joint="j"/>'),
        ),
        "URDF:25: joint 'j': it mimics itself, through joint 'j'",
    ),
    "follows with a plane": (
        follower('<mimic joint="shoulder"/>', "planar"),
        "'elbow': mimic: a planar joint cannot follow another one",
    ),
    "follows without a name": (follower("<mimic/>"), "mimic: attribute 'joint' is missing"),
    "follows an infinity": (
        follower('<mimic joint="shoulder" multiplier="inf"/>'),
        "mimic: multiplier must be finite",
    ),
}


def test_the_arm_itself_is_right():
    assert set(from_urdf(ARM).bodies) == {"upper"}


@pytest.mark.parametrize(("old", "new", "message"), CHANGED.values(), ids=CHANGED)
def test_changed(old, new, message):
    assert old in ARM
    with pytest.raises(mbd.ModelError, match=message):
        from_urdf(ARM.replace(old, new))


@pytest.mark.parametrize(("text", "message"), ADDED.values(), ids=ADDED)
def test_added(text, message):
    with pytest.raises(mbd.ModelError, match=message):
        from_urdf(text)


def test_a_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM.replace('value="2"', 'value="two"'))
    for read in (from_urdf, urdf_limits, urdf_mimics):
        with pytest.raises(mbd.ModelError, match=r"^arm\.urdf:6: link 'upper': inertial: mass:"):
            read(path)


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "none.urdf", tmp_path, "line\nbreak\0"):
        with pytest.raises(mbd.ModelError, match="cannot read the URDF file"):
            from_urdf(path)


def test_binary_file(tmp_path):
    path = tmp_path / "mesh.stl"
    path.write_bytes(np.arange(100).tobytes())
    with pytest.raises(mbd.ModelError, match=r"mesh\.stl:1: not an XML document"):
        from_urdf(path)


def test_empty_file(tmp_path):
    path = tmp_path / "empty.urdf"
    path.touch()
    with pytest.raises(mbd.ModelError, match="not an XML document: no element found"):
        from_urdf(path)


def test_the_ground_cannot_float():
    text = ARM.replace("base", "world")
    assert set(from_urdf(text).bodies) == {"upper"}
    message = r"URDF:2: link 'world': .* 'shoulder' \(revolute\).* leave floating_base out"
    with pytest.raises(mbd.ModelError, match=message):
        from_urdf(text, floating_base=True)


def test_a_floating_root_needs_mass():
    with pytest.raises(mbd.ModelError, match="URDF:2: link 'base': it floats and has no mass"):
        from_urdf(ARM, floating_base=True)


def test_the_name_of_the_floating_joint_is_taken():
    text = ARM.replace("shoulder", "floating_base").replace(
        '"base"/>', f'"base">{SPHERE}</link>', 1
    )
    with pytest.raises(mbd.ModelError, match=r"URDF:10: joint 'floating_base': .*rename this one"):
        from_urdf(text, floating_base=True)


def test_a_floating_root_named_ground():
    text = ARM.replace('"base"', '"ground"')
    assert set(from_urdf(text).frames) == {"tool"}
    with pytest.raises(mbd.ModelError, match="link 'ground': this name means the world's own"):
        from_urdf(text, floating_base=True)


def test_messages_are_one_line():
    with pytest.raises(mbd.ModelError) as raised:
        from_urdf(ARM.replace("fixed", "ball"))
    assert not re.search(r"\n", str(raised.value))
