"""A force or torque on a joint as a function of time."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.frame import JointReference, as_joint_reference
from ..signals import as_signal
from .abstract import AbstractJointForce, Time


class JointTorque(AbstractJointForce):
    """Generalized force of a drive, on the successor and, with opposite sign, on the predecessor.

    **Arguments:**

    - `joint`: name of the joint.
    - `torque`: a number, one number for each velocity of the joint, or a signal of either shape
      [N m or N].

    For example:

        drive = forces.JointTorque("hinge", signals.Samples([0.0, 1.0], [0.0, 5.0]))
    """

    joint: JointReference
    signal: Callable
    signals_at_own_time: ClassVar[tuple[str, ...]] = ("signal",)

    def __init__(self, joint: Any, torque: Any):
        self.joint = as_joint_reference(joint, "JointTorque: joint")
        self.signal = as_signal(torque, "JointTorque: torque")

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return jnp.broadcast_to(self.signal(t), v.shape)
