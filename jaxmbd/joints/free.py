"""Coordinates of free relative motion: a floating base."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import se3, so3
from ..model.frame import Frame, as_frame
from .abstract import AbstractJoint
from .rotation import AbstractRotation, FreeRotation


class Free(AbstractJoint):
    """Any relative motion.

    The coordinates are `[p, quaternion]`, shape `(7,)`: position of M in F [m] and `w x y z`. The
    velocity is the twist `[v, ω]` of M in F along the axes of M [m/s, rad/s].

    **Arguments:** `predecessor` and `successor`, a `Frame` each, or the name of a body for its own
    frame.

    For example:

        free = joints.Free("ground", "drone")
    """

    predecessor: Frame
    successor: Frame
    translation: ClassVar[tuple[int, ...]] = (0, 1, 2)
    rotation: ClassVar[AbstractRotation] = FreeRotation()

    def __init__(self, predecessor: Any, successor: Any):
        self.predecessor = as_frame(predecessor, "Free: predecessor")
        self.successor = as_frame(successor, "Free: successor")

    # The default kernel expresses linear velocities along F. Along the axes of M the equations of
    # a floating body do not depend on its pose.

    def motion(self, q: Float[Array, "7"]) -> Float[Array, "6 6"]:
        return jnp.eye(6, dtype=q.dtype)

    def rates(self, q: Float[Array, "7"], v: Float[Array, "6"]) -> Float[Array, "7"]:
        return jnp.concatenate([so3.to_matrix(q[3:]) @ v[:3], so3.rate(q[3:], v[3:])])

    def velocities(self, q: Float[Array, "7"], q_dot: Float[Array, "7"]) -> Float[Array, "6"]:
        linear = so3.to_matrix(q[3:]).T @ q_dot[:3]
        return jnp.concatenate([linear, so3.velocity(q[3:], q_dot[3:])])

    def retract(self, q: Float[Array, "7"], dv: Float[Array, "6"]) -> Float[Array, "7"]:
        # Exact for a constant twist: the linear velocity turns with M during the increment.
        return se3.displaced(q, dv)
