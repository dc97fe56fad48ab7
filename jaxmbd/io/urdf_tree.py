"""The tree of links and joints of a URDF file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from ..model.frame import GROUND
from ..model.model import unknown
from .urdf_parts import SCALAR, Joint, Link, read_joint, read_link
from .urdf_placement import Placement
from .urdf_xml import Element

Part = TypeVar("Part", Link, Joint)


@dataclass(frozen=True)
class Robot:
    """Links and joints by name; joints are in an order with parents first.

    `origin` is the placement of the root link in the world; `frames` are links that stand for it.
    """

    root: Link
    links: dict[str, Link]
    joints: dict[str, Joint]
    element: Element
    origin: Placement = field(default_factory=Placement)
    frames: tuple[str, ...] = ()


def read_robot(document: Element) -> Robot:
    """Read links and joints of a file.

    **Raises** `ModelError`, with the element, if they are not a tree, or refer to unknown ones.
    """
    if document.tag != "robot":
        raise document.error("a robot description begins with <robot>")
    for element in document.children:
        if element.tag.startswith("xacro:"):
            raise element.error("this is a xacro file; read io.expand_xacro(path) instead")
    links = _by_name(document, "link", read_link)
    joints = _by_name(document, "joint", read_joint)
    if not links:
        raise document.error("there is no link")
    above = _parents(links, joints)
    _check_mimics(joints)
    root = _root(document, links, above)
    return Robot(links[root], links, _from_root(links, joints, root), document)


def without_world(robot: Robot) -> Robot:
    """The robot whose root is the base, if the root `world` stands for the ground.

    **Raises** `ModelError`, with the element, unless `world` carries one link by a joint that a
    floating base replaces.
    """
    world = robot.root
    if world.name != "world" or not world.is_light:
        return robot
    carried = [joint for joint in robot.joints.values() if joint.parent == world.name]
    if len(carried) != 1 or carried[0].kind not in ("fixed", "floating"):
        listed = ", ".join(f"{joint.name!r} ({joint.kind})" for joint in carried) or "none"
        raise world.element.error(
            f"it stands for the ground and carries the joints {listed}; a floating base replaces "
            "one fixed or floating joint: leave floating_base out, or change these joints"
        )
    (base,) = carried
    links = {name: link for name, link in robot.links.items() if name != world.name}
    joints = {name: joint for name, joint in robot.joints.items() if joint is not base}
    frames = () if world.name == GROUND else (world.name,)
    return Robot(links[base.child], links, joints, robot.element, base.origin, frames)


def _by_name(document: Element, tag: str, read: Callable[[Element], Part]) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for element in document.all(tag):
        part = read(element)
        if part.name in parts:
            raise element.error(f"another {tag} has this name")
        parts[part.name] = part
    return parts


def _parents(links: dict[str, Link], joints: dict[str, Joint]) -> dict[str, Joint]:
    """The joint that carries each link."""
    above: dict[str, Joint] = {}
    for joint in joints.values():
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in links:
                raise joint.element.error(unknown(f"unknown {role} link", link, links))
        if joint.parent == joint.child:
            raise joint.element.error(f"it connects link {joint.child!r} to itself")
        if joint.child in above:
            raise joint.element.error(
                f"link {joint.child!r} already is the child of joint {above[joint.child].name!r}; "
                "a URDF describes trees, close the loop in the Model with a joint of jaxmbd"
            )
        above[joint.child] = joint
    return above


def _root(document: Element, links: dict[str, Link], above: dict[str, Joint]) -> str:
    roots = [name for name in links if name not in above]
    if len(roots) > 1:
        listed = ", ".join(map(repr, roots))
        raise document.error(
            f"several links are not the child of a joint: {listed}; one root is allowed"
        )
    if not roots:
        raise document.error("the joints close a loop: every link is the child of a joint")
    return roots[0]


def _from_root(links: dict[str, Link], joints: dict[str, Joint], root: str) -> dict[str, Joint]:
    below: dict[str, list[Joint]] = {name: [] for name in links}
    for joint in joints.values():
        below[joint.parent].append(joint)
    ordered: dict[str, Joint] = {}
    queue = [root]
    while queue:
        for joint in below[queue.pop()]:
            ordered[joint.name] = joint
            queue.append(joint.child)
    for joint in joints.values():
        if joint.name not in ordered:
            raise joint.element.error(f"it is part of a loop that hangs on no root like {root!r}")
    return ordered


def _check_mimics(joints: dict[str, Joint]) -> None:
    for joint in joints.values():
        seen, leader = {joint.name}, joint
        while leader.mimic is not None:
            source = leader.mimic.source
            if source not in joints:
                raise leader.element.error(unknown("it mimics the unknown joint", source, joints))
            if joints[source].kind not in SCALAR:
                raise leader.element.error(
                    f"it mimics joint {source!r}, a {joints[source].kind} joint; that joint must "
                    f"be one of {', '.join(SCALAR)}"
                )
            if source in seen:
                raise joint.element.error(f"it mimics itself, through joint {source!r}")
            seen.add(source)
            leader = joints[source]


# Links of a URDF file that move as one rigid body -------------------------------------------------

Inertia = tuple[float, np.ndarray, np.ndarray]


def combined_inertia(parts: Sequence[Inertia]) -> Inertia:
    """Mass, centre of mass, and inertia about it, of parts that move together.

    **Arguments:** `parts`: the same of each part, all along the same axes.
    """
    mass = sum((part[0] for part in parts), start=0.0)
    moments = [part[0] * part[1] for part in parts]
    com = np.sum(moments, axis=0) / mass if mass > 0.0 else np.zeros(3)
    inertia = np.zeros((3, 3))
    for own_mass, centre, own in parts:
        d = centre - com
        inertia += own + own_mass * (d @ d * np.eye(3) - np.outer(d, d))
    return mass, com, inertia


@dataclass(frozen=True)
class Lump:
    """Links that move together, each with its placement in the first one's frame."""

    links: list[Link]
    placements: list[Placement]

    @property
    def is_light(self) -> bool:
        """True if no link of the lump could move by itself."""
        return all(link.is_light for link in self.links)

    def inertia(self) -> Inertia:
        """Mass, centre of mass, and inertia about it, along the axes of the first link's frame."""
        pairs = zip(self.links, self.placements, strict=True)
        return combined_inertia(
            [(k.mass, X.apply(k.com), X.R @ k.inertia @ X.R.T) for k, X in pairs]
        )


