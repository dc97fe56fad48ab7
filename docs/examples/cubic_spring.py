"""A spring on a joint whose stiffness grows with the deflection."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.extend import AbstractJointForce, JointReference, as_joint_reference


class CubicSpring(AbstractJointForce):
    """-k q³ on every coordinate of a joint; k in N m/rad³, or N/m³."""

    joint: JointReference = eqx.field(converter=as_joint_reference)
    stiffness: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def force(self, t, q, v):
        return -self.stiffness * q**3

    def potential(self, t, q):
        return 0.25 * self.stiffness * jnp.sum(q**4)


def checks():
    """What a test of it looks like."""
    hinge = mbd.joints.Revolute("ground", "rod")
    spring = CubicSpring("hinge", 30.0)
    mbd.testing.check_joint_force(spring, hinge, jax.random.key(0), passive=True)
