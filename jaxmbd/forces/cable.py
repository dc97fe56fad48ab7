"""A cable between two frames, which transmits tension only."""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ..lie import Pose, vector
from ..model.frame import Frame, as_frame
from ..model.values import as_leaf, is_concrete, negative, not_positive
from .abstract import AbstractFrameForce, Time
from .one_sided import one_sided_energy, one_sided_force
from .pull import line_between, wrenches_of_pull


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
