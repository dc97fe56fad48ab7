"""Revolute joints: rotation about one axis."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose, so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, direction
from .abstract import AbstractJoint
from .rotation import AbstractRotation, AxisRotation


class Revolute(AbstractJoint):
    """Rotation about one axis; the coordinate is the angle [rad].

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: direction of the axis in the axes of F (and of M at zero); any length but zero.

    For example:

        hinge = joints.Revolute("ground", mbd.Frame("door", [0, 0.4, 0]), axis=[0, 0, 1])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = ()
    rotation: ClassVar[AbstractRotation] = AxisRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "Revolute: predecessor")
        self.successor = as_frame(successor, "Revolute: successor")
        self.axis = as_direction(axis, "Revolute: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)

    def between(
        self, q: Float[Array, "1"], on_parent: Pose, on_child: Pose, reverse: bool = False
    ) -> Pose:
        if type(self) is not Revolute:  # Whose pose may be another one.
            return super().between(q, on_parent, on_child, reverse)
        # The matrices beside sine and cosine depend on the model alone: code for many states
        # computes them once.
        axis, unturned = on_parent.R @ self.basis()[:, 2], on_parent.R @ on_child.R.T
        across = so3.hat(axis) @ unturned
        square = axis[:, None] * (axis @ unturned)[None, :] - unturned
        sine = -jnp.sin(q[0]) if reverse else jnp.sin(q[0])
        R = unturned + sine * across + (1.0 - jnp.cos(q[0])) * square
        return Pose(on_parent.p - R @ on_child.p, R)
