"""Friction in joints."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, is_concrete
from .abstract import AbstractJointForce, Time


class ViscousFriction(AbstractJointForce):
    """`-b v` on every velocity of a joint.

    **Arguments:** `joint`, its name, and `coefficient` b [N m s/rad or N s/m], a number or one for
    each velocity of the joint.
    """

    joint: JointReference
    coefficient: Float[Array, "..."]

    def __init__(self, joint: Any, coefficient: Any):
        self.joint = as_joint_reference(joint)
        name = "ViscousFriction: coefficient"
        self.coefficient = as_leaf(coefficient, None, name)

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return -self.coefficient * v


class CoulombFriction(AbstractJointForce):
    """Dry friction, smoothed: `-c profile(v / v_t)` on every velocity of a joint.

    **Arguments:**

    - `joint`: its name.
    - `torque`: c [N m or N], a number or one for each velocity of the joint.
    - `transition_velocity`: v_t [rad/s or m/s], positive; below it the force falls to zero.
    - `profile`: an odd function that goes to ±1; `jnp.tanh` where it is left out.
    """

    joint: JointReference
    torque: Float[Array, "..."]
    transition_velocity: Float[Array, ""]
    profile: Callable = eqx.field(static=True)

    def __init__(
        self,
        joint: Any,
        torque: Any,
        transition_velocity: Any = 0.01,
        profile: Callable = jnp.tanh,
    ):
        self.joint = as_joint_reference(joint)
        self.torque = as_leaf(torque, None, "CoulombFriction: torque")
        name = "CoulombFriction: transition_velocity"
        self.transition_velocity = as_leaf(transition_velocity, (), name)
        self.profile = profile

    def problem(self) -> str | None:
        if is_concrete(self.transition_velocity) and not np.asarray(self.transition_velocity) > 0:
            return f"transition_velocity must be positive, got {self.transition_velocity}"
        return None

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return -self.torque * self.profile(v / self.transition_velocity)


__all__ = ["CoulombFriction", "ViscousFriction"]
