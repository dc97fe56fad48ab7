"""Rolling discs and knife edges: nonholonomic constraints."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lie import Pose, so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, as_leaf, direction, is_concrete
from .abstract import AbstractConstraint


class RollingDisc(AbstractConstraint):
    """A disc fixed in M, whose rim rolls without slip on a plane fixed in F.

    The lowest point of the rim stays in the plane. At this contact point M has no velocity along
    the plane (two nonholonomic constraints). The plane can pull as well as push. The constraints
    are redundant, which is allowed, if another joint holds the wheel upright.

    **Arguments:**

    - `predecessor`: a frame whose origin is in the plane; `successor`: a frame whose origin is the
      centre of the disc. Each is a `Frame`, or the name of a body for its own frame.
    - `radius`: radius of the disc [m], positive.
    - `normal`: normal of the plane, towards the disc, in the axes of F; any length but zero.
    - `axis`: axis of the disc, in the axes of M; any length but zero.

    If the disc lies flat, it has no lowest point.

    For example:

        wheel = joints.RollingDisc("ground", "disc", radius=0.3)
    """

    predecessor: Frame
    successor: Frame
    radius: Float[Array, ""]
    normal: Float[Array, "3"] = direction()
    axis: Float[Array, "3"] = direction()
    n_fixed: ClassVar[int] = 1
    n_nonholonomic: ClassVar[int] = 2
    bilinear: ClassVar[bool] = False

    def __init__(
        self,
        predecessor: Any,
        successor: Any,
        radius: Any,
        normal: Any = (0.0, 0.0, 1.0),
        axis: Any = (0.0, 1.0, 0.0),
    ):
        self.predecessor = as_frame(predecessor, "RollingDisc: predecessor")
        self.successor = as_frame(successor, "RollingDisc: successor")
        self.radius = as_leaf(radius, (), "RollingDisc: radius")
        self.normal = as_direction(normal, "RollingDisc: normal")
        self.axis = as_direction(axis, "RollingDisc: axis")

    def validate(self) -> str | None:
        if is_concrete(self.radius) and not np.asarray(self.radius) > 0:
            return f"radius must be positive, got {self.radius}"
        return None

    def lowest(self, R_FM: Float[Array, "3 3"]) -> Float[Array, "3"]:
        """Vector from the centre of the disc to the contact point, in F [m]."""
        n, a = _unit(self.normal), R_FM @ _unit(self.axis)
        down = (n @ a) * a - n
        square = down @ down  # The squared sine of the disc's inclination.
        upright = square > 0
        return jnp.where(upright, self.radius / jnp.sqrt(jnp.where(upright, square, 1.0)), 0) * down

    def residual(self, X_FM: Pose) -> Float[Array, "1"]:
        return (_unit(self.normal) @ (X_FM.p + self.lowest(X_FM.R)))[None]

    def nonholonomic(self, X_FM: Pose, V_FM: Float[Array, "6"]) -> Float[Array, "2"]:
        v, w = X_FM.R @ V_FM[:3], X_FM.R @ V_FM[3:]
        return so3.basis(self.normal)[:, :2].T @ (v + so3.cross(w, self.lowest(X_FM.R)))


def _unit(axis: Float[Array, "3"]) -> Float[Array, "3"]:
    return axis / jnp.sqrt(axis @ axis)


class KnifeEdge(AbstractConstraint):
    """A nonholonomic constraint: the origin of M does not move sideways relative to F.

    It does not constrain the position: keep the body in a plane by an additional `Planar` or
    `PointOnPlane` joint.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: the sideways direction, in the axes of M; any length but zero.

    For example:

        blade = joints.KnifeEdge("ground", "sleigh", axis=[0, 1, 0])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    n_fixed: ClassVar[int] = 0
    n_nonholonomic: ClassVar[int] = 1

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 1.0, 0.0)):
        self.predecessor = as_frame(predecessor, "KnifeEdge: predecessor")
        self.successor = as_frame(successor, "KnifeEdge: successor")
        self.axis = as_direction(axis, "KnifeEdge: axis")

    def residual(self, X_FM: Pose) -> Float[Array, "0"]:
        return jnp.zeros(0, dtype=X_FM.p.dtype)

    def nonholonomic(self, X_FM: Pose, V_FM: Float[Array, "6"]) -> Float[Array, "1"]:
        return ((self.axis @ V_FM[:3]) / jnp.sqrt(self.axis @ self.axis))[None]
