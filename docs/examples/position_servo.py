"""A link that a PID controller, at a limited torque, turns to a setpoint; gains by gradients.

`python docs/examples/position_servo.py` draws `docs/static/position_servo.svg`.
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp

import jaxmbd as mbd

GOAL, H, N = 1.2, 0.005, 600


def model(kp=60.0, ki=120.0, kd=12.0, period=None):
    """A rod that hangs from a hinge, with a controller of the angle."""
    return mbd.Model(
        bodies={"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])},
        joints={"hinge": mbd.joints.Revolute("ground", "rod", axis=[0, -1, 0])},
        forces={
            "gravity": mbd.forces.Gravity(),
            "servo": mbd.PID(
                "hinge", kp=kp, ki=ki, kd=kd, setpoint=GOAL, limits=(-12.0, 12.0), period=period
            ),
        },
    )


@eqx.filter_jit
def angles(model):
    """Angle of the hinge every 5 ms, from rest where the rod hangs down."""
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge": -0.5 * jnp.pi})
    return mbd.rollout(system, state, H, N).q[:, 0]


def cost(gains):
    """Mean square of the error [rad²]."""
    return jnp.mean((angles(model(*gains)) - GOAL) ** 2)


def checks():
    """It arrives, sampled as well; gradients by the gains are those of differences."""
    assert abs(angles(model())[-1] - GOAL) < 0.05
    assert abs(angles(model(period=0.05))[-1] - GOAL) < 0.1
    gains, step = jnp.asarray([60.0, 120.0, 12.0]), 1e-4
    value = jax.jit(cost)
    slope = jax.jit(jax.grad(cost))(gains)
    for k, change in enumerate(step * jnp.eye(3)):
        difference = (value(gains + change) - value(gains - change)) / (2.0 * step)
        assert abs(slope[k] - difference) < 1e-5 * abs(difference)


def draw(path):
    """Angles under the continuous law and under sampled ones."""
    import matplotlib.pyplot as plt
    import numpy as np

    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    ts = H * np.arange(1, N + 1)
    for label, period in (("continuous", None), ("every 0.05 s", 0.05), ("every 0.15 s", 0.15)):
        axes.plot(ts, angles(model(period=period)), label=label)
    axes.axhline(GOAL, color="0.6", linewidth=0.8, linestyle="--")
    axes.set(xlabel="time [s]", ylabel="angle [rad]")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    draw(Path(__file__).parents[1] / "static" / "position_servo.svg")
