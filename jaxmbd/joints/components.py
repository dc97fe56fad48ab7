"""Names and units of the coordinates and velocities of a joint."""

from typing import NamedTuple

from .abstract import AbstractJoint
from .compound import Free, Generic
from .lower_pairs import Screw
from .rotation import AbstractRotation, FreeRotation, TwoAxisRotation

XYZ = ("x", "y", "z")


class Component(NamedTuple):
    """One coordinate or velocity of a joint: `name`, empty if it is the only one, and `unit`."""

    name: str
    unit: str


def coordinate_components(joint: AbstractJoint) -> list[Component]:
    """Names and units of `q` of a joint [m, rad; "1" for quaternions], in its order."""
    if joint.sizes()[0] <= 1:
        return [Component("", unit) for unit in _units(joint)]
    displacements = [Component(name, "m") for name in _translations(joint)]
    if isinstance(joint.rotation, FreeRotation):
        rotations = [Component(name, "1") for name in ("qw", "qx", "qy", "qz")]
    else:
        rotations = [Component(name, "rad") for name in _angles(joint.rotation.nq)]
    return displacements + rotations


def velocity_components(joint: AbstractJoint) -> list[Component]:
    """Names and units of `v` of a joint [m/s, rad/s], in its order."""
    if joint.sizes()[1] <= 1:
        return [Component("", f"{unit}/s") for unit in _units(joint)]
    linear = [Component(name, "m/s") for name in _translations(joint)]
    if isinstance(joint, Free):
        linear = [Component(f"v{name}", "m/s") for name in XYZ]
    angular = [Component(name, "rad/s") for name in _angular_velocities(joint.rotation)]
    return linear + angular


def periodic_coordinates(joint: AbstractJoint) -> list[bool]:
    """For each coordinate of a joint, whether values that differ by 2π denote the same pose.

    They do not for a screw, which is displaced by whole turns, nor for components of a rotation
    vector.
    """
    nq, n_rotation = joint.sizes()[0], joint.rotation.nq
    if nq == 0 or isinstance(joint, Screw):
        return [False] * nq
    periodic = n_rotation == 1 or isinstance(joint.rotation, TwoAxisRotation)
    return [False] * (nq - n_rotation) + [periodic] * n_rotation


def _units(joint: AbstractJoint) -> list[str]:
    """Units of the coordinates of a joint with one coordinate or none."""
    if joint.sizes()[0] == 0:
        return []
    return ["rad" if joint.rotation.nq == 1 else "m"]


def _translations(joint: AbstractJoint) -> tuple[str, ...]:
    if isinstance(joint, Generic):
        return tuple(name for name in joint.free if name in XYZ)
    if len(joint.translation) == 1:
        return ("displacement",)
    return XYZ[: len(joint.translation)]


def _angles(n: int) -> tuple[str, ...]:
    return ("angle",) if n == 1 else tuple(f"angle{i + 1}" for i in range(n))


def _angular_velocities(rotation: AbstractRotation) -> tuple[str, ...]:
    if isinstance(rotation, FreeRotation):
        return tuple(f"w{name}" for name in XYZ)
    return _angles(rotation.nv)
