"""A spring on a joint whose stiffness grows with the deflection."""

import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.model.frame import JointReference


class CubicSpring(mbd.forces.AbstractJointForce):
    """-k q³ on every coordinate of a joint."""

    joint: JointReference
    stiffness: Float[Array, ""]

    def force(self, t, q, v):
        return -self.stiffness * q**3

    def potential(self, t, q):
        return 0.25 * self.stiffness * jnp.sum(q**4)
