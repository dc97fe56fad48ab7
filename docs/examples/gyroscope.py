"""An instrument: three angular velocities along the axes of the frame that carries it."""

import equinox as eqx
import numpy as np

import jaxmbd as mbd


class Gyroscope(mbd.sensors.AbstractSensor):
    """Angular velocity of a named frame along its own axes, shape `(3,)` [rad/s]."""

    frame: str = eqx.field(static=True)

    def __call__(self, system, t, state):
        return system.twists(t, state.q, state.v)[self.frame][3:]


def checks():
    """What it reads on a wheel that turns freely."""
    model = mbd.Model(
        bodies={"wheel": mbd.inertia.cylinder(1.0, 0.2, 0.05)},
        joints={"axle": mbd.joints.Revolute(mbd.ground, "wheel")},
        frames={"imu": mbd.Frame("wheel", quat=[0.8, 0.6, 0.0, 0.0])},
    )
    ts = np.linspace(0.0, 0.5, 6)
    blank = mbd.Experiment(ts, {"gyro": np.zeros((6, 3))}, rates={"axle": 2.0})
    read = mbd.predict(model, blank, sensors={"gyro": Gyroscope("imu")})["gyro"]
    np.testing.assert_allclose(read, np.tile([0.0, 1.92, 0.56], (6, 1)), atol=1e-12)
