"""A driven rod with first-order states: the current of a motor, two states of a filter."""

import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import forces, joints
from jaxmbd.model.frame import JointReference


class Current(forces.AbstractJointElement):
    """A winding: L di/dt = u - R i - k ω, torque k i."""

    joint: JointReference
    constant: Float[Array, ""]
    voltage: Float[Array, ""]

    @property
    def n_states(self) -> int:
        return 1

    def load(self, t, q, v, z):
        return self.constant * z

    def state_rates(self, t, q, v, z):
        return (self.voltage - 2.0 * z - self.constant * v) / 0.1


class Filter(forces.AbstractJointElement):
    """Two first-order filters of the angle, one behind the other, which do nothing."""

    joint: JointReference

    @property
    def n_states(self) -> int:
        return 2

    def load(self, t, q, v, z):
        return 0.0 * v

    def state_rates(self, t, q, v, z):
        return 10.0 * (jnp.concatenate([q, z[:1]]) - z)


class Held(forces.AbstractJointElement):
    """A torque that is kept between samples of the angle: zero-order hold of -k q."""

    joint: JointReference
    gain: Float[Array, ""]
    every: Float[Array, ""]

    @property
    def n_states(self) -> int:
        return 1

    @property
    def period(self):
        return self.every

    def load(self, t, q, v, z):
        return z

    def state_rates(self, t, q, v, z):
        return jnp.zeros_like(z)

    def update(self, t, q, v, z):
        return -self.gain * q


ROD = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=0.5, radius=0.05), [0.25, 0, 0])
HINGE = JointReference("hinge")


def motor(constant=0.5, voltage=6.0) -> Current:
    return Current(HINGE, jnp.asarray(constant), jnp.asarray(voltage))


def model(constant=0.5, **further) -> mbd.Model:
    """A rod on a motor, with a filter of its angle."""
    elements = {"motor": motor(constant), "filter": Filter(HINGE), "gravity": forces.Gravity()}
    hinges = {"hinge": joints.Revolute("ground", "rod", [0, 1, 0])}
    return mbd.Model({"rod": ROD}, hinges, elements | further)


def held(every: float) -> mbd.Model:
    """The rod with a sampled torque instead."""
    element = Held(HINGE, jnp.asarray(2.0), jnp.asarray(every))
    hinges = {"hinge": joints.Revolute("ground", "rod", [0, 1, 0])}
    return mbd.Model({"rod": ROD}, hinges, {"hold": element})


def start(system) -> mbd.State:
    states = {"motor": 0.4, "filter": [0.1, -0.2]}
    return mbd.assemble(system, {"hinge": 0.3}, {"hinge": 1.0}, states=states)
