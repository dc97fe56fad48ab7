import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, testing

SERVO = forces.AffineActuator(
    "joint", 0.7, 2.0, gain=(3.0, 0.2, 0.1), bias=(0.1, -3.0, -0.4), force_range=(-50.0, 50.0)
)
THRUSTER = forces.AffineFrameActuator(
    "rod", 0.7, (1.0, 2.0, 3.0, 0.1, 0.2, 0.3), gain=(2.0, 0.1), bias=(0.3, -0.2)
)
COIL = forces.RotationalSpring("joint", 2.0, (1.0, 0.2, -0.3, 0.4))
BALL = joints.Spherical("ground", "rod")


def force(actuator, q=0.4, v=-0.3):
    return float(actuator.force(jnp.asarray(0.0), jnp.array([q]), jnp.array([v]))[0])


@pytest.mark.long
def test_contracts():
    hinge = joints.Revolute("ground", "rod")
    testing.check_joint_force(SERVO, hinge, jax.random.key(0))
    testing.check_joint_force(COIL, BALL, jax.random.key(1), passive=True)
    testing.check_frame_force(THRUSTER, jax.random.key(2))


def test_force_is_affine_in_length_and_rate():
    length, rate = 0.8, -0.6
    expected = (3.0 + 0.2 * length + 0.1 * rate) * 0.7 + 0.1 - 3.0 * length - 0.4 * rate
    assert np.isclose(force(SERVO), 2.0 * expected)


def test_ranges():
    """Limits of the control first, then of the force, which the gear multiplies afterwards."""
    limited = forces.AffineActuator("joint", 5.0, 2.0, (3.0, 0, 0), control_range=(-1.0, 1.0))
    assert force(limited) == 6.0
    limited = forces.AffineActuator("joint", 5.0, 2.0, (3.0, 0, 0), force_range=(-1.0, 2.5))
    assert force(limited) == 5.0
    actuator = forces.AffineActuator("pin", 1.0, control_range=(1.0, -1.0))
    rod = mbd.inertia.rod(1.0, 1.0)
    with pytest.raises(mbd.ModelError, match="force 'a': control_range must have its lower end"):
        mbd.Model({"rod": rod}, {"pin": joints.Revolute("ground", "rod")}, {"a": actuator})


def test_a_spring_of_a_ball_joint_turns_back_to_rest():
    quat = jnp.array([2.0, 0.0, 0.0, 0.0])  # No rotation, of any length.
    unturned = forces.RotationalSpring("joint", 2.0)
    t, v = jnp.asarray(0.0), jnp.zeros(3)
    np.testing.assert_array_equal(unturned.force(t, quat, v), 0.0)
    turned = mbd.lie.so3.exp(jnp.array([0.3, -0.2, 0.1]))
    np.testing.assert_allclose(unturned.force(t, turned, v), [-0.6, 0.4, -0.2], rtol=1e-14)
    np.testing.assert_allclose(COIL.force(t, COIL.rest, v), 0.0, atol=1e-15)


def test_joints_without_a_quaternion_have_no_rotational_spring():
    model = mbd.Model(
        {"rod": mbd.RigidBody(1.0, [1.0, 1.0, 1.0])},
        {"joint": joints.Revolute("ground", "rod")},
        {"coil": COIL},
    )
    with pytest.raises(mbd.ModelError, match=r"force 'coil' .*needs a joint with a quaternion"):
        mbd.formulate(model)
