"""Springs between frames and on joints, cables and end stops."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lie import Pose, so3, vector
from ..model.frame import Frame, JointReference, as_frame, as_joint_reference
from ..model.values import as_leaf, is_concrete, negative, not_positive
from .abstract import AbstractFrameForce, AbstractJointForce, Time

# Forces along the line between the origins of two frames ------------------------------------------


class Line(NamedTuple):
    """The line from the first frame to the second, in the world.

    - `d`: vector from origin to origin [m].
    - `u`: its direction, zero if the origins coincide.
    - `lengthening`: rate of its length [m/s].
    """

    d: Float[Array, "3"]
    u: Float[Array, "3"]
    lengthening: Float[Array, ""]


def line_between(X: Pose, V: Float[Array, "2 6"]) -> Line:
    """The line between two frames with poses `X` and twists `V`, each along its own axes."""
    d = X.p[1] - X.p[0]
    u = vector.direction(d)
    return Line(d, u, u @ (X.R[1] @ V[1, :3] - X.R[0] @ V[0, :3]))


def wrenches_of_pull(X: Pose, pull: Float[Array, "3"]) -> Float[Array, "2 6"]:
    """Wrenches [N, N m] of the force `pull` on the first frame and `-pull` on the second one."""
    zeros = jnp.zeros_like(pull)
    return jnp.stack(
        [
            jnp.concatenate([X.R[0].T @ pull, zeros]),
            jnp.concatenate([-(X.R[1].T @ pull), zeros]),
        ]
    )


class SpringDamper(AbstractFrameForce):
    """Tension `k (L - L0) + c dL/dt` along the line between the origins of two frames.

    If the origins coincide, the line has no direction and the force is zero.

    **Arguments:**

    - `frame_a`, `frame_b`: a `Frame` each, or the name of a body for its own frame.
    - `stiffness`: k [N/m]; `damping`: c [N s/m]; `rest_length`: L0 [m]. Defaults of c and L0: zero.

    For example:

        spring = forces.SpringDamper("ground", "car", 2e4, damping=1e3, rest_length=0.4)
    """

    frame_a: Frame
    frame_b: Frame
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    rest_length: Float[Array, ""]

    def __init__(
        self,
        frame_a: Any,
        frame_b: Any,
        stiffness: Any,
        damping: Any = 0.0,
        rest_length: Any = 0.0,
    ):
        self.frame_a = as_frame(frame_a, "SpringDamper: frame_a")
        self.frame_b = as_frame(frame_b, "SpringDamper: frame_b")
        self.stiffness = as_leaf(stiffness, (), "SpringDamper: stiffness")
        self.damping = as_leaf(damping, (), "SpringDamper: damping")
        self.rest_length = as_leaf(rest_length, (), "SpringDamper: rest_length")

    def wrenches(self, t: Time, X: Pose, V: Float[Array, "2 6"]) -> Float[Array, "2 6"]:
        line = line_between(X, V)
        # k (L - L0) u in a form that is smooth at L = 0 if L0 = 0.
        pull = self.stiffness * (line.d - self.rest_length * line.u)
        return wrenches_of_pull(X, pull + self.damping * line.lengthening * line.u)

    def potential(self, t: Time, X: Pose) -> Float[Array, ""]:
        stretch = vector.length(X.p[1] - X.p[0]) - self.rest_length
        return 0.5 * self.stiffness * stretch**2


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


# A one-sided spring and damper with a smooth transition -------------------------------------------
#
# At a depth δ ≤ 0 the force is zero. At a depth δ > 0 it is
#
#     F = k w e(δ/w) φ(y),   y = c r(δ/w) δ̇ / (k w e(δ/w))
#     e(x) = x²/2, from x = 1 on x - 1/2;   r(x) = x² (3 - 2x), from x = 1 on 1
#     φ(y) = 1 + y where y ≥ 0,   1 / (1 - y) where y < 0
#
# with the stiffness k, the damping c and the transition w. The force is never negative, its
# derivatives by the depth and by the rate are continuous, and damping only dissipates energy.


def one_sided_force(
    depth: Float[Array, "*n"],
    rate: Float[Array, "*n"],
    stiffness: Float[Array, ""],
    damping: Float[Array, ""],
    transition: Float[Array, ""],
) -> Float[Array, "*n"]:
    """Force F at a `depth` that grows at `rate`."""
    within, beyond = _parts(depth / transition)
    full = stiffness * transition
    # r/e with the common factor x² cancelled.
    y = damping * rate * (3.0 - 2.0 * within) / ((0.5 + beyond) * full)
    leaving = jnp.where(y < 0, y, 0.0)
    phi = jnp.where(y < 0, 1.0 / (1.0 - leaving), 1.0 + y)
    return full * (0.5 * within**2 + beyond) * phi


def one_sided_energy(
    depth: Float[Array, "*n"], stiffness: Float[Array, ""], transition: Float[Array, ""]
) -> Float[Array, "*n"]:
    """The integral of k w e over the depth."""
    within, beyond = _parts(depth / transition)
    return stiffness * transition**2 * (within**3 / 6.0 + 0.5 * beyond * (1.0 + beyond))


def _parts(x: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Lengths of the parts of [0, x] that are below and above 1."""
    within = jnp.where(x < 1, jnp.where(x > 0, x, 0.0), 1.0)
    return within, jnp.where(x < 1, 0.0, x - 1.0)


