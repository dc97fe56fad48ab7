"""MJCF files from models."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree as xml

import jax.numpy as jnp
import numpy as np

from ..bodies import MasslessLink, RigidBody
from ..errors import ModelError, NotRepresentedWarning, warn
from ..forces import (
    AffineActuator,
    CoulombFriction,
    Gravity,
    JointStop,
    SpringDamper,
    TorsionalSpringDamper,
    ViscousFriction,
)
from ..joints import Fixed, Free, Prismatic, Revolute, Spherical
from ..lie import so3
from ..model import Frame, Model
from ..model.frame import GROUND
from ..model.values import all_concrete, as_instance, as_path
from ..signals import Constant
from .urdf_placement import Placement, placement_of

KINDS = {Revolute: "hinge", Prismatic: "slide", Spherical: "ball"}
LOOPS = {Spherical: "connect", Fixed: "weld"}
FAR = 1e6  # MuJoCo requires both limits of a joint; a model may have one.
PASSIVE = (ViscousFriction, CoulombFriction, TorsionalSpringDamper)


class WrittenMJCF(NamedTuple):
    """A model as MJCF.

    - `text`: the XML.
    - `not_represented`: parts of the model that the file lacks or that MuJoCo computes otherwise.
    """

    text: str
    not_represented: tuple[str, ...]


class _Edge(NamedTuple):
    """A joint of the tree, from a body to the next one, with its frames in both."""

    name: str
    joint: Any
    parent: str
    near: Placement
    child: str
    far: Placement
    sign: float


def to_mjcf(
    model: Model, path: str | os.PathLike[str] | None = None, *, name: str = "model"
) -> WrittenMJCF:
    """The MJCF of a model, which MuJoCo and `from_mjcf` read with the same equations of motion.

    A body has its own frame, and a joint its own coordinates; `qpos` of a free joint is the pose of
    the body. A chain of joints over bodies without mass becomes several joints of one body. Marker
    frames are sites, rotors `armature`, viscous friction `damping`, Coulomb friction
    `frictionloss`, springs on joints `stiffness`, springs between frames tendons, couplings and
    joints that close loops equality constraints, `AffineActuator` an actuator whose control is not
    stored.

    **Arguments:** `path`: file to write, default: none; `name`: name of the model in the file.

    **Returns** the XML text, and in words all that it does not represent: other forces, drivers,
    and what MuJoCo computes otherwise, such as friction and constraints, which are compliant there.

    **Warns** by `NotRepresentedWarning` of these parts.

    **Raises** `ModelError`, naming the component, for traced numbers, bodies that are not rigid,
    joints of the tree other than `Revolute`, `Prismatic`, `Spherical`, `Fixed` and `Free`, a free
    joint between two bodies, a `Spherical` or `Free` joint that points towards the ground, and
    bodies without a joint.

    For example:

        text, missing = mbd.io.to_mjcf(model)
    """
    as_instance(model, Model, "to_mjcf: model", "a Model")
    if not all_concrete(model):
        raise ModelError("to_mjcf: the numbers of the model are traced; call it outside jit")
    writer = _Writer(model)
    text = writer.written(name)
    if path is not None:
        as_path(path, "to_mjcf: path").write_text(text, encoding="utf-8")
    missing = tuple(writer.missing)
    if missing:
        warn(f"to_mjcf: the file does not represent {'; '.join(missing)}", NotRepresentedWarning)
    return WrittenMJCF(text, missing)


class _Writer:
    """The elements of a file under construction, and what they do not represent."""

    def __init__(self, model: Model):
        self.model = model
        self.missing: list[str] = []
        self.children: dict[str, list[_Edge]] = {GROUND: []}
        self.closing: dict[str, Any] = {}
        self.sites: dict[str, list[tuple[str, Placement]]] = {}
        self._check_bodies()
        self._span()
        self.carried = {edge.name: edge for edges in self.children.values() for edge in edges}

    def written(self, name: str) -> str:
        """The text of the file."""
        root = xml.Element("mujoco", model=name)
        xml.SubElement(root, "compiler", angle="radian", autolimits="true")
        gravity = [x.g for x in self.model.forces.values() if isinstance(x, Gravity)]
        total = np.sum([np.asarray(g, float) for g in gravity], axis=0) if gravity else np.zeros(3)
        xml.SubElement(root, "option", gravity=_text(total))
        for frame_name, frame in self.model.frames.items():
            self._site(frame_name, frame)
        tendons, actuators = xml.Element("tendon"), xml.Element("actuator")
        for force_name, force in self.model.forces.items():
            self._force(force_name, force, tendons, actuators)
        equality = xml.Element("equality")
        self._equalities(equality)
        world = xml.SubElement(root, "worldbody")  # Last, since all others add sites.
        self._sites(world, GROUND)
        for edge in self.children[GROUND]:
            self._body(world, edge, Placement(), [])
        root.extend(x for x in (tendons, actuators, equality) if len(x))
        xml.indent(root)
        return xml.tostring(root, encoding="unicode") + "\n"

    def _check_bodies(self) -> None:
        for name, body in self.model.bodies.items():
            if not isinstance(body, RigidBody | MasslessLink):
                raise ModelError(
                    f"to_mjcf: body {name!r} is a {type(body).__name__}, not a RigidBody"
                )
            if name == "world":
                raise ModelError("to_mjcf: 'world' names the ground in MJCF; rename the body")

    def _span(self) -> None:
        """The tree of bodies from the ground on; other joints close loops."""
        left, reached = dict(self.model.joints), [GROUND]
        while edges := [x for name, joint in left.items() for x in _leaving(name, joint, reached)]:
            # A ball joint may close a loop instead, as `connect`, and has a direction.
            edge = min(edges, key=lambda x: (isinstance(x.joint, Spherical), x.sign < 0))
            _check_edge(edge)
            del left[edge.name]
            self.children[edge.parent].append(edge)
            self.children[edge.child] = []
            reached.append(edge.child)
        self.closing = left
        lost = [name for name in self.model.bodies if name not in reached]
        if lost:
            raise ModelError(f"to_mjcf: body {lost[0]!r} has no joint; give it a joints.Free")

    def _body(
        self, parent: xml.Element, edge: _Edge, X: Placement, before: list[tuple[_Edge, Placement]]
    ) -> None:
        """A body and those after it.

        `X`: placement, at zero, of the last body in the element `parent`; `before`: joints on
        bodies without mass between the two, with their frames in that body.
        """
        step = edge.near @ edge.far.inverse()
        X = X @ step
        back = step.inverse()
        joints = [(own, back @ frame) for own, frame in before]
        if not isinstance(edge.joint, Fixed):
            joints.append((edge, edge.far))
        body = self.model.bodies[edge.child]
        after = self.children[edge.child]
        if isinstance(body, MasslessLink) and joints and len(after) == 1:
            self._body(parent, after[0], X, joints)
            if edge.child in self.sites:
                self.missing.append(f"frames on the massless link {edge.child!r}")
            return
        element = xml.SubElement(
            parent, "body", name=edge.child, pos=_text(X.p), quat=_text(X.quat)
        )
        for own, frame in joints:
            self._joint(element, own, frame)
        if isinstance(body, RigidBody):
            _add_inertial(element, body)
        self._sites(element, edge.child)
        for following in after:
            self._body(element, following, Placement(), [])

    def _joint(self, element: xml.Element, edge: _Edge, frame: Placement) -> None:
        if isinstance(edge.joint, Free):
            xml.SubElement(element, "freejoint", name=edge.name)
            if np.any(edge.near.p) or np.any(edge.near.quat[1:]) or np.any(frame.p):
                self.missing.append(f"the frames of the free joint {edge.name!r}")
            return
        given = {"name": edge.name, "type": KINDS[type(edge.joint)], "pos": _text(frame.p)}
        if not isinstance(edge.joint, Spherical):
            axis = edge.sign * frame.R @ np.asarray(edge.joint.axis, float)
            given["axis"] = _text(axis)
        numbers = self._passive(edge.name)
        given |= {key: repr(float(x)) for key, x in numbers.items()}
        for force in self.model.forces.values():
            if isinstance(force, JointStop) and force.joint.name == edge.name:
                limits = [-np.inf if force.lower is None else force.lower]
                limits += [np.inf if force.upper is None else force.upper]
                given["range"] = _text(
                    np.nan_to_num(np.asarray(limits, float), posinf=1e6, neginf=-1e6)
                )
        xml.SubElement(element, "joint", given)

    def _passive(self, joint: str) -> dict[str, float]:
        """Attributes of a joint from friction, a spring and rotors."""
        found: dict[str, float] = {}

        def add(key: str, value: Any) -> None:
            number = float(np.asarray(value).ravel()[0])
            if number:
                found[key] = found.get(key, 0.0) + number

        for force in self.model.forces.values():
            if not isinstance(force, PASSIVE) or force.joint.name != joint:
                continue
            if _reason(self.model, force):
                continue
            if isinstance(force, ViscousFriction):
                add("damping", force.coefficient)
            elif isinstance(force, CoulombFriction):
                add("frictionloss", force.torque)
            else:
                add("damping", force.damping)
                add("stiffness", force.stiffness)
                add("springref", force.rest)
        for rotor in self.model.rotors.values():
            if rotor.joint.name == joint:
                add("armature", rotor.reflected_inertia())
        return found

    def _force(self, name: str, force: Any, tendons: xml.Element, actuators: xml.Element) -> None:
        if isinstance(force, Gravity):
            return
        if isinstance(force, SpringDamper):
            self._tendon(name, force, tendons)
        elif isinstance(force, AffineActuator):
            self._actuator(name, force, actuators)
        elif isinstance(force, JointStop):
            self.missing.append(f"stiffness and damping of the stop {name!r}")
        elif isinstance(force, PASSIVE):
            reason = _reason(self.model, force)
            springs = [
                other
                for other in self.model.forces.values()
                if isinstance(other, TorsionalSpringDamper) and other.joint.name == force.joint.name
            ]
            if reason is not None:
                self.missing.append(f"force {name!r} {reason}")
            elif isinstance(force, TorsionalSpringDamper) and len(springs) > 1:
                raise ModelError(
                    f"to_mjcf: joint {force.joint.name!r} has several springs; add up their "
                    "stiffnesses in one"
                )
            elif isinstance(force, CoulombFriction):
                self.missing.append(f"the transition of force {name!r} at rest")
        else:
            self.missing.append(f"force {name!r} ({type(force).__name__})")

    def _tendon(self, name: str, force: SpringDamper, tendons: xml.Element) -> None:
        numbers = {
            "stiffness": force.stiffness,
            "damping": force.damping,
            "springlength": force.rest_length,
        }
        given = {key: repr(float(x)) for key, x in numbers.items()}
        tendon = xml.SubElement(tendons, "spatial", {"name": name, **given})
        for end, frame in (("a", force.frame_a), ("b", force.frame_b)):
            self._site(f"{name} {end}", frame)
            xml.SubElement(tendon, "site", site=f"{name} {end}")

    def _actuator(self, name: str, force: AffineActuator, actuators: xml.Element) -> None:
        if force.joint.name not in self.carried:
            self.missing.append(f"force {name!r} on a joint that closes a loop")
            return
        given = {"name": name, "joint": force.joint.name, "gear": repr(float(force.gear))}
        given |= {"gaintype": "affine", "gainprm": _text(force.gain)}
        given |= {"biastype": "affine", "biasprm": _text(force.bias)}
        for key, limits in (("ctrlrange", force.control_range), ("forcerange", force.force_range)):
            if limits is not None:
                given[key] = _text(limits)
        xml.SubElement(actuators, "general", given)
        if not (isinstance(force.signal, Constant) and float(force.signal.value) == 0.0):
            self.missing.append(f"the control of actuator {name!r}")

    def _site(self, name: str, frame: Frame) -> None:
        self.sites.setdefault(frame.body, []).append((name, placement_of(frame)))

    def _sites(self, element: xml.Element, body: str) -> None:
        for name, at in self.sites.get(body, []):
            xml.SubElement(element, "site", name=name, pos=_text(at.p), quat=_text(at.quat))

    def _equalities(self, equality: xml.Element) -> None:
        for name, coupling in self.model.couplings.items():
            polynomial = _text([float(coupling.offset), float(coupling.ratio), 0.0, 0.0, 0.0])
            given = {"joint1": coupling.joint.name, "joint2": coupling.source.name}
            xml.SubElement(equality, "joint", {"name": name, **given, "polycoef": polynomial})
            self.missing.append(f"coupling {name!r} as an exact constraint")
        for name, joint in self.closing.items():
            kind = LOOPS.get(type(joint))
            if kind is None:
                self.missing.append(f"joint {name!r} ({type(joint).__name__}), which closes a loop")
                continue
            for end, frame in (("a", joint.predecessor), ("b", joint.successor)):
                self._site(f"{name} {end}", frame)
            ends = {"site1": f"{name} a", "site2": f"{name} b"}
            xml.SubElement(equality, kind, {"name": name, **ends})
            self.missing.append(f"joint {name!r} as an exact constraint")
        self.missing += [f"driver {name!r}" for name in self.model.drivers]


def _leaving(name: str, joint: Any, reached: list[str]) -> Iterator[_Edge]:
    """The joint as an edge from a body that was reached to one that was not, if it is one."""
    ends = joint.predecessor, joint.successor
    for sign, (near, far) in ((1.0, ends), (-1.0, ends[::-1])):
        if near.body in reached and far.body not in reached:
            yield _Edge(
                name, joint, near.body, placement_of(near), far.body, placement_of(far), sign
            )


def _check_edge(edge: _Edge) -> None:
    kind = type(edge.joint)
    if kind not in (*KINDS, Fixed, Free):
        known = ", ".join(x.__name__ for x in (*KINDS, Fixed, Free))
        raise ModelError(
            f"to_mjcf: joint {edge.name!r} is a {kind.__name__}; MJCF has {known} only"
        )
    if kind is Free and edge.parent != GROUND:
        raise ModelError(
            f"to_mjcf: the free joint {edge.name!r} is between two bodies; MJCF has free joints of "
            "the ground only"
        )
    if edge.sign < 0 and kind in (Spherical, Free):
        raise ModelError(
            f"to_mjcf: joint {edge.name!r} points towards the ground; exchange predecessor and "
            "successor"
        )


def _reason(model: Model, force: Any) -> str | None:
    """The reason why an attribute of a joint cannot be a force on it, or None."""
    joint = model.joints[force.joint.name]
    if isinstance(joint, Revolute | Prismatic):
        return None
    if isinstance(force, TorsionalSpringDamper):
        return "on a joint with several coordinates"
    number = force.coefficient if isinstance(force, ViscousFriction) else force.torque
    numbers = np.ravel(np.asarray(number))
    same = isinstance(joint, Spherical) and np.all(numbers == numbers[0])
    return None if same else "on a joint with several coordinates"


def _add_inertial(element: xml.Element, body: RigidBody) -> None:
    """Mass, centre, and principal moments along axes of their own."""
    moments, axes = np.linalg.eigh(np.asarray(body.symmetric_inertia(), float))
    axes = axes * np.sign(np.linalg.det(axes))
    quat = np.asarray(so3.from_matrix(jnp.asarray(axes)), float)
    xml.SubElement(
        element,
        "inertial",
        pos=_text(body.com),
        quat=_text(quat / np.linalg.norm(quat)),
        mass=repr(float(body.mass)),
        diaginertia=_text(moments),
    )


def _text(values: Any) -> str:
    return " ".join(repr(float(x)) for x in np.asarray(values))
