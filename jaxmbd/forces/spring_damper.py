"""A spring and damper along the line between two frames."""

from typing import Any

from jaxtyping import Array, Float

from ..lie import Pose, vector
from ..model.frame import Frame, as_frame
from ..model.values import as_leaf
from .abstract import AbstractFrameForce, Time
from .pull import line_between, wrenches_of_pull


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
