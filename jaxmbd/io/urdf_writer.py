"""URDF files from models."""

import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree as xml

import jax
import numpy as np

from ..bodies import MasslessLink, RigidBody
from ..errors import ModelError, NotRepresentedWarning
from ..forces import CoulombFriction, Gravity, ViscousFriction
from ..joints import Fixed, Free, Planar, Prismatic, Revolute
from ..model import Frame, Model
from ..model.frame import GROUND
from ..model.values import all_concrete, as_instance, as_path
from .urdf_parts import JointLimits
from .urdf_placement import Placement, placement_of

ROOT = "world"
KINDS = {
    Revolute: "continuous",
    Prismatic: "prismatic",
    Planar: "planar",
    Fixed: "fixed",
    Free: "floating",
}
# ROS requires limits of prismatic joints; a model has none.
FAR = 1e6
STANDARD = (0.0, 0.0, -9.81)


def to_urdf(
    model: Model,
    path: str | os.PathLike[str] | None = None,
    *,
    limits: Mapping[str, JointLimits] | None = None,
    name: str = "robot",
) -> str:
    """The URDF of a model, which `from_urdf` reads with the same motion.

    The ground is the link `"world"`. A link has the frame of the joint that carries it, so that the
    own frame of a body, if it is elsewhere, becomes the massless link `"<body> frame"`. Marker
    frames are massless links, viscous and Coulomb friction the `dynamics` of joints, couplings
    `mimic`.

    **Arguments:**

    - `path`: file to write. Default: none.
    - `limits`: `{joint: JointLimits}`. Default: no limits, of prismatic joints ±1e6 m.
    - `name`: name of the robot.

    **Returns** the XML text.

    **Warns** by `NotRepresentedWarning` of everything that affects the motion and that URDF lacks:
    other forces, another gravity than -9.81 m/s² along z, drivers and rotors.

    **Raises** `ModelError`, naming the component, for traced numbers, for bodies that are not
    rigid, for joints other than `Revolute`, `Prismatic`, `Planar`, `Fixed` and `Free`, for joints
    that close loops or point towards the ground, and for bodies without a joint.
    """
    as_instance(model, Model, "to_urdf: model", "a Model")
    if not all_concrete(model):
        raise ModelError("to_urdf: the numbers of the model are traced; call it outside jit")
    _check(model)
    robot = xml.Element("robot", name=name)
    xml.SubElement(robot, "link", name=ROOT)
    carriers = {joint.successor.body: joint for joint in model.joints.values()}
    own = {body: placement_of(joint.successor) for body, joint in carriers.items()}
    for body_name, body in model.bodies.items():
        link = xml.SubElement(robot, "link", name=body_name)
        if isinstance(body, RigidBody):
            _add_inertial(link, body, own[body_name])
        if not _is_identity(own[body_name]):
            _add_frame(robot, f"{body_name} frame", body_name, own[body_name].inverse())
    for joint_name, joint in model.joints.items():
        _add_joint(robot, joint_name, joint, own, model, (limits or {}).get(joint_name))
    for frame_name, frame in model.frames.items():
        parent, X = _in_link(frame, own)
        if frame_name != ROOT:
            _add_frame(robot, frame_name, parent, X)
        elif parent != ROOT or not _is_identity(X):  # Else it is the ground, as in most files.
            raise ModelError(f"to_urdf: {ROOT!r} names the ground in URDF; rename the frame")
    missing = list(_not_represented(model))
    if missing:
        warnings.warn(
            f"to_urdf: URDF cannot represent {', '.join(missing)}", NotRepresentedWarning, 2
        )
    xml.indent(robot)
    text = xml.tostring(robot, encoding="unicode", xml_declaration=True) + "\n"
    if path is not None:
        as_path(path, "to_urdf: path").write_text(text, encoding="utf-8")
    return text


def _check(model: Model) -> None:
    """**Raises** `ModelError` for what a tree of links cannot be."""
    for name, body in model.bodies.items():
        if not isinstance(body, RigidBody | MasslessLink):
            raise ModelError(f"to_urdf: body {name!r} is a {type(body).__name__}, not a RigidBody")
        if name == ROOT:
            raise ModelError(f"to_urdf: {name!r} names the ground in URDF; rename the body")
    carried: dict[str, str] = {}
    for name, joint in model.joints.items():
        if type(joint) not in KINDS:
            known = ", ".join(kind.__name__ for kind in KINDS)
            raise ModelError(
                f"to_urdf: joint {name!r} is a {type(joint).__name__}; URDF has {known} only"
            )
        child = joint.successor.body
        if child == GROUND:
            raise ModelError(
                f"to_urdf: joint {name!r} ends at the ground; exchange predecessor and successor"
            )
        if child in carried:
            raise ModelError(
                f"to_urdf: joints {carried[child]!r} and {name!r} both carry {child!r}; URDF "
                "describes trees, without loops"
            )
        carried[child] = name
    for name in model.bodies:
        _check_chain(model, name, carried)


def _check_chain(model: Model, body: str, carried: Mapping[str, str]) -> None:
    passed = []
    while body != GROUND:
        if body not in carried:
            raise ModelError(f"to_urdf: body {body!r} has no joint; give it a joints.Free")
        if carried[body] in passed:
            raise ModelError(f"to_urdf: joint {carried[body]!r} is part of a loop")
        passed.append(carried[body])
        body = model.joints[carried[body]].predecessor.body


