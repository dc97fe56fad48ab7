"""Links of a URDF file that move as one rigid body."""

from dataclasses import dataclass, replace

import numpy as np

from ..model.frame import GROUND
from .urdf_parts import Joint, Link
from .urdf_placement import Placement
from .urdf_tree import Robot


@dataclass(frozen=True)
class Lump:
    """Links that move together, each with its placement in the first one's frame."""

    links: list[Link]
    placements: list[Placement]

    @property
    def is_light(self) -> bool:
        """Whether none of its links could move by itself."""
        return all(link.is_light for link in self.links)

    def inertia(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Mass, centre of mass, and inertia about it, along the axes of the first link's frame."""
        mass = sum((link.mass for link in self.links), start=0.0)
        centres = [X.apply(k.com) for k, X in zip(self.links, self.placements, strict=True)]
        moments = [k.mass * c for k, c in zip(self.links, centres, strict=True)]
        com = np.sum(moments, axis=0) / mass if mass > 0.0 else np.zeros(3)
        inertia = np.zeros((3, 3))
        for link, X, centre in zip(self.links, self.placements, centres, strict=True):
            d = centre - com
            inertia += X.R @ link.inertia @ X.R.T
            inertia += link.mass * (d @ d * np.eye(3) - np.outer(d, d))
        return mass, com, inertia


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
    return Robot(robot.root, robot.links, joints, robot.element)
