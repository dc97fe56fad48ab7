"""A homokinetic joint (Rzeppa, tripod; a bellows coupling)."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, direction
from .abstract import AbstractJoint
from .rotation import AbstractRotation, BendingRotation


class ConstantVelocity(AbstractJoint):
    """Two shafts that meet in a point at any angle and turn at the same speed.

    The rotation vector from F to M is perpendicular to `axis`. The coordinates are its components
    along the first two columns of `basis()` [rad]. Unlike a universal joint this one transmits
    rotation without fluctuation.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: direction of the shafts, in the axes of F (and of M at zero); any length but zero.

    For example:

        ball_drive = joints.ConstantVelocity("shaft", "wheel", axis=[0, 1, 0])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = ()
    rotation: ClassVar[AbstractRotation] = BendingRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "ConstantVelocity: predecessor")
        self.successor = as_frame(successor, "ConstantVelocity: successor")
        self.axis = as_direction(axis, "ConstantVelocity: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)

    def dual_motion(self, q: Float[Array, "2"]) -> Float[Array, "6 2"]:
        moments = BendingRotation().dual_motion(self.basis(), q)
        return jnp.concatenate([jnp.zeros_like(moments), moments])
