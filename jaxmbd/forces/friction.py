"""Friction in joints."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, negative, not_positive
from .abstract import AbstractJointForce, Time


class ViscousFriction(AbstractJointForce):
    """`-b v` on every velocity of a joint.

    **Arguments:** `joint`, the name of the joint, and `coefficient` b [N m s/rad or N s/m], a
    number or one for each velocity of the joint.

    For example:

        bearing = forces.ViscousFriction("hinge", 0.1)
    """

    joint: JointReference
    coefficient: Float[Array, "..."]

    def __init__(self, joint: Any, coefficient: Any):
        self.joint = as_joint_reference(joint, "ViscousFriction: joint")
        name = "ViscousFriction: coefficient"
        self.coefficient = as_leaf(coefficient, None, name)

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return -self.coefficient * v


class CoulombFriction(AbstractJointForce):
    """Smoothed dry friction: `-c profile(v / v_t)` on every velocity of a joint.

    **Arguments:**

    - `joint`: name of the joint.
    - `torque`: c [N m or N], a number or one for each velocity of the joint.
    - `transition_velocity`: v_t [rad/s or m/s], positive; below it the force decreases to zero.
    - `profile`: an odd function that tends to ±1. Default: `jnp.tanh`.

    For example:

        dry = forces.CoulombFriction("hinge", 0.2, transition_velocity=0.01)
    """

    joint: JointReference
    torque: Float[Array, "..."]
    transition_velocity: Float[Array, ""]
    profile: Callable[..., Any] = eqx.field(static=True)

    def __init__(
        self,
        joint: Any,
        torque: Any,
        transition_velocity: Any = 0.01,
        profile: Callable[..., Any] = jnp.tanh,
    ):
        self.joint = as_joint_reference(joint, "CoulombFriction: joint")
        self.torque = as_leaf(torque, None, "CoulombFriction: torque")
        name = "CoulombFriction: transition_velocity"
        self.transition_velocity = as_leaf(transition_velocity, (), name)
        self.profile = profile

    def validate(self) -> str | None:
        return not_positive(self, "transition_velocity")

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return -self.torque * self.profile(v / self.transition_velocity)


class StribeckFriction(AbstractJointForce):
    """Dry and viscous friction with the Stribeck effect, on every velocity of a joint.

        -(c + (s - c) exp(-abs(v / v_s)^α)) tanh(v / v_t) - b v

    If v_t is far below v_s, the force rises to nearly s, falls to c as the speed passes v_s, and
    then grows with b. Friction never adds energy. The joint never sticks: under a load f below s it
    creeps, at about v_t artanh(f/s). At rest the slope of the force is -(s/v_t + b), which an
    explicit method resolves with steps far below J v_t / s.

    Source: Armstrong-Hélouvry, Dupont and Canudas de Wit, "A survey of models, analysis tools and
    compensation methods for the control of machines with friction" (1994), here with the sign of
    the velocity smoothed.

    **Arguments:**

    - `joint`: name of the joint.
    - `coulomb`: c, and `static`: s [N m or N], a number each, or one for each velocity of the
      joint. s may be below c, since a fit may yield no Stribeck effect.
    - `stribeck_velocity`: v_s [rad/s or m/s], positive, a number or one for each velocity.
    - `viscous`: b [N m s/rad or N s/m], a number or one for each velocity. Default: zero.
    - `transition_velocity`: v_t [rad/s or m/s], positive; below it the force decreases to zero.
    - `exponent`: α, positive. The first derivative by the velocity is continuous for any α, all
      derivatives for even numbers.

    For example:

        dry = forces.StribeckFriction("hinge", 0.10, 0.15, 0.05, viscous=0.02)
    """

    joint: JointReference
    coulomb: Float[Array, "..."]
    static: Float[Array, "..."]
    stribeck_velocity: Float[Array, "..."]
    viscous: Float[Array, "..."]
    transition_velocity: Float[Array, ""]
    exponent: Float[Array, ""]

    def __init__(
        self,
        joint: Any,
        coulomb: Any,
        static: Any,
        stribeck_velocity: Any,
        viscous: Any = 0.0,
        transition_velocity: Any = 0.01,
        exponent: Any = 2.0,
    ):
        self.joint = as_joint_reference(joint, "StribeckFriction: joint")
        name = "StribeckFriction:"
        self.coulomb = as_leaf(coulomb, None, f"{name} coulomb")
        self.static = as_leaf(static, None, f"{name} static")
        self.stribeck_velocity = as_leaf(stribeck_velocity, None, f"{name} stribeck_velocity")
        self.viscous = as_leaf(viscous, None, f"{name} viscous")
        self.transition_velocity = as_leaf(transition_velocity, (), f"{name} transition_velocity")
        self.exponent = as_leaf(exponent, (), f"{name} exponent")

    def validate(self) -> str | None:
        problem = not_positive(self, "stribeck_velocity", "transition_velocity", "exponent")
        return problem or negative(self, "coulomb", "static", "viscous")

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        squared = (v / self.stribeck_velocity) ** 2
        # A power of zero has no derivative by the exponent, nor by the base if α is small.
        moving = squared > 0
        power = jnp.where(moving, squared, 1.0) ** (0.5 * self.exponent)
        excess = (self.static - self.coulomb) * jnp.exp(-jnp.where(moving, power, 0.0))
        dry = (self.coulomb + excess) * jnp.tanh(v / self.transition_velocity)
        return -dry - self.viscous * v


class AsymmetricFriction(AbstractJointForce):
    """Friction with different laws for the two directions of motion, on every velocity of a joint.

        w F₊(v) + (1 - w) F₋(v),   w = (1 + tanh(v / v_t)) / 2

    Both laws oppose the velocity, and so does their weighted mean. In `identify` their parameters
    are `"forces.<name>.forward.coulomb"` and so on.

    **Arguments:**

    - `forward`, `backward`: F₊ and F₋, friction of any kind on the same joint, such as
      `StribeckFriction`; v > 0 is forward.
    - `transition_velocity`: v_t [rad/s or m/s], positive, preferably that of the laws. At speeds of
      a few v_t only one of the laws acts.

    **Raises** `ModelError` for a law that is not friction: no force on a joint, or one with a
    potential.

    For example:

        forward, backward = (forces.CoulombFriction("hinge", c) for c in (0.10, 0.12))
        dry = forces.AsymmetricFriction(forward, backward)
    """

    joint: JointReference
    forward: AbstractJointForce
    backward: AbstractJointForce
    transition_velocity: Float[Array, ""]

    def __init__(self, forward: Any, backward: Any, transition_velocity: Any = 0.01):
        for side, law in (("forward", forward), ("backward", backward)):
            _check_friction(law, f"AsymmetricFriction: {side}")
        self.joint = forward.joint
        self.forward = forward
        self.backward = backward
        name = "AsymmetricFriction: transition_velocity"
        self.transition_velocity = as_leaf(transition_velocity, (), name)

    def validate(self) -> str | None:
        if self.forward.joint.name != self.backward.joint.name:
            return (
                f"forward is on joint {self.forward.joint.name!r}, backward on "
                f"{self.backward.joint.name!r}; both must be on one joint"
            )
        problem = not_positive(self, "transition_velocity")
        if problem is not None:
            return problem
        for side, law in (("forward", self.forward), ("backward", self.backward)):
            problem = law.validate()
            if problem is not None:
                return f"{side}: {problem}"
        return None

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        w = 0.5 * (1.0 + jnp.tanh(v / self.transition_velocity))
        forward, backward = (law.force(t, q, v) for law in (self.forward, self.backward))
        return backward + w * (forward - backward)


def _check_friction(law: Any, caller: str) -> None:
    if not isinstance(law, AbstractJointForce):
        raise ModelError(f"{caller} must be friction on a joint, got {law!r}")
    if type(law).potential is not AbstractJointForce.potential:
        raise ModelError(f"{caller} must be friction, but {type(law).__name__} has a potential")
