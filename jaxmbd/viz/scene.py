"""Meshes of an animation: the ground, bodies, joints and springs."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np

from ..forces import Contact, SpringDamper, Tyre
from ..joints import Distance, RollingDisc
from ..joints.rotation import AxisRotation, FreeRotation, TwoAxisRotation
from ..mechanism.elements import FrameElements
from ..mechanism.groups import JointGroup
from . import meshes
from .keyframes import Motion
from .meshes import Mesh
from .stage import Stage, equivalent_boxes, is_free

BOXES = "equivalent boxes"  # Their group.
TO_LIGHT = np.array([0.35, -0.6, 0.72])
IRON, STEEL, GROUND = 0x3A3A3A, 0x8C8C8C, 0xA8A29A


class Drawing(NamedTuple):
    """One mesh and its poses at the keyframes as homogeneous matrices, shape `(n, 4, 4)`; n = 1
    if it does not move.

    A mesh that deforms has its `vertices` at the keyframes, shape `(n, k, 3)`, and `values` of its
    vertices that colour it, shape `(n, k)`, or None.
    """

    name: str
    group: str
    mesh: Mesh
    poses: np.ndarray
    opacity: float = 1.0
    vertices: np.ndarray | None = None
    values: np.ndarray | None = None


def body_drawings(
    stage: Stage,
    colors: Mapping[str, int],
    contours: str | None = None,
    axes_of_bodies: bool = True,
    hidden: Collection[str] = (),
) -> Iterator[Drawing]:
    """For each rigid body: rods from its centre of mass to its anchors, its axes, and its box.

    For each flexible body: its surface and its axes. Axes are drawn if `axes_of_bodies`. Bodies
    that are `hidden` are left out.
    """
    mechanism, unit = stage.mechanism, stage.unit
    sizes, axes, coms = equivalent_boxes(mechanism)
    names = mechanism.topology.bodies[1:]
    for row, name in enumerate(names, 1):
        com, color = coms[row - 1], colors[name]
        if name in hidden:
            continue
        if name in stage.surfaces:
            yield from _flexible(stage, row, name, color, contours, axes_of_bodies)
            continue
        parts = [meshes.sphere(com, 1.6 * unit, color)]
        if axes_of_bodies:
            parts.append(meshes.triad(8 * unit, 0.35 * unit))
        for point in stage.anchors[row]:
            if np.linalg.norm(point - com) > 0.1 * unit:
                parts.append(meshes.cylinder(com, point, unit, color))
        poses = port_poses(stage.motion, row)
        yield Drawing(name, "bodies", meshes.merged(parts), poses)
        size = np.maximum(sizes[row - 1], 2.4 * unit)
        box = meshes.box(size, com, axes[row - 1], color)
        yield Drawing(f"{name} box", BOXES, box, poses, opacity=0.35)


def _flexible(
    stage: Stage, row: int, name: str, color: int, contours: str | None, axes: bool
) -> Iterator[Drawing]:
    surface, poses = stage.surfaces[name], port_poses(stage.motion, row)
    if axes:
        triad = meshes.triad(8 * stage.unit, 0.35 * stage.unit)
        yield Drawing(f"{name} axes", "bodies", triad, poses)
    if not surface.triangles.size:
        return
    mesh = meshes.painted(surface.points[0], surface.triangles, color)
    values = surface.values(contours)
    yield Drawing(name, "bodies", mesh, poses, vertices=surface.points, values=values)


def ground_drawings(stage: Stage) -> Iterator[Drawing]:
    """The axes of the world, and a block at each anchor of the ground."""
    unit = stage.unit
    identity = np.eye(4)[None]
    yield Drawing("world", "ground", meshes.triad(16 * unit, 0.5 * unit), identity)
    blocks = [
        meshes.box(np.full(3, 5 * unit), point, np.eye(3), GROUND) for point in stage.anchors[0]
    ]
    if blocks:
        yield Drawing("ground", "ground", meshes.merged(blocks), identity, opacity=0.6)


def joint_drawings(stage: Stage) -> Iterator[Drawing]:
    """For each joint a symbol on its successor, and a rail on its predecessor if it slides.

    The symbol of a rolling disc is the disc, that of a distance a rod between two balls.
    """
    for group in stage.mechanism.joints:
        if isinstance(group.joint, RollingDisc):  # It has six coordinates, like a free joint.
            yield from _wheels(stage, group, group.joint)
            continue
        if isinstance(group.joint, Distance):
            yield from _links(stage, group)
            continue
        if is_free(group):
            continue
        bases = np.asarray(jax.vmap(lambda joint: joint.basis())(group.joint))
        rows = zip(group.names, bases, group.first.index, group.second.index, strict=True)
        for name, E, first, second in rows:
            symbol = _joint_symbol(group, E, stage.unit)
            yield Drawing(name, "joints", symbol, port_poses(stage.motion, second))
            for i in group.joint.translation:
                rail = _rail(stage, E[:, i], first, second)
                yield Drawing(f"{name} rail", "joints", rail, port_poses(stage.motion, first))


def _wheels(stage: Stage, group: JointGroup, discs: RollingDisc) -> Iterator[Drawing]:
    axes, radii = np.asarray(discs.axis), np.asarray(discs.radius)
    for name, axis, radius, port in zip(group.names, axes, radii, group.second.index, strict=True):
        unit_axis = axis / np.linalg.norm(axis)
        mesh = meshes.wheel(unit_axis, float(radius), 0.8 * stage.unit, STEEL, IRON)
        yield Drawing(name, "joints", mesh, port_poses(stage.motion, port), opacity=0.7)


def _links(stage: Stage, group: JointGroup) -> Iterator[Drawing]:
    z, unit = np.eye(3)[2], stage.unit
    rows = zip(group.names, group.first.index, group.second.index, strict=True)
    for name, first, second in rows:
        poses = _stretched(stage.motion.p[:, first], stage.motion.p[:, second], unit)
        length = float(np.linalg.norm(poses[0, :3, 2]))
        balls = [meshes.sphere(at * length * z, 2.0 * unit, IRON) for at in (0.0, 1.0)]
        rod = meshes.merged([meshes.cylinder(np.zeros(3), length * z, unit, STEEL), *balls])
        mesh = rod._replace(vertices=rod.vertices / [1.0, 1.0, length])
        yield Drawing(name, "joints", mesh, poses)


def _joint_symbol(group: JointGroup, E: np.ndarray, unit: float) -> Mesh:
    """A pin for each free axis, a ball for free rotation, a block without rotation; in frame M."""
    rotation, half = group.joint.rotation, 4.0 * unit
    if isinstance(rotation, FreeRotation):
        return meshes.sphere(np.zeros(3), 2.8 * unit, IRON)
    if isinstance(rotation, AxisRotation):
        return meshes.cylinder(-half * E[:, 2], half * E[:, 2], 2.0 * unit, IRON)
    if isinstance(rotation, TwoAxisRotation):
        pins = (meshes.cylinder(-half * e, half * e, 1.4 * unit, IRON) for e in E[:, :2].T)
        return meshes.merged(pins)
    return meshes.box(np.full(3, 4.0 * unit), np.zeros(3), E, IRON)


def _rail(stage: Stage, axis: np.ndarray, first: int, second: int) -> Mesh:
    """A rod along `axis`, in the frame F, over the range of the joint's motion."""
    p, R = stage.motion.p, stage.motion.R
    relative = np.einsum("nji,nj->ni", R[:, first], p[:, second] - p[:, first])
    moved = relative @ axis
    start, end = min(moved.min(), 0.0) - 6 * stage.unit, max(moved.max(), 0.0) + 6 * stage.unit
    return meshes.cylinder(start * axis, end * axis, 0.7 * stage.unit, STEEL)


