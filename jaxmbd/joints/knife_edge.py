"""A skate, or a wheel seen from above."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, direction
from .abstract import AbstractConstraint


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
