"""A spring on the rotation of a ball joint."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lie import so3
from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, is_concrete
from .abstract import AbstractJointForce, Time


class RotationalSpring(AbstractJointForce):
    """Moment `-k φ` along the axes of the successor, with the rotation vector φ from rest.

    |φ| ≤ π is the angle of the rotation. The moment jumps at half a turn.

    **Arguments:**

    - `joint`: name of a joint with a quaternion, such as `Spherical` or `Free`. Translations of the
      joint are free of the spring.
    - `stiffness`: k [N m/rad].
    - `rest`: quaternion `w x y z` at which the moment is zero. Default: that of zero coordinates.

    For example:

        centring = forces.RotationalSpring("ball", 5.0)
    """

    joint: JointReference
    stiffness: Float[Array, ""]
    rest: Float[Array, "4"]

    def __init__(self, joint: Any, stiffness: Any, rest: Any = (1.0, 0.0, 0.0, 0.0)):
        self.joint = as_joint_reference(joint, "RotationalSpring: joint")
        self.stiffness = as_leaf(stiffness, (), "RotationalSpring: stiffness")
        self.rest = as_leaf(rest, (4,), "RotationalSpring: rest")

    def validate(self) -> str | None:
        if is_concrete(self.rest) and not np.any(np.asarray(self.rest)):
            return "rest must not be zero"
        return None

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        if q.shape[0] != v.shape[0] + 1:
            raise ValueError("a rotational spring needs a joint with a quaternion")
        return jnp.zeros_like(v).at[-3:].set(-self.stiffness * self._rotation(q))

    def potential(self, t: Time, q: Float[Array, "nq"]) -> Float[Array, ""]:
        phi = self._rotation(q)
        return 0.5 * self.stiffness * (phi @ phi)

    def _rotation(self, q: Float[Array, "nq"]) -> Float[Array, "3"]:
        """φ, the rotation vector from rest."""
        return so3.log(so3.multiply(so3.conjugate(self.rest), q[-4:]))