def spring_drawings(stage: Stage) -> Iterator[Drawing]:
    """A coil for each spring, a line for every other force between two frames."""
    for group in stage.mechanism.elements:
        if not isinstance(group, FrameElements) or len(group.ports) != 2:
            continue
        if isinstance(group.element, Contact | Tyre):
            continue
        pairs = zip(group.names, *(rows.index for rows in group.ports), strict=True)
        for name, first, second in pairs:
            poses = _stretched(stage.motion.p[:, first], stage.motion.p[:, second], stage.unit)
            length = float(np.median(np.linalg.norm(poses[:, :3, 2], axis=1)))
            if isinstance(group.element, SpringDamper):
                mesh = meshes.coil(2.6 * stage.unit, 0.45 * stage.unit, length, STEEL)
            else:
                mesh = meshes.cylinder(np.zeros(3), np.eye(3)[2], 0.45 * stage.unit, STEEL)
            yield Drawing(name, "springs", mesh, poses)


def _stretched(start: np.ndarray, end: np.ndarray, unit: float) -> np.ndarray:
    """Matrices that map the unit z axis to the line from `start` to `end`, without spin."""
    step = end - start
    length = np.linalg.norm(step, axis=1)
    poses = np.tile(np.eye(4), (len(start), 1, 1))
    direction, side = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
    for pose, a, d, L in zip(poses, start, step, length, strict=True):
        direction = d / L if 1e-3 * unit < L else direction
        across = side - (side @ direction) * direction
        if np.linalg.norm(across) < 1e-6:
            across = meshes.basis(direction)[:, 0]
        side = across / np.linalg.norm(across)
        pose[:3, 0], pose[:3, 1] = side, np.cross(direction, side)
        pose[:3, 2], pose[:3, 3] = max(L, 0.1 * unit) * direction, a
    return poses


def brightness(faces: np.ndarray) -> np.ndarray:
    """Part of the light that triangles reflect, shape `(m, 3, 3)` [m]: from 0.55 to 1."""
    light = TO_LIGHT / np.linalg.norm(TO_LIGHT)
    normal = np.cross(faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0])
    length = np.linalg.norm(normal, axis=1)
    return 0.55 + 0.45 * np.abs(normal @ light) / np.where(length > 0.0, length, 1.0)


def port_poses(motion: Motion, port: int) -> np.ndarray:
    """Homogeneous matrices of a port at the keyframes."""
    poses = np.tile(np.eye(4), (len(motion.ts), 1, 1))
    poses[:, :3, :3], poses[:, :3, 3] = motion.R[:, port], motion.p[:, port]
    return poses
