"""A spring and damper on the coordinates of a joint."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf
from .abstract import AbstractJointForce, Time


class TorsionalSpringDamper(AbstractJointForce):
    """`-k (q - q0) - c v` on a joint whose coordinates are angles or displacements.

    `JointCoordinates` counts the turns of an angle. Formulations in absolute coordinates compute
    angles within (-π, π]: in these formulations the torque jumps at half a turn.

    **Arguments:**

    - `joint`: name of a revolute, prismatic, cylindrical, universal or planar joint.
    - `stiffness`: k [N m/rad or N/m]; `damping`: c [N m s/rad or N s/m]; `rest`: q0 [rad or m].
      A number each, or one for each coordinate of the joint.

    For example:

        coil = forces.TorsionalSpringDamper("hinge", 20.0, damping=0.1, rest=0.3)
    """

    joint: JointReference
    stiffness: Float[Array, "..."]
    damping: Float[Array, "..."]
    rest: Float[Array, "..."]

    def __init__(self, joint: Any, stiffness: Any, damping: Any = 0.0, rest: Any = 0.0):
        self.joint = as_joint_reference(joint, "TorsionalSpringDamper: joint")
        name = "TorsionalSpringDamper:"
        self.stiffness = as_leaf(stiffness, None, f"{name} stiffness")
        self.damping = as_leaf(damping, None, f"{name} damping")
        self.rest = as_leaf(rest, None, f"{name} rest")

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return -self.stiffness * (q - self.rest) - self.damping * v

    def potential(self, t: Time, q: Float[Array, "nq"]) -> Float[Array, ""]:
        return 0.5 * jnp.sum(self.stiffness * (q - self.rest) ** 2)
