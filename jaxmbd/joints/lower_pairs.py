"""Revolute, prismatic, cylindrical, screw, planar, spherical and fixed joints."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lie import Pose, so3
from ..model.frame import Frame, as_frame
from ..model.values import as_direction, as_leaf, direction, is_concrete
from .abstract import AbstractJoint
from .rotation import AbstractRotation, AxisRotation, FreeRotation, NoRotation


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
        # A subclass may override `pose`, of which this is the closed form. No comparison of methods
        # is shorter: `pose` also depends on `rotation`, `translation` and `basis`.
        if type(self) is not Revolute:
            return super().between(q, on_parent, on_child, reverse)
        # The matrices beside sine and cosine depend on the model alone: code for many states
        # computes them once.
        axis, unturned = on_parent.R @ so3.unit(self.axis), on_parent.R @ on_child.R.T
        across = so3.hat(axis) @ unturned
        square = axis[:, None] * (axis @ unturned)[None, :] - unturned
        sine = -jnp.sin(q[0]) if reverse else jnp.sin(q[0])
        R = unturned + sine * across + (1.0 - jnp.cos(q[0])) * square
        return Pose(on_parent.p - R @ on_child.p, R)

    def motion(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        if type(self) is not Revolute:
            return super().motion(q)
        axis = so3.unit(self.axis)
        return jnp.concatenate([jnp.zeros_like(axis), axis])[:, None]


class Prismatic(AbstractJoint):
    """Translation along one axis; the coordinate is the displacement [m].

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: direction of the axis in the axes of F (and of M at zero); any length but zero.

    For example:

        slide = joints.Prismatic("ground", "cart", axis=[1, 0, 0])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = (2,)
    rotation: ClassVar[AbstractRotation] = NoRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "Prismatic: predecessor")
        self.successor = as_frame(successor, "Prismatic: successor")
        self.axis = as_direction(axis, "Prismatic: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)


class Cylindrical(AbstractJoint):
    """Translation along and rotation about one axis; coordinates `[displacement, angle]` [m, rad].

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: direction of the axis in the axes of F (and of M at zero); any length but zero.

    For example:

        sleeve = joints.Cylindrical("ground", "rod", axis=[1, 0, 0])
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = (2,)
    rotation: ClassVar[AbstractRotation] = AxisRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "Cylindrical: predecessor")
        self.successor = as_frame(successor, "Cylindrical: successor")
        self.axis = as_direction(axis, "Cylindrical: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)


class Screw(AbstractJoint):
    """Rotation about an axis, and translation along it in proportion; the coordinate is the angle.

    Every formulation counts its turns [rad].

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `pitch`: displacement of M along the axis per turn [m], negative for a left-handed thread.
    - `axis`: direction of the axis in the axes of F (and of M at zero); any length but zero.

    For example:

        spindle = joints.Screw("ground", "nut", pitch=0.005, axis=[0, 0, 1])
    """

    predecessor: Frame
    successor: Frame
    pitch: Float[Array, ""]
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = (2,)
    rotation: ClassVar[AbstractRotation] = AxisRotation()
    bilinear: ClassVar[bool] = False

    def __init__(self, predecessor: Any, successor: Any, pitch: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "Screw: predecessor")
        self.successor = as_frame(successor, "Screw: successor")
        self.pitch = as_leaf(pitch, (), "Screw: pitch")
        self.axis = as_direction(axis, "Screw: axis")

    def validate(self) -> str | None:
        if is_concrete(self.pitch) and np.asarray(self.pitch) == 0:
            return "pitch must not be zero; use a Revolute joint"
        return None

    # `translation` and `rotation` are those of a cylindrical joint. A screw has one coordinate
    # less and one constraint more.

    def sizes(self) -> tuple[int, int, int]:
        return 1, 1, 5

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)

    @property
    def lead(self) -> Float[Array, ""]:
        """Displacement per angle [m/rad]."""
        return self.pitch / (2.0 * jnp.pi)

    def zero(self) -> Float[Array, "1"]:
        return jnp.zeros(1)

    def pose(self, q: Float[Array, "1"]) -> Pose:
        return super().pose(self._both(q))

    def motion(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        S = super().motion(self._both(q))
        return self.lead * S[:, :1] + S[:, 1:]

    def dual_motion(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        return super().motion(self._both(q))[:, 1:]  # A torque about the axis.

    def _both(self, q: Float[Array, "1"]) -> Float[Array, "2"]:
        return jnp.concatenate([self.lead * q, q])

    def rates(self, q: Float[Array, "1"], v: Float[Array, "1"]) -> Float[Array, "1"]:
        return v

    def velocities(self, q: Float[Array, "1"], q_dot: Float[Array, "1"]) -> Float[Array, "1"]:
        return q_dot

    def retract(self, q: Float[Array, "1"], dv: Float[Array, "1"]) -> Float[Array, "1"]:
        return q + dv

    def residual(self, X_FM: Pose) -> Float[Array, "5"]:
        _displacement, excess = self._excess(X_FM)
        return jnp.concatenate([super().residual(X_FM), -self.lead * excess])

    def coordinates(self, X_FM: Pose) -> Float[Array, "1"]:
        displacement, excess = self._excess(X_FM)
        return displacement / self.lead + excess

    def _excess(self, X_FM: Pose) -> tuple[Float[Array, "1"], Float[Array, "1"]]:
        """The displacement, and the angle minus that of the displacement, within (-π, π]."""
        displacement, angle = jnp.split(super().coordinates(X_FM), 2)
        excess = angle - displacement / self.lead
        return displacement, jnp.arctan2(jnp.sin(excess), jnp.cos(excess))


class Planar(AbstractJoint):
    """Translation in the plane whose normal is `axis` and rotation about it.

    The coordinates are `[x, y, angle]` [m, m, rad]; x and y run along the first two columns of
    `basis()`, which are the x and y axes of F if `axis` is z.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `axis`: normal of the plane in the axes of F (and of M at zero); any length but zero.

    For example:

        table = joints.Planar("ground", "puck")
    """

    predecessor: Frame
    successor: Frame
    axis: Float[Array, "3"] = direction()
    translation: ClassVar[tuple[int, ...]] = (0, 1)
    rotation: ClassVar[AbstractRotation] = AxisRotation()

    def __init__(self, predecessor: Any, successor: Any, axis: Any = (0.0, 0.0, 1.0)):
        self.predecessor = as_frame(predecessor, "Planar: predecessor")
        self.successor = as_frame(successor, "Planar: successor")
        self.axis = as_direction(axis, "Planar: axis")

    def basis(self) -> Float[Array, "3 3"]:
        return so3.basis(self.axis)


class Spherical(AbstractJoint):
    """Any rotation about one point.

    The coordinate is a quaternion `w x y z`. The velocity is the angular velocity of M in F along
    the axes of M [rad/s].

    **Arguments:** `predecessor` and `successor`, a `Frame` each, or the name of a body for its own
    frame.

    For example:

        ball = joints.Spherical(mbd.Frame("rod", [1.0, 0, 0]), "load")
    """

    predecessor: Frame
    successor: Frame
    translation: ClassVar[tuple[int, ...]] = ()
    rotation: ClassVar[AbstractRotation] = FreeRotation()

    def __init__(self, predecessor: Any, successor: Any):
        self.predecessor = as_frame(predecessor, "Spherical: predecessor")
        self.successor = as_frame(successor, "Spherical: successor")


class Fixed(AbstractJoint):
    """No relative motion.

    **Arguments:** `predecessor` and `successor`, a `Frame` each, or the name of a body for its own
    frame.

    For example:

        weld = joints.Fixed(mbd.Frame("arm", [0.3, 0, 0]), "tool")
    """

    predecessor: Frame
    successor: Frame
    translation: ClassVar[tuple[int, ...]] = ()
    rotation: ClassVar[AbstractRotation] = NoRotation()

    def __init__(self, predecessor: Any, successor: Any):
        self.predecessor = as_frame(predecessor, "Fixed: predecessor")
        self.successor = as_frame(successor, "Fixed: successor")
