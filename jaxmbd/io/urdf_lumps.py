"""Links of a URDF file that move as one rigid body."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..model.frame import GROUND
from .urdf_parts import Joint, Link
from .urdf_placement import Placement
from .urdf_tree import Robot

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
