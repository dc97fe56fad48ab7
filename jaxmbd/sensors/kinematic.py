"""Sensors of positions and velocities."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..joints import AbstractJoint, Free
from ..joints.components import periodic_coordinates
from ..joints.rotation import FreeRotation
from ..lie import so3
from ..mechanism.named_motion import AbstractNamedMotion
from ..model import Frame, Model, ground
from ..model.values import library_of
from .abstract import AbstractKinematicSensor


def _as_joints(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class JointPosition(AbstractKinematicSensor):
    """Coordinates of a joint, or of several joints as one vector [rad or m; 1 for quaternions].

    A fit compares angles modulo whole turns, which only some formulations and encoders count, and
    quaternions up to their sign and length. It compares lengths, and the angle of a screw,
    unchanged.

    For example:

        angle = sensors.JointPosition("hinge")
        angles = sensors.JointPosition(["shoulder", "elbow"])
    """

    joint: str | tuple[str, ...] = eqx.field(static=True, converter=_as_joints)

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "..."]:
        return _read(motion.joint_position, self.joint)

    def nearest(
        self, model: Model, reading: Float[Array, "*n"], measured: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        library, reading, measured = _in_library(reading, measured)
        if isinstance(self.joint, tuple):
            sizes = [_joint(model, name).sizes()[0] for name in self.joint]
            parts = zip(
                self.joint,
                sizes,
                *(library.split(x, np.cumsum(sizes)[:-1], axis=-1) for x in (reading, measured)),
                strict=True,
            )
            return library.concatenate(
                [
                    JointPosition(name).nearest(model, a[..., 0], b[..., 0])[..., None]
                    if size == 1
                    else JointPosition(name).nearest(model, a, b)
                    for name, size, a, b in parts
                ],
                axis=-1,
            )
        joint = _joint(model, self.joint)
        if joint.sizes()[0] and isinstance(joint.rotation, FreeRotation):
            turned = _nearest_quaternion(reading[..., -4:], measured[..., -4:])
            return library.concatenate([reading[..., :-4], turned], axis=-1)
        periodic = np.asarray(periodic_coordinates(joint))
        # Readings of joints with one coordinate have no axis for coordinates.
        period = 2.0 * np.pi * (periodic[0] if periodic.size == 1 else periodic)
        turns = library.round((reading - measured) / (2.0 * np.pi))
        return reading - turns * library.broadcast_to(np.asarray(period, turns.dtype), turns.shape)


def _in_library(*arrays: Any) -> tuple[Any, ...]:
    """The library of arrays, and the arrays as its own."""
    library = library_of(*arrays)
    return library, *map(library.asarray, arrays)


def _read(read: Callable[[str], Array], joint: str | tuple[str, ...]) -> Float[Array, "..."]:
    """The reading of a joint, or of several joints one after another."""
    if isinstance(joint, str):
        return read(joint)
    return jnp.concatenate([jnp.atleast_1d(read(name)) for name in joint])


def _joint(model: Model, name: str) -> AbstractJoint:
    """A joint; the free joint of a floating body has the body's name."""
    joint = model.joints.get(name)
    return Free(ground, Frame(name)) if joint is None else joint


def _nearest_quaternion(
    reading: Float[Array, "*n 4"], measured: Float[Array, "*n 4"]
) -> Float[Array, "*n 4"]:
    """The quaternion of the same rotation with the length of `measured` and the nearer sign."""
    library, reading, measured = _in_library(reading, measured)
    product = library.sum(reading * measured, axis=-1, keepdims=True)
    square = library.sum(reading * reading, axis=-1, keepdims=True)
    length = library.linalg.norm(measured, axis=-1, keepdims=True)
    return reading * library.where(product < 0, -length, length) / library.sqrt(square)


class JointVelocity(AbstractKinematicSensor):
    """Velocities of a joint, or of several joints as one vector [rad/s or m/s].

    For example:

        rate = sensors.JointVelocity("hinge")
    """

    joint: str | tuple[str, ...] = eqx.field(static=True, converter=_as_joints)

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "..."]:
        return _read(motion.joint_velocity, self.joint)


class FramePosition(AbstractKinematicSensor):
    """Position in the world of a body's frame or of a marker frame, shape `(3,)` [m].

    For example:

        place = sensors.FramePosition("tip")
    """

    frame: str = eqx.field(static=True)

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "3"]:
        return motion.pose(self.frame).p


class FrameOrientation(AbstractKinematicSensor):
    """Orientation of a frame in the world as a unit quaternion `w x y z`, shape `(4,)`.

    A fit compares quaternions up to their sign and length.

    For example:

        attitude = sensors.FrameOrientation("tip")
    """

    frame: str = eqx.field(static=True)

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "4"]:
        return so3.from_matrix(motion.pose(self.frame).R)

    def nearest(
        self, model: Model, reading: Float[Array, "*n"], measured: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        return _nearest_quaternion(reading, measured)


class FrameVelocity(AbstractKinematicSensor):
    """Velocity of a frame's origin along the axes of the world, shape `(3,)` [m/s].

    For example:

        velocity = sensors.FrameVelocity("tip")
    """

    frame: str = eqx.field(static=True)

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "3"]:
        return motion.pose(self.frame).R @ motion.twist(self.frame)[:3]


class AngularVelocity(AbstractKinematicSensor):
    """Angular velocity of a frame along its own axes, shape `(3,)` [rad/s]: a gyroscope.

    For example:

        gyro = sensors.AngularVelocity("tip")
    """

    frame: str = eqx.field(static=True)

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "3"]:
        return motion.twist(self.frame)[3:]
