"""End stops of a joint: one-sided springs."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, is_concrete, negative, not_positive
from .abstract import AbstractJointForce, Time
from .one_sided import one_sided_energy, one_sided_force


class JointStop(AbstractJointForce):
    """One-sided springs and dampers at the limits of a joint coordinate.

    Between the limits the force is zero. At a depth δ beyond a limit it is

        F = k w e(δ/w) φ(y),   y = c r(δ/w) δ̇ / (k w e(δ/w))
        e(x) = x²/2, from x = 1 on x - 1/2;   r(x) = x² (3 - 2x), from x = 1 on 1
        φ(y) = 1 + y where y ≥ 0,   1 / (1 - y) where y < 0

    towards the range of the coordinate. Over the transition w the stiffness rises from zero to k,
    and the damping coefficient from zero to c. While the depth increases, F = k w e + c r δ̇. While
    it decreases, this sum could become negative; the factor φ, positive and of slope 1 at rest,
    keeps F between 0 and k w e, since a stop cannot pull. The derivatives of F by the coordinate
    and by the velocity are continuous, the limits included, and damping only dissipates energy.

    Formulations in absolute coordinates compute angles within (-π, π]. In these formulations limits
    outside this interval have no effect, and a joint must not be pushed through a stop past half a
    turn.

    **Arguments:**

    - `joint`: name of a joint with one coordinate.
    - `lower`, `upper`: limits of the coordinate [rad or m]. Default: None, no stop on this side.
    - `stiffness`: k [N m/rad or N/m].
    - `transition`: w, the depth of the transition [rad or m]. Time steps should be so short that
      a joint passes this depth in several steps.
    - `damping`: c [N m s/rad or N s/m]. Default: zero.

    For example:

        stop = forces.JointStop("hinge", -0.5, 0.8, stiffness=1e4, transition=0.01)
    """

    joint: JointReference
    lower: Float[Array, ""] | None
    upper: Float[Array, ""] | None
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    transition: Float[Array, ""]

    def __init__(
        self,
        joint: Any,
        lower: Any = None,
        upper: Any = None,
        *,
        stiffness: Any,
        transition: Any,
        damping: Any = 0.0,
    ):
        self.joint = as_joint_reference(joint, "JointStop: joint")
        self.lower = None if lower is None else as_leaf(lower, (), "JointStop: lower")
        self.upper = None if upper is None else as_leaf(upper, (), "JointStop: upper")
        self.stiffness = as_leaf(stiffness, (), "JointStop: stiffness")
        self.damping = as_leaf(damping, (), "JointStop: damping")
        self.transition = as_leaf(transition, (), "JointStop: transition")

    def validate(self) -> str | None:
        if self.lower is None and self.upper is None:
            return "a stop needs lower, upper or both"
        problem = not_positive(self, "stiffness", "transition") or negative(self, "damping")
        if problem is not None or self.lower is None or self.upper is None:
            return problem
        concrete = is_concrete(self.lower) and is_concrete(self.upper)
        if concrete and not np.asarray(self.lower) < np.asarray(self.upper):
            return f"lower must be below upper, got {self.lower} and {self.upper}"
        return None

    def force(self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        if q.shape != (1,):
            raise ValueError(f"a stop needs a joint with one coordinate, not {q.shape[0]}")
        total = jnp.zeros_like(v)
        if self.lower is not None:
            total = total + self._push(self.lower - q, -v)
        if self.upper is not None:
            total = total - self._push(q - self.upper, v)
        return total

    def potential(self, t: Time, q: Float[Array, "nq"]) -> Float[Array, ""]:
        total = jnp.zeros_like(q)
        if self.lower is not None:
            total = total + self._energy(self.lower - q)
        if self.upper is not None:
            total = total + self._energy(q - self.upper)
        return jnp.sum(total)

    def _push(self, depth: Float[Array, "1"], rate: Float[Array, "1"]) -> Float[Array, "1"]:
        """F at a `depth` that grows at `rate`."""
        return one_sided_force(depth, rate, self.stiffness, self.damping, self.transition)

    def _energy(self, depth: Float[Array, "1"]) -> Float[Array, "1"]:
        """The integral of k w e over the depth."""
        return one_sided_energy(depth, self.stiffness, self.transition)
