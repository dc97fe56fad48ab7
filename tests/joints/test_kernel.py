"""Every kind of joint: its statements about position, velocity and constraint fit together."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd import joints
from jaxmbd.lie import Pose, se3, so3
from jaxmbd.testing import assertions
from tests import models

DRAWS = 20

every_kind = pytest.mark.parametrize("kind", models.JOINT_KINDS, ids=lambda kind: kind.__name__)


@functools.cache
def random_joints(kind):
    """Joints with random axes, stacked."""
    rng = np.random.default_rng(11)
    drawn = [models.random_joint(rng, kind, "a", "b") for _ in range(DRAWS)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)


def sizes(kind):
    return random_joints(kind).sizes()


@functools.cache
def random_motion(kind):
    """Coordinates and velocities; angles within ±3, quaternions of any length."""
    rng, (_, nv, _) = np.random.default_rng(12), sizes(kind)
    k = len(kind.translation)
    q = rng.uniform(-3, 3, (DRAWS, nv))
    if kind.rotation.nq == 4:
        quats = np.stack([1.3 * models.random_quat(rng) for _ in range(DRAWS)])
        q = np.concatenate([q[:, :k], quats], axis=1)
    if kind is joints.ConstantVelocity:
        q = 0.7 * q  # Rotation vectors within half a turn.
    return jnp.asarray(q), jnp.asarray(rng.normal(size=(DRAWS, nv)))


def velocity_of(joint, q, q_dot):
    """Body twist of the pose that moves with `q_dot`."""
    return se3.velocity(*jax.jvp(joint.pose, (q,), (q_dot,)))


def residual_jacobian(joint, X):
    def rate(V):
        return jax.jvp(joint.residual, (X,), (se3.rate(X, V),))[1]

    return jax.vmap(rate, out_axes=1)(jnp.eye(6))


@functools.cache
def findings(kind):
    """All that the tests look at, of every draw: one compiled function for each kind."""

    def look(joint, q, v):
        X, S = joint.pose(q), joint.motion(q)
        moved, q_dot, moving, change = assertions.along_retraction(joint, q, v)
        D = residual_jacobian(joint, X)
        # Off the joint too, where the residual must still be smooth.
        off = X @ se3.exp(jnp.array([0.1, -0.2, 0.3, 0.2, -0.1, 0.15]))
        ends = se3.exp(jnp.array([0.3, 0.2, -0.4, 0.5, -0.7, 0.1])), off
        return {
            "between": [
                jax.tree.map(
                    jnp.subtract,
                    joint.between(q, *ends, reverse),
                    ends[0] @ (X.inverse() if reverse else X) @ ends[1].inverse(),
                )
                for reverse in (False, True)
            ],
            "twist": velocity_of(joint, q, joint.rates(q, v)) - S @ v,
            "unit": joint.dual_motion(q).T @ S - jnp.eye(S.shape[1]),
            "basis": joint.basis().T @ joint.basis() - jnp.eye(3),
            "turn": jnp.linalg.det(joint.basis()) - 1.0,
            "home": (joint.pose(joint.zero()).p, joint.pose(joint.zero()).R - jnp.eye(3)),
            "pose": jax.tree.map(jnp.subtract, joint.pose(joint.coordinates(X)), X),
            "coordinates": (joint.coordinates(X), q),
            "residual": joint.residual(X),
            "off": (joint.residual(off), residual_jacobian(joint, off)),
            "allowed": D @ S,
            "rank": jnp.linalg.svd(D, compute_uv=False),
            "retract": (moved - q, velocity_of(joint, q, q_dot) - S @ v, moving - v, change),
        }

    return eqx.filter_jit(jax.vmap(look))(random_joints(kind), *random_motion(kind))


def zero(tree, atol=2e-14):
    for leaf in jax.tree.leaves(tree):
        np.testing.assert_allclose(leaf, 0.0, atol=atol)


@pytest.mark.long
@pytest.mark.smoke
@every_kind
def test_velocity_of_the_pose_is_the_motion_times_the_velocities(kind):
    zero(findings(kind)["twist"])


@pytest.mark.long
@every_kind
def test_unit_forces_work_on_unit_velocities(kind):
    found = findings(kind)
    zero((found["unit"], found["basis"], found["turn"]))


@pytest.mark.long
@every_kind
def test_frames_coincide_at_zero(kind):
    zero(findings(kind)["home"])


@pytest.mark.long
@every_kind
def test_the_pose_between_two_bodies_contains_that_of_the_joint(kind):
    zero(findings(kind)["between"])


@every_kind
def test_coordinates_invert_the_pose(kind):
    found = findings(kind)
    zero(found["pose"])
    if kind.rotation.nq != 4:  # Quaternions come back normalized.
        got, wanted = found["coordinates"]
        np.testing.assert_allclose(got, wanted, atol=1e-13)


@every_kind
def test_poses_of_the_joint_keep_what_is_fixed(kind):
    found = findings(kind)
    zero(found["residual"])
    off, _ = found["off"]
    assert off.shape == (DRAWS, sizes(kind)[2])
    assert off.size == 0 or np.abs(off).min(axis=1).max() > 1e-2


@every_kind
def test_constraint_and_motion_are_complementary(kind):
    """D S = 0 and D has full rank 6 - nv: the rows span just the fixed motions."""
    found, (_, nv, n_fixed) = findings(kind), sizes(kind)
    assert n_fixed == 6 - nv
    zero(found["allowed"])
    assert found["rank"].shape == (DRAWS, 6 - nv)
    assert n_fixed == 0 or found["rank"].min() > 0.02


@every_kind
def test_residual_is_differentiable_off_the_joint(kind):
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(findings(kind)["off"]))


@every_kind
def test_retraction_is_the_motion_at_constant_velocities_to_second_order(kind):
    zero(findings(kind)["retract"])


def test_displacement_and_angle_count_along_the_axis():
    axis = (0.0, 3.0, 4.0)
    n = jnp.array([0.0, 0.6, 0.8])
    hinge, slider = joints.Revolute("a", "b", axis), joints.Prismatic("a", "b", axis)
    np.testing.assert_allclose(hinge.pose(jnp.array([0.7])).R, so3.exp_matrix(0.7 * n), atol=1e-15)
    np.testing.assert_allclose(slider.pose(jnp.array([0.7])).p, 0.7 * n, atol=1e-15)
    shaft = joints.Cylindrical("a", "b", axis).pose(jnp.array([0.2, 0.7]))
    np.testing.assert_allclose(shaft.p, 0.2 * n, atol=1e-15)
    np.testing.assert_allclose(shaft.R, so3.exp_matrix(0.7 * n), atol=1e-15)


def test_first_axis_of_a_universal_joint_is_fixed_in_the_predecessor():
    cross = joints.Universal("a", "b", axis1=(0, 0, 1), axis2=(1, 0, 0))
    z, x = jnp.array([0.0, 0.0, 1.0]), jnp.array([1.0, 0.0, 0.0])
    R = cross.pose(jnp.array([0.4, 1.1])).R
    wanted = so3.exp_matrix(0.4 * z) @ so3.exp_matrix(1.1 * x)
    np.testing.assert_allclose(R, wanted, atol=1e-15)


def test_planar_coordinates_run_along_the_axes_of_the_predecessor():
    X = joints.Planar("a", "b").pose(jnp.array([0.3, -0.4, 0.5]))
    np.testing.assert_allclose(X.p, [0.3, -0.4, 0.0], atol=1e-16)
    np.testing.assert_allclose(X.R, so3.exp_matrix(jnp.array([0.0, 0.0, 0.5])), atol=1e-16)


def test_free_joint_moves_along_its_own_axes():
    q = jnp.concatenate([jnp.array([1.0, 2.0, 3.0]), so3.exp(jnp.array([0.0, 0.0, np.pi / 2]))])
    rates = joints.Free("a", "b").rates(q, jnp.array([1.0, 0, 0, 0, 0, 0]))
    np.testing.assert_allclose(rates[:3], [0.0, 1.0, 0.0], atol=1e-15)


@pytest.mark.parametrize("angle", [np.pi, -np.pi, 3.5])
def test_angles_are_read_within_half_a_turn(angle):
    hinge = joints.Revolute("a", "b")
    got = float(hinge.coordinates(hinge.pose(jnp.array([angle])))[0])
    assert -np.pi <= got <= np.pi
    assert np.cos(got - angle) == pytest.approx(1.0, abs=1e-15)


def test_singular_universal_joint_keeps_its_coordinates():
    """At a second angle of 90° the first is still determined, unlike Euler angles."""
    cross = joints.Universal("a", "b")
    q = jnp.array([0.4, np.pi / 2])
    np.testing.assert_allclose(cross.coordinates(cross.pose(q)), q, atol=1e-15)


def test_closing_pose_is_what_the_residual_wants():
    """Zero residual picks out the poses of the joint: a hinge turned about another axis is not."""
    hinge = joints.Revolute("a", "b")
    tilted = Pose(jnp.zeros(3), so3.exp_matrix(jnp.array([0.1, 0.0, 0.0])))
    assert np.abs(hinge.residual(tilted)).max() > 0.09
