"""Names and units of the coordinates and velocities of a joint, read off its kernel."""

from typing import NamedTuple

from .abstract import AbstractJoint
from .free import Free
from .generic import Generic
from .rotation import AbstractRotation, FreeRotation, TwoAxisRotation
from .screw import Screw

XYZ = ("x", "y", "z")


class Component(NamedTuple):
    """One coordinate or velocity of a joint: `name`, empty where the joint has only one; `unit`."""

    name: str
    unit: str


def coordinate_components(joint: AbstractJoint) -> list[Component]:
    """Names and units of `q` of a joint [m, rad; "1" for quaternions], in its order."""
    if joint.sizes()[0] <= 1:
        return [Component("", unit) for unit in _units(joint)]
    moved = [Component(name, "m") for name in _along(joint)]
    if isinstance(joint.rotation, FreeRotation):
        turned = [Component(name, "1") for name in ("qw", "qx", "qy", "qz")]
    else:
        turned = [Component(name, "rad") for name in _about(joint.rotation.nq)]
    return moved + turned


def velocity_components(joint: AbstractJoint) -> list[Component]:
    """Names and units of `v` of a joint [m/s, rad/s], in its order."""
    if joint.sizes()[1] <= 1:
        return [Component("", f"{unit}/s") for unit in _units(joint)]
    linear = [Component(name, "m/s") for name in _along(joint)]
    if isinstance(joint, Free):
        linear = [Component(f"v{name}", "m/s") for name in XYZ]
    angular = [Component(name, "rad/s") for name in _turning(joint.rotation)]
    return linear + angular


def periodic_coordinates(joint: AbstractJoint) -> list[bool]:
    """For each coordinate of a joint whether whole turns of it mean nothing.

    They mean something for a screw, which moves along, and components of a rotation vector have no
    period of their own.
    """
    nq, turning = joint.sizes()[0], joint.rotation.nq
    if nq == 0 or isinstance(joint, Screw):
        return [False] * nq
    periodic = turning == 1 or isinstance(joint.rotation, TwoAxisRotation)
    return [False] * (nq - turning) + [periodic] * turning


def _units(joint: AbstractJoint) -> list[str]:
    """Units of a joint with one coordinate or none."""
    if joint.sizes()[0] == 0:
        return []
    return ["rad" if joint.rotation.nq == 1 else "m"]


def _along(joint: AbstractJoint) -> tuple[str, ...]:
    if isinstance(joint, Generic):
        return tuple(name for name in joint.free if name in XYZ)
    if len(joint.translation) == 1:
        return ("displacement",)
    return XYZ[: len(joint.translation)]


def _about(n: int) -> tuple[str, ...]:
    return ("angle",) if n == 1 else tuple(f"angle{i + 1}" for i in range(n))


def _turning(rotation: AbstractRotation) -> tuple[str, ...]:
    if isinstance(rotation, FreeRotation):
        return tuple(f"w{name}" for name in XYZ)
    return _about(rotation.nv)
