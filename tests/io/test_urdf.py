import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.io import JointLimits, Mimic, from_urdf, urdf_limits, urdf_mimics

MECHANISMS = Path(__file__).parent / "mechanisms"
CRANE = MECHANISMS / "crane.urdf"
GRIPPER = MECHANISMS / "gripper.urdf"
TUG = MECHANISMS / "tug.urdf"


def rotation(roll, pitch, yaw):
    """Rotation matrix of URDF's angles, Rz(yaw) Ry(pitch) Rx(roll), written out."""
    (sr, sp, sy), (cr, cp, cy) = np.sin([roll, pitch, yaw]), np.cos([roll, pitch, yaw])
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def crane_by_hand():
    """The crane with its welds as joints; bodies at the frames of the file's links."""
    R_trolley = rotation(0.4, 0.5, -0.6)
    trolley = [[0.04, 0.002, -0.003], [0.002, 0.05, 0.004], [-0.003, 0.004, 0.06]]
    counterweight = [[0.01, 0.001, 0], [0.001, 0.02, 0], [0, 0, 0.015]]
    R_hook = rotation(0, 0, 1)
    jib_end = Frame("counterweight", (0, 0.1, -1.1), R=rotation(0.2, 0, 0.7))
    return mbd.Model(
        bodies={
            "trolley": mbd.RigidBody(
                3.0, R_trolley @ np.array(trolley) @ R_trolley.T, (0.05, 0.02, -0.03)
            ),
            "jib": mbd.RigidBody(2.0, (0.2, 0.2, 0.01), (0, 0, -0.5)),
            "counterweight": mbd.RigidBody(1.5, counterweight, (0.03, 0, 0)),
            "hook": mbd.RigidBody(
                0.8, R_hook @ np.diag([0.004, 0.003, 0.002]) @ R_hook.T, (0.02, 0, -0.1)
            ),
        },
        joints={
            "travel": joints.Prismatic(
                Frame("ground", (0.1, -0.2, 2.0), R=rotation(0.1, -0.2, 0.3)), "trolley", (2, 1, 0)
            ),
            "swing": joints.Revolute(Frame("trolley", (0, 0, -0.1)), "jib", (1, 0, 0)),
            "weld": joints.Fixed(
                Frame("jib", (-0.1, 0.4, 0.2), R=rotation(0, 0.5, 0)), "counterweight"
            ),
            "turn": joints.Revolute(
                jib_end.at((0, 0, -0.05), R=rotation(0, 0, -0.1)), "hook", (0, 0.6, 0.8)
            ),
        },
        forces={
            "gravity": forces.Gravity(),
            "travel damping": forces.ViscousFriction("travel", 2.5),
            "swing damping": forces.ViscousFriction("swing", 0.3),
            "swing friction": forces.CoulombFriction("swing", 0.7),
        },
        frames={
            "rail": Frame("ground"),
            "survey_point": Frame("ground", (1, 2, 3), R=rotation(0.3, 0, 0)),
            "bearing": jib_end,
            "hook_tip": Frame("hook", (0, 0, -0.2)),
        },
    )


def moving(system):
    """A state of the crane with every joint away from zero."""
    return mbd.assemble(
        system,
        {"travel": 0.7, "swing": -0.4, "turn": 2.0},
        {"travel": 0.3, "swing": 1.1, "turn": -0.8},
    )


@eqx.filter_jit
def evaluate(system, state):
    """Equations of motion and energies by name, and the poses of the frames."""
    values = {
        "mass": system.mass(state.q),
        "bias": system.bias(state.q, state.v),
        "accelerations": mbd.accelerations(system, 0.0, state)[0],
        "energy": mbd.energy(system, 0.0, state),
    }
    return values, system.frames(0.0, state.q)


