"""Errors of controllers name the controller, and the sensor, the output or the number."""

import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, sensors
from tests.system.test_controllers import arm


def one(t, readings):
    return jnp.zeros(())


ANGLE = sensors.JointPosition("elbow")


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (
            lambda: mbd.Controller(sensors.JointPosition("wrist"), one, "elbow"),
            "controller 'law': sensor: unknown joint 'wrist'; known are 'elbow', 'shoulder'",
        ),
        (
            lambda: mbd.Controller(sensors.FramePosition("toe"), one, "elbow"),
            "controller 'law': sensor: unknown frame 'toe'; known are 'elbow.predecessor'",
        ),
        (
            lambda: mbd.Controller(ANGLE, one, "wrist"),
            "controller 'law': unknown output 'wrist'; known are 'elbow'",
        ),
        (lambda: mbd.Controller(ANGLE, one, Frame("hand")), "force 'law': unknown body 'hand'"),
        (
            lambda: mbd.Controller(ANGLE, one, "tip"),
            "its law returns a command of shape () for 'tip' where (6,) is needed",
        ),
        (
            lambda: mbd.Controller(ANGLE, one, ["elbow", "shoulder"]),
            "one array of shape () where (2,) is needed, the commands of 'elbow', 'shoulder'",
        ),
        (
            lambda: mbd.Controller(ANGLE, lambda t, y: (y,), ["elbow", "shoulder"]),
            "its law returns 1 commands where 2 are needed",
        ),
        (
            lambda: mbd.Controller(ANGLE, lambda t, y: {"a": y}, {"b": "elbow"}),
            "where a dict of 'b' is needed",
        ),
        (
            lambda: mbd.Controller(ANGLE, lambda t, y: y @ y, "elbow"),
            "controller 'law': its law does not accept its readings",
        ),
        (
            lambda: mbd.Controller(ANGLE, one, "elbow", period=0.0),
            "force 'law': period must be positive, got 0.0",
        ),
        (
            lambda: mbd.Controller(ANGLE, lambda t, y, m: y, "elbow", memory=1.0),
            "a law with memory returns two things",
        ),
        (
            lambda: mbd.Controller(ANGLE, lambda t, y, m: (y, jnp.zeros(2)), "elbow", memory=1.0),
            "rates of the memory of shapes [(2,)] where the memory has [()]",
        ),
        (
            lambda: mbd.Controller(sensors.Accelerometer("tip"), one, "elbow"),
            "force 'law': its sensor Accelerometer needs accelerations or multipliers",
        ),
        (
            lambda: mbd.Controller(sensors.Calibrated(ANGLE, delay=0.1), one, "elbow"),
            "its sensor Calibrated needs accelerations or multipliers",
        ),
        (
            lambda: mbd.Controller([lambda system, t, state: t], one, "elbow"),
            "is not a sensor; take one",
        ),
        (
            lambda: mbd.Controller(ANGLE, 3.0, "elbow"),
            "the law must be a function or a module, got 3.0",
        ),
        (lambda: mbd.PID(ANGLE, kp=1.0), "PID: a sensor needs output"),
        (lambda: mbd.PID(ANGLE, "elbow", kd=1.0), "needs filter_time, rate or period"),
        (
            lambda: mbd.PID("elbow", limits=(1.0, -1.0)),
            "force 'law': limits must be (lower, upper)",
        ),
        (lambda: mbd.PID("elbow", limits=(-1.0, 1.0)), "limits without kp need tracking_time"),
        (lambda: mbd.PID("elbow", kp=1.0, period=-1.0), "period must be positive, got -1.0"),
        (
            lambda: mbd.PID("elbow", kp=1.0, setpoint=[1.0, 2.0]),
            "the setpoint has shape (2,), the reading ()",
        ),
    ],
)
def test_errors(controller, message):
    with pytest.raises(mbd.ModelError) as caught:
        arm(controller())
    assert message in str(caught.value)
