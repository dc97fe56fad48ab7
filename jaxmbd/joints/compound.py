"""Universal, constant-velocity, free and generic joints."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..lie import se3, so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, described, direction, is_concrete
from .abstract import AbstractJoint
from .rotation import (
    AbstractRotation,
    AxisRotation,
    BendingRotation,
    FreeRotation,
    NoRotation,
    TwoAxisRotation,
)


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


MOTIONS = ("x", "y", "z", "rx", "ry", "rz")


class Generic(AbstractJoint):
    """Any subset of the translations along and the rotations about the axes of F.

    The coordinates are the free displacements [m], in the order x, y, z, followed by the free
    angles [rad]. If two rotations are free, the first is about an axis fixed in F and the second
    about one fixed in M, in the order x y, y z, z x. Three free rotations are a quaternion.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `free`: the free motions: names out of `"x"`, `"y"`, `"z"`, `"rx"`, `"ry"`, `"rz"`, or six
      booleans in this order.

    **Raises** `ModelError` for other names.

    For example:

        guide = joints.Generic("ground", "plate", free=["x", "rz"])
    """

    predecessor: Frame
    successor: Frame
    free: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, predecessor: Any, successor: Any, free: Sequence[Any]):
        self.predecessor = as_frame(predecessor, "Generic: predecessor")
        self.successor = as_frame(successor, "Generic: successor")
        if not isinstance(free, Iterable):
            listed = ", ".join(map(repr, MOTIONS))
            raise ModelError(f"Generic: free must be names out of {listed}, got {described(free)}")
        names = [free] if isinstance(free, str) else list(free)
        if len(names) == 6 and all(isinstance(name, bool | np.bool_) for name in names):
            names = [name for name, is_free in zip(MOTIONS, names, strict=True) if is_free]
        for name in names:
            if name not in MOTIONS:
                listed = ", ".join(map(repr, MOTIONS))
                raise ModelError(f"Generic: free: unknown motion {name!r}; known are {listed}")
        self.free = tuple(name for name in MOTIONS if name in names)

    @property
    def _order(self) -> tuple[int, int, int]:
        """Indices of the axes of F that are e1, e2 and e3, as the kinds of rotation require."""
        axes = [MOTIONS.index(name) - 3 for name in self.free if name.startswith("r")]
        if len(axes) == 1:  # The axis is e3.
            last = axes[0]
            return (last + 1) % 3, (last + 2) % 3, last
        if len(axes) == 2:  # The axes are e1 and e2.
            first = (3 - sum(axes) + 1) % 3
            return first, (first + 1) % 3, (first + 2) % 3
        return 0, 1, 2

    @property
    def translation(self) -> tuple[int, ...]:
        order = self._order
        return tuple(order.index("xyz".index(name)) for name in self.free if len(name) == 1)

    @property
    def rotation(self) -> AbstractRotation:
        n = sum(name.startswith("r") for name in self.free)
        return (NoRotation, AxisRotation, TwoAxisRotation, FreeRotation)[n]()

    def basis(self) -> Float[Array, "3 3"]:
        return jnp.eye(3, dtype=self.predecessor.p.dtype)[:, np.asarray(self._order)]