def _not_represented(model: Model) -> Iterator[str]:
    """Parts of a model that affect the motion and have no element in URDF."""
    fields = [x.g for x in model.forces.values() if isinstance(x, Gravity)]
    if len(fields) != 1 or not np.allclose(fields[0], STANDARD, atol=1e-12):
        yield f"gravity other than {STANDARD} m/s²"
    for name, force in model.forces.items():
        if isinstance(force, ViscousFriction | CoulombFriction) and not _is_scalar(model, force):
            yield f"force {name!r} on a joint with several coordinates"
        elif isinstance(force, CoulombFriction):
            usual = CoulombFriction("", force.torque)
            same = jax.tree.map(np.array_equal, _without_joint(force), _without_joint(usual))
            if not all(jax.tree.leaves(same)) or force.profile is not usual.profile:
                yield f"the transition of force {name!r}"
        elif not isinstance(force, Gravity | ViscousFriction):
            yield f"force {name!r} ({type(force).__name__})"
    yield from (f"driver {name!r}" for name in model.drivers)
    yield from (f"rotor {name!r}" for name in model.rotors)


def _is_scalar(model: Model, friction: ViscousFriction | CoulombFriction) -> bool:
    return isinstance(model.joints[friction.joint.name], Revolute | Prismatic)


def _without_joint(force: CoulombFriction) -> tuple[Any, Any]:
    return force.torque, force.transition_velocity


def _add_inertial(link: xml.Element, body: Any, own: Placement) -> None:
    """Mass, centre and inertia along the axes of the link, whose frame in the body is `own`."""
    inertial = xml.SubElement(link, "inertial")
    R = own.R
    com = R.T @ (np.asarray(body.com, float) - own.p)
    J = R.T @ np.asarray(body.symmetric_inertia(), float) @ R
    xml.SubElement(inertial, "origin", xyz=_text(com), rpy="0 0 0")
    xml.SubElement(inertial, "mass", value=repr(float(body.mass)))
    entries = {f"i{a}{b}": J["xyz".index(a), "xyz".index(b)] for a, b in _PAIRS}
    xml.SubElement(inertial, "inertia", {k: repr(float(x)) for k, x in entries.items()})


_PAIRS = ("xx", "xy", "xz", "yy", "yz", "zz")


def _add_joint(
    robot: xml.Element,
    name: str,
    joint: Any,
    own: Mapping[str, Placement],
    model: Model,
    limits: JointLimits | None,
) -> None:
    kind = KINDS[type(joint)]
    bounded = limits is not None and kind == "continuous" and np.isfinite(limits.lower)
    element = xml.SubElement(robot, "joint", name=name, type="revolute" if bounded else kind)
    parent, X = _in_link(joint.predecessor, own)
    xml.SubElement(element, "parent", link=parent)
    xml.SubElement(element, "child", link=joint.successor.body)
    _add_origin(element, X)
    if kind in ("continuous", "prismatic", "planar"):
        xml.SubElement(element, "axis", xyz=_text(np.asarray(joint.axis, float)))
    if kind == "prismatic" and limits is None:
        limits = JointLimits(-FAR, FAR, FAR, FAR)
    if limits is not None and kind in ("continuous", "prismatic"):
        given = {key: repr(float(x)) for key, x in limits._asdict().items() if np.isfinite(x)}
        xml.SubElement(element, "limit", given)
    dynamics = _dynamics(model, name)
    if dynamics:
        xml.SubElement(element, "dynamics", dynamics)
    for coupling in model.couplings.values():
        if coupling.joint.name == name:
            given = {"multiplier": coupling.ratio, "offset": coupling.offset}
            numbers = {key: repr(float(x)) for key, x in given.items()}
            xml.SubElement(element, "mimic", {"joint": coupling.source.name, **numbers})


def _dynamics(model: Model, joint: str) -> dict[str, str]:
    damping = friction = 0.0
    for force in model.forces.values():
        if not isinstance(force, ViscousFriction | CoulombFriction):
            continue
        if force.joint.name != joint or not _is_scalar(model, force):
            continue
        if isinstance(force, ViscousFriction):
            damping += np.asarray(force.coefficient).item()
        else:
            friction += np.asarray(force.torque).item()
    given = {"damping": damping, "friction": friction}
    return {key: repr(x) for key, x in given.items() if x}


def _add_frame(robot: xml.Element, name: str, parent: str, X: Placement) -> None:
    """A massless link, fixed to another one."""
    xml.SubElement(robot, "link", name=name)
    joint = xml.SubElement(robot, "joint", name=f"{name} fixed", type="fixed")
    xml.SubElement(joint, "parent", link=parent)
    xml.SubElement(joint, "child", link=name)
    _add_origin(joint, X)


def _add_origin(element: xml.Element, X: Placement) -> None:
    xml.SubElement(element, "origin", xyz=_text(X.p), rpy=_text(_roll_pitch_yaw(X.R)))


def _in_link(frame: Frame, own: Mapping[str, Placement]) -> tuple[str, Placement]:
    """The link of a frame, and the placement of the frame in it."""
    if frame.body == GROUND:
        return ROOT, placement_of(frame)
    return frame.body, own[frame.body].inverse() @ placement_of(frame)


def _is_identity(X: Placement) -> bool:
    return not np.any(X.p) and not np.any(X.quat[1:])


def _roll_pitch_yaw(R: np.ndarray) -> np.ndarray:
    """Angles about the fixed x, y and z axes, in this order [rad]."""
    across = np.hypot(R[0, 0], R[1, 0])
    pitch = np.arctan2(-R[2, 0], across)
    if across < 1e-9:  # Roll and yaw turn about one axis.
        return np.array([np.arctan2(-R[1, 2], R[1, 1]), pitch, 0.0])
    return np.array([np.arctan2(R[2, 1], R[2, 2]), pitch, np.arctan2(R[1, 0], R[0, 0])])


def _text(values: Any) -> str:
    return " ".join(repr(float(x)) for x in np.asarray(values))