def assert_same_motion(model, expected):
    """Equal equations of motion, energies, and poses of all links."""
    systems = [mbd.formulate(m, mbd.JointCoordinates()) for m in (model, expected)]
    states = [moving(system) for system in systems]
    np.testing.assert_array_equal(states[0].q, states[1].q)
    results = [evaluate(*pair) for pair in zip(systems, states, strict=True)]
    (values, poses), (expected_values, expected_poses) = results
    for name in values:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12),
            values[name],
            expected_values[name],
        )
    for name in (*expected.bodies, *expected.frames):
        np.testing.assert_allclose(poses[name].p, expected_poses[name].p, atol=1e-14)
        np.testing.assert_allclose(poses[name].R, expected_poses[name].R, atol=1e-14)


@pytest.mark.thorough
@pytest.mark.smoke
def test_moves_like_the_model_built_by_hand():
    model = from_urdf(CRANE)
    assert set(model.bodies) == {"trolley", "jib", "hook"}
    assert set(model.joints) == {"travel", "swing", "turn"}
    assert set(model.frames) == {"rail", "survey_point", "counterweight", "bearing", "hook_tip"}
    assert_same_motion(model, crane_by_hand())


@pytest.mark.long
def test_fixed_joints_can_be_kept():
    model, expected = from_urdf(CRANE, merge_fixed=False), crane_by_hand()
    assert set(model.bodies) == set(expected.bodies)
    assert set(model.joints) == set(expected.joints)
    assert set(model.frames) == set(expected.frames)
    assert isinstance(model.joints["weld"], joints.Fixed)
    assert_same_motion(model, expected)


def test_forces_are_gravity_and_what_is_not_zero():
    model = from_urdf(CRANE)
    assert set(model.forces) == set(crane_by_hand().forces)
    np.testing.assert_array_equal(model.forces["travel damping"].coefficient, 2.5)
    np.testing.assert_array_equal(model.forces["swing damping"].coefficient, 0.3)
    np.testing.assert_array_equal(model.forces["swing friction"].torque, 0.7)
    assert set(from_urdf(GRIPPER, mimic="fixed", gravity=None).forces) == set()
    moon = from_urdf(CRANE, gravity=(0, 0, -1.62)).forces["gravity"]
    np.testing.assert_array_equal(moon.g, [0, 0, -1.62])


def test_text_and_path_read_the_same():
    # A text is no longer in the encoding that its first line names.
    text = CRANE.read_text().replace('version="1.0"', 'version="1.0" encoding="utf-16"')
    from_file, from_text = from_urdf(str(CRANE)), from_urdf(text)
    assert jax.tree.structure(from_file) == jax.tree.structure(from_text)
    for a, b in zip(jax.tree.leaves(from_file), jax.tree.leaves(from_text), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_floating_base_is_a_body_on_a_free_joint():
    fixed, floating = from_urdf(CRANE), from_urdf(CRANE, floating_base=True)
    assert set(floating.bodies) == {*fixed.bodies, "rail"}
    assert isinstance(floating.joints["floating_base"], joints.Free)
    assert floating.frames["survey_point"].body == "rail"
    system = mbd.formulate(floating, mbd.JointCoordinates())
    pose = mbd.Pose(jnp.array([1.0, 2.0, 3.0]), jnp.eye(3))
    state = mbd.assemble(system, {"floating_base": pose, "travel": 0.5})
    np.testing.assert_allclose(system.frames(0.0, state.q)["rail"].p, pose.p)
    # Falls: no force acts between its parts and the ground.
    momentum = mbd.momentum(system, 0.0, state)
    np.testing.assert_allclose(momentum.linear, 0.0)
    assert system.nv == 9
    np.testing.assert_allclose(system.mass(state.q)[:3, :3], 47.3 * np.eye(3), atol=1e-12)


def test_floating_root_without_mass_takes_it_from_a_welded_link():
    text = CRANE.read_text().replace('<parent link="rail"/>', '<parent link="mount"/>', 1)
    text = text.replace('<child link="survey_point"/>', '<child link="rail"/>', 1)
    text = text.replace('<link name="survey_point"/>', '<link name="mount"/>', 1)
    for merge_fixed in (True, False):
        model = from_urdf(text, floating_base=True, merge_fixed=merge_fixed)
        assert {"mount", "trolley"} <= set(model.bodies)
        assert "rail" in model.frames
        np.testing.assert_allclose(model.bodies["mount"].com, [1, 2, 3])


def test_planar_and_floating_joints():
    model = from_urdf(TUG)
    assert isinstance(model.joints["ice"], joints.Planar)
    assert isinstance(model.joints["air"], joints.Free)
    assert model.frames["world"].body == "ground"
    system = mbd.formulate(model, mbd.JointCoordinates())
    quarter = math.sqrt(0.5)
    state = mbd.assemble(
        system, {"ice": (3, 4, math.pi / 2), "air": (1, 0, 0, quarter, quarter, 0, 0)}
    )
    poses = system.frames(0.0, state.q)
    np.testing.assert_allclose(poses["sledge"].p, [3, 4, 0.3], atol=1e-14)
    np.testing.assert_allclose(poses["kite"].p, [3, 5, 5.3], atol=1e-14)
    np.testing.assert_allclose(poses["kite"].R[:, 2], [1, 0, 0], atol=1e-14)


def test_unknown_treatment_of_mimics():
    with pytest.raises(mbd.ModelError, match=r"mimic must be .* got 'follow'"):
        from_urdf(CRANE, mimic="follow")


@pytest.mark.thorough
def test_followers_are_coupled():
    model = from_urdf(GRIPPER)
    assert set(model.couplings) == {"right", "roll"}
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"left": 0.01}, {"left": 0.2})
    joint_states = mbd.joint_states(system, 0.0, state)
    np.testing.assert_allclose(joint_states["right"].q, 0.013, atol=1e-15)
    np.testing.assert_allclose(joint_states["roll"].q, 0.1, atol=1e-15)
    np.testing.assert_allclose(joint_states["roll"].v, -4.0, atol=1e-13)
    vdot, _ = mbd.accelerations(system, 0.0, state)
    after = mbd.joint_states(system, 0.0, mbd.State(state.q, vdot))
    np.testing.assert_allclose(after["roll"].v, -20.0 * after["left"].v, rtol=1e-12)