class Cable(AbstractFrameForce):
    """Tension along the line between the origins of two frames, zero if the cable is slack.

    With the stretch δ = L - L0 and k = EA / L0 the tension is

        T = 0 where δ ≤ -w/2,   k δ + c dδ/dt where δ ≥ w/2 and the cable gets longer

    For -w/2 < δ < w/2 the transition is smooth: the tension of the spring is k (δ + w/2)² / (2w),
    and the coefficient of the damper rises from 0 to c. While the cable gets shorter, the damper
    reduces the tension of the spring to no less than zero, as in `JointStop`. T is never negative,
    its derivatives by the length and by its rate are continuous, and damping only dissipates
    energy. The cable has no mass.

    **Arguments:**

    - `frame_a`, `frame_b`: a `Frame` each, or the name of a body for its own frame.
    - `axial_stiffness`: EA [N], Young's modulus times the area of the cross-section; k L0 if
      the stiffness k [N/m] is known.
    - `rest_length`: L0 [m].
    - `transition`: w [m], the range of lengths of the transition, less than 2 L0. Time steps should
      be so short that the cable passes this range in several steps.
    - `damping`: c [N s/m]. Default: zero.

    For example:

        rope = forces.Cable("ground", "load", 1e5, 2.0, transition=0.01, damping=50.0)
    """

    frame_a: Frame
    frame_b: Frame
    axial_stiffness: Float[Array, ""]
    rest_length: Float[Array, ""]
    transition: Float[Array, ""]
    damping: Float[Array, ""]

    def __init__(
        self,
        frame_a: Any,
        frame_b: Any,
        axial_stiffness: Any,
        rest_length: Any,
        *,
        transition: Any,
        damping: Any = 0.0,
    ):
        self.frame_a = as_frame(frame_a, "Cable: frame_a")
        self.frame_b = as_frame(frame_b, "Cable: frame_b")
        self.axial_stiffness = as_leaf(axial_stiffness, (), "Cable: axial_stiffness")
        self.rest_length = as_leaf(rest_length, (), "Cable: rest_length")
        self.transition = as_leaf(transition, (), "Cable: transition")
        self.damping = as_leaf(damping, (), "Cable: damping")

    def validate(self) -> str | None:
        problem = not_positive(self, "axial_stiffness", "rest_length", "transition")
        problem = problem or negative(self, "damping")
        if problem is not None:
            return problem
        concrete = is_concrete(self.transition) and is_concrete(self.rest_length)
        if concrete and not np.asarray(self.transition) < 2.0 * np.asarray(self.rest_length):
            return (
                f"transition must be less than twice the rest length, got {self.transition} and "
                f"{self.rest_length}: a cable without length has no direction to pull in"
            )
        return None

    def tension(self, length: Float[Array, ""], rate: Float[Array, ""]) -> Float[Array, ""]:
        """Tension T [N] at a length [m] that grows at `rate` [m/s]."""
        depth, stiffness = self._spring(length)
        return one_sided_force(depth, rate, stiffness, self.damping, self.transition)

    def stored(self, length: Float[Array, ""]) -> Float[Array, ""]:
        """Elastic energy [J] at a length [m]."""
        return one_sided_energy(*self._spring(length), self.transition)

    def wrenches(self, t: Time, X: Pose, V: Float[Array, "2 6"]) -> Float[Array, "2 6"]:
        line = line_between(X, V)
        tension = self.tension(vector.length(line.d), line.lengthening)
        return wrenches_of_pull(X, tension * line.u)

    def potential(self, t: Time, X: Pose) -> Float[Array, ""]:
        return self.stored(vector.length(X.p[1] - X.p[0]))

    def _spring(self, length: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The depth δ + w/2 [m] and the stiffness k [N/m]."""
        depth = length - self.rest_length + 0.5 * self.transition
        return depth, self.axial_stiffness / self.rest_length


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