@dataclass(frozen=True)
class Assembly:
    """Lumps by the name of their first link, the joints that carry them, and for every link its
    lump (or the ground) and its placement in the lump's frame."""

    lumps: dict[str, Lump]
    joints: list[Joint]
    places: dict[str, tuple[str, Placement]]


def lump_links(robot: Robot, floating_base: bool, merge_fixed: bool) -> Assembly:
    """Merge links that fixed joints connect into one lump, or into the ground.

    Without `merge_fixed`, only links that could not move by themselves are merged. With
    `floating_base`, the root's lump moves without a joint.
    """
    root = robot.root.name
    if GROUND in robot.links and (floating_base or root != GROUND):
        raise robot.links[GROUND].element.error(
            "this name means the world's own frame in a Model; rename the link"
        )
    base = root if floating_base else GROUND
    lumps = {base: Lump([robot.root], [Placement()])}
    places = {root: (base, Placement())}
    joints = []
    for joint in robot.joints.values():
        child = robot.links[joint.child]
        carrier, X = places[joint.parent]
        lump = lumps[carrier]
        merge = merge_fixed or child.is_light or (lump.is_light and carrier != GROUND)
        if joint.kind == "fixed" and merge:
            X = X @ joint.origin
            lump.links.append(child)
            lump.placements.append(X)
            places[child.name] = (carrier, X)
        else:
            lumps[child.name] = Lump([child], [Placement()])
            places[child.name] = (child.name, Placement())
            joints.append(joint)
    lumps.pop(GROUND, None)
    return Assembly(lumps, joints, places)


def hold_followers(robot: Robot) -> Robot:
    """Fix every joint that mimics another one at its offset."""

    def fixed(joint: Joint) -> Joint:
        if joint.mimic is None:
            return joint
        if joint.kind == "prismatic":
            moved = Placement(joint.mimic.offset * joint.axis)
        else:
            moved = Placement.about(joint.axis, joint.mimic.offset)
        origin = joint.origin @ moved
        return replace(joint, kind="fixed", origin=origin, mimic=None, damping=0.0, friction=0.0)

    joints = {name: fixed(joint) for name, joint in robot.joints.items()}
    return replace(robot, joints=joints)
