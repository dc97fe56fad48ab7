"""A cross joint (Hooke, Cardan)."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lie import so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, direction, is_concrete
from .abstract import AbstractJoint
from .rotation import AbstractRotation, TwoAxisRotation


class Universal(AbstractJoint):
    """Rotation about an axis fixed in F, then about an axis fixed in M, through one point.

    The coordinates are the two angles [rad].

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis1`, fixed in F, and `axis2`, fixed in M: directions, perpendicular to each other at
      zero.

    `Model` **raises** `ModelError` if the axes are not perpendicular.

    For example:

        cross = joints.Universal("shaft", "drum", axis1=[0, 1, 0], axis2=[0, 0, 1])
    """

    predecessor: Frame
    successor: Frame
    axis1: Float[Array, "3"] = direction()
    axis2: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = ()
    rotation: ClassVar[AbstractRotation] = TwoAxisRotation()

    def __init__(
        self,
        predecessor: Any,
        successor: Any,
        axis1: Any = (1.0, 0.0, 0.0),
        axis2: Any = (0.0, 1.0, 0.0),
    ):
        self.predecessor = as_frame(predecessor, "Universal: predecessor")
        self.successor = as_frame(successor, "Universal: successor")
        self.axis1 = as_direction(axis1, "Universal: axis1")
        self.axis2 = as_direction(axis2, "Universal: axis2")

    def validate(self) -> str | None:
        if is_concrete(self.axis1) and is_concrete(self.axis2):
            cosine = float(np.asarray(self.axis1) @ np.asarray(self.axis2))
            if abs(cosine) > 1e-6:
                return f"axis1 and axis2 must be perpendicular, their cosine is {cosine:.3g}"
        return None

    def basis(self) -> Float[Array, "3 3"]:
        # Orthonormal again, so that a gradient step on one axis keeps SᵀS = 1.
        e1 = self.axis1 / jnp.sqrt(self.axis1 @ self.axis1)
        across = self.axis2 - (self.axis2 @ e1) * e1
        e2 = across / jnp.sqrt(across @ across)
        return jnp.stack([e1, e2, so3.cross(e1, e2)], axis=1)
