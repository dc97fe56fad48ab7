"""An element with a state: friction by a bristle that bends before it slides (Dahl 1968)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.extend import AbstractJointElement, JointReference, as_joint_reference


class DahlFriction(AbstractJointElement):
    """A torque -s z, with ż = v (1 - (s z / c) sign v): at most c, and a spring s at first.

    The bristle's deflection z [rad] is the state.
    """

    joint: JointReference = eqx.field(converter=as_joint_reference)
    stiffness: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    torque: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    @property
    def n_states(self):
        return 1

    def load(self, t, q, v, z):
        return -self.stiffness * z

    def state_rates(self, t, q, v, z):
        return v - jnp.abs(v) * self.stiffness * z / self.torque


def checks():
    """It holds a pendulum that hangs askew, and its gradient is that of a finite difference."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), [0.25, 0, 0])

    def swing(stiffness):
        friction = DahlFriction("hinge", stiffness, torque=4.0)
        model = mbd.Model(
            bodies={"rod": rod},
            joints={"hinge": mbd.joints.Revolute("ground", "rod", [0, 1, 0])},
            forces={
                "gravity": mbd.forces.Gravity(),
                "friction": friction,
                "oil": mbd.forces.ViscousFriction("hinge", 3.0),
            },
        )
        system = mbd.formulate(model, mbd.JointCoordinates())
        return mbd.rollout(system, mbd.assemble(system), 2e-3, 1500)

    end = swing(jnp.asarray(200.0))
    # Where the bristle holds the weight: s z = m g l / 2 cos q, and q = z from rest, nearly.
    assert abs(200.0 * end.z[-1, 0] - 9.81 * 0.25 * jnp.cos(end.q[-1, 0])) < 1e-6
    assert abs(end.v[-1, 0]) < 1e-6

    def early(stiffness):
        return swing(stiffness).q[50, 0]

    stiffness, step = jnp.asarray(200.0), 1e-3
    difference = (early(stiffness + step) - early(stiffness - step)) / (2 * step)
    assert jnp.allclose(jax.grad(early)(stiffness), difference, rtol=1e-5)
