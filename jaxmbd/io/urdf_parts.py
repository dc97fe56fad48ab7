"""Links and joints of a URDF file, each checked by itself."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .urdf_placement import Placement
from .urdf_xml import Element

# The joints that move along or about their axis, by one coordinate.
SCALAR = ("revolute", "continuous", "prismatic")
KINDS = (*SCALAR, "fixed", "floating", "planar")


class JointLimits(NamedTuple):
    """Bounds `lower` and `upper` of a joint's coordinate [rad or m], and largest `effort` [N m or
    N] and `velocity` [rad/s or m/s] of its drive; infinite without a limit."""

    lower: float
    upper: float
    effort: float
    velocity: float


class Mimic(NamedTuple):
    """A coordinate that follows another: q = `multiplier` q_`source` + `offset` [rad or m]."""

    source: str
    multiplier: float
    offset: float


class Transmission(NamedTuple):
    """A transmission: names of its `joint` and `actuator`, its `reduction`, the ratio of the speed
    of the actuator to that of the joint, and the `kind`, such as "SimpleTransmission"."""

    joint: str
    actuator: str
    reduction: float
    kind: str


@dataclass(frozen=True)
class Link:
    """Mass [kg], centre of mass [m] and inertia about it [kg m²], along the link frame's axes."""

    name: str
    mass: float
    com: np.ndarray
    inertia: np.ndarray
    element: Element

    @property
    def is_light(self) -> bool:
        """True if the link lacks the mass or the inertia to move by itself."""
        return self.mass == 0.0 or not np.any(self.inertia)


@dataclass(frozen=True)
class Joint:
    """A joint; `origin` is the placement of its frame, and at zero of its child, in the parent."""

    name: str
    kind: str
    parent: str
    child: str
    origin: Placement
    axis: np.ndarray
    limits: JointLimits | None
    mimic: Mimic | None
    damping: float
    friction: float
    element: Element


def read_link(element: Element) -> Link:
    """Read a link; a link without `<inertial>` has no mass."""
    name = element.text("name")
    inertial = element.child("inertial")
    if inertial is None:
        return Link(name, 0.0, np.zeros(3), np.zeros((3, 3)), element)
    mass = inertial.required("mass").number("value")
    if mass < 0.0:
        raise inertial.error(f"mass must not be negative, got {mass}")
    entry = inertial.required("inertia").number
    xx, xy, xz, yy, yz, zz = (entry(name) for name in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
    origin = read_origin(inertial)
    R = origin.R
    inertia = R @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ R.T
    return Link(name, mass, origin.p, inertia, element)


def read_joint(element: Element) -> Joint:
    """Read a `<joint>` element of a URDF file."""
    name, kind = element.text("name"), element.text("type")
    if kind not in KINDS:
        raise element.error(f"unknown type {kind!r}; known are {', '.join(KINDS)}")
    damping, friction = _read_dynamics(element, kind)
    return Joint(
        name=name,
        kind=kind,
        parent=element.required("parent").text("link"),
        child=element.required("child").text("link"),
        origin=read_origin(element),
        axis=_read_axis(element, kind),
        limits=_read_limits(element, kind),
        mimic=_read_mimic(element, kind),
        damping=damping,
        friction=friction,
        element=element,
    )


def read_transmission(element: Element) -> Transmission:
    """Read a transmission with one joint and one actuator, of ROS 1 or 2.

    **Raises** `ModelError` for several joints or actuators, which are a differential.
    """
    for tag in ("joint", "actuator"):
        if len(element.all(tag)) != 1:
            raise element.error(f"one <{tag}> is supported, got {len(element.all(tag))}")
    joint, actuator = element.required("joint"), element.required("actuator")
    ratios = []
    for part in (joint, actuator, element):
        for tag in ("mechanicalReduction", "mechanical_reduction"):
            ratios += [x.content_number() for x in part.all(tag)]
    if len(ratios) > 1:
        raise element.error("the mechanical reduction is given twice")
    kind = element.child("type")
    name = element.attributes.get("type", "") if kind is None else kind.content
    plugin = element.child("plugin")
    name = plugin.content if not name and plugin is not None else name
    return Transmission(
        joint.text("name"), actuator.text("name"), (ratios or [1.0])[0], name.rpartition("/")[2]
    )


def read_origin(element: Element) -> Placement:
    """The `<origin>` of an inertial or a joint. Default: no displacement."""
    origin = element.child("origin")
    if origin is None:
        return Placement()
    return Placement.from_rpy(origin.vector("xyz"), origin.vector("rpy"))


def _read_axis(element: Element, kind: str) -> np.ndarray:
    axis = element.child("axis")
    if axis is None or kind in ("fixed", "floating"):
        return np.array([1.0, 0.0, 0.0])  # Exporters write zeros if the axis has no meaning.
    direction = axis.vector("xyz")
    length = np.linalg.norm(direction)
    if length == 0.0:
        raise axis.error("xyz must not be the zero vector")
    return direction / length


def _read_limits(element: Element, kind: str) -> JointLimits | None:
    if kind not in SCALAR:
        return None
    limit = element.child("limit")
    if kind == "continuous":
        effort = math.inf if limit is None else limit.limit("effort", math.inf)
        velocity = math.inf if limit is None else limit.limit("velocity", math.inf)
        return JointLimits(-math.inf, math.inf, effort, velocity)
    if limit is None:
        raise element.error(f"a {kind} joint needs a <limit>")
    lower, upper = limit.limit("lower", 0.0), limit.limit("upper", 0.0)
    if lower > upper:
        raise limit.error(f"lower is above upper: {lower} > {upper}")
    return JointLimits(lower, upper, limit.limit("effort"), limit.limit("velocity"))


def _read_mimic(element: Element, kind: str) -> Mimic | None:
    mimic = element.child("mimic")
    if mimic is None or kind == "fixed":  # A fixed joint cannot follow another one.
        return None
    if kind not in SCALAR:
        raise mimic.error(f"a {kind} joint cannot follow another one")
    return Mimic(mimic.text("joint"), mimic.number("multiplier", 1.0), mimic.number("offset", 0.0))


def _read_dynamics(element: Element, kind: str) -> tuple[float, float]:
    dynamics = element.child("dynamics")
    if dynamics is None or kind == "fixed":
        return 0.0, 0.0
    damping, friction = dynamics.number("damping", 0.0), dynamics.number("friction", 0.0)
    for name, value in (("damping", damping), ("friction", friction)):
        if value < 0.0:
            raise dynamics.error(f"{name} must not be negative, got {value}")
        if value > 0.0 and kind not in SCALAR:
            raise dynamics.error(f"{name} has no meaning for a {kind} joint")
    return damping, friction