def test_independent_followers_have_their_own_coordinates():
    model = from_urdf(GRIPPER, mimic="independent")
    assert set(model.joints) == {"left", "right", "roll"}
    assert "right damping" in model.forces


@pytest.mark.long
def test_fixed_followers_stay_at_their_offset():
    model = from_urdf(GRIPPER, mimic="fixed")
    assert set(model.joints) == {"left"}
    assert set(model.bodies) == {"left_finger"}
    assert "right damping" not in model.forces
    free = mbd.formulate(from_urdf(GRIPPER, mimic="independent"), mbd.JointCoordinates())
    expected = free.frames(0.0, mbd.assemble(free, {"right": 0.003, "roll": 0.3}).q)
    held = mbd.formulate(model, mbd.JointCoordinates())
    poses = held.frames(0.0, mbd.assemble(held).q)
    for link in ("right_finger", "tip"):
        np.testing.assert_allclose(poses[link].p, expected[link].p, atol=1e-15)
        np.testing.assert_allclose(poses[link].R, expected[link].R, atol=1e-15)


def test_mimics_are_reported():
    assert urdf_mimics(GRIPPER) == {
        "right": Mimic("left", 1.0, 0.003),
        "roll": Mimic("left", -20.0, 0.3),
    }
    assert urdf_mimics(CRANE) == {}


def test_a_fixed_joint_follows_nothing():
    text = GRIPPER.read_text().replace('"right" type="prismatic"', '"right" type="fixed"')
    assert set(urdf_mimics(text)) == {"roll"}


def test_limits_are_reported():
    infinite = math.inf
    assert urdf_limits(CRANE) == {
        "travel": JointLimits(-1.0, 4.0, 500.0, 2.0),
        "swing": JointLimits(0.0, 1.2, 80.0, 3.0),
        "turn": JointLimits(-infinite, infinite, infinite, infinite),
    }
    text = CRANE.read_text().replace(
        '<axis xyz="0 0.6 0.8"/>', '<limit effort="5" velocity="inf"/>'
    )
    assert urdf_limits(text)["turn"] == JointLimits(-infinite, infinite, 5.0, infinite)
