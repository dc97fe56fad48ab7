"""Geometry of a mechanism for animations: anchors of its bodies, sizes and scale."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..joints import Distance
from ..joints.rotation import FreeRotation
from ..mechanism.groups import JointGroup
from ..mechanism.mechanism import Mechanism
from .deformed import Surface, surfaces
from .keyframes import Motion


class Stage(NamedTuple):
    """A mechanism, its motion, and its geometry.

    - `anchors`: for each row of bodies the points [m], in its frame, of joints, forces and marker
      frames, shape `(k, 3)`.
    - `corners`: corners of the equivalent boxes, in the bodies' frames, shape `(n_bodies, 8, 3)`.
    - `unit`: the thickness of a link [m]; other sizes are proportional to it.
    - `surfaces`: surfaces of flexible bodies, by name.
    """

    mechanism: Mechanism
    motion: Motion
    anchors: list[np.ndarray]
    corners: np.ndarray
    unit: float
    surfaces: Mapping[str, Surface]


def set_stage(
    mechanism: Mechanism, motion: Motion, scale: float | int, deformation: float | int = 1
) -> Stage:
    """Compute the geometry of a mechanism.

    **Arguments:** `scale`: factor of the thickness of links; `deformation`: factor of the elastic
    coordinates in the surfaces of flexible bodies.
    """
    anchors = _anchors(mechanism)
    sizes, axes, coms = equivalent_boxes(mechanism)
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) / 2
    corners = coms[:, None] + np.einsum("nij,nkj->nki", axes, signs * sizes[:, None])
    stage = Stage(mechanism, motion, anchors, corners, 1.0, {})
    extents = [
        _diagonal(np.concatenate([box, points]))
        for box, points in zip(corners, anchors[1:], strict=True)
    ]
    first = Motion(*(x[:1] for x in motion))
    smallest = 0.0015 * _diagonal(world_points(stage))
    largest = max(0.01 * _diagonal(world_points(stage._replace(motion=first))), smallest)
    unit = np.clip(0.025 * float(np.median(extents)), smallest, largest)
    unit = scale * float(unit)
    return stage._replace(unit=unit, surfaces=surfaces(mechanism, motion, unit, deformation))


def world_points(stage: Stage, boxes: bool = True) -> np.ndarray:
    """Corners, anchors and vertices at all keyframes, anchors of the ground, shape `(k, 3)`.

    Without `boxes` centres of mass take the place of corners.
    """
    p, R = stage.motion.p, stage.motion.R
    clouds = [stage.anchors[0]]
    for row, (box, points) in enumerate(zip(stage.corners, stage.anchors[1:], strict=True), 1):
        local = np.concatenate([box if boxes else box.mean(axis=0, keepdims=True), points])
        clouds.append((p[:, row, None] + local @ np.swapaxes(R[:, row], 1, 2)).reshape(-1, 3))
    names = stage.mechanism.topology.bodies
    for name, surface in stage.surfaces.items():
        row = names.index(name)
        turned = surface.points @ np.swapaxes(R[:, row], 1, 2)
        clouds.append((p[:, row, None] + turned).reshape(-1, 3))
    return np.concatenate(clouds)


def equivalent_boxes(mechanism: Mechanism) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Uniform boxes with the mass and inertia of the bodies: edge lengths `(n, 3)` [m], principal
    axes as columns `(n, 3, 3)` and centres `(n, 3)` [m], in the body frames."""
    bodies = mechanism.rigid
    mass, inertia = np.asarray(bodies.mass), np.asarray(bodies.inertia)
    moments, axes = np.linalg.eigh(0.5 * (inertia + np.swapaxes(inertia, 1, 2)))
    axes[np.linalg.det(axes) < 0, :, 0] *= -1
    mass = np.where(mass > 0.0, mass, 1.0)  # The boxes of massless links have no size.
    squares = 6.0 * (moments.sum(axis=1, keepdims=True) - 2.0 * moments) / mass[:, None]
    return np.sqrt(np.maximum(squares, 0.0)), axes, np.asarray(bodies.com)


def is_free(group: JointGroup) -> bool:
    """True if nothing is drawn for the joints of a group, which constrain no position."""
    if isinstance(group.joint, Distance):  # It has six coordinates, like a free joint.
        return False
    return len(group.joint.translation) == 3 and isinstance(group.joint.rotation, FreeRotation)


def _anchors(mechanism: Mechanism) -> list[np.ndarray]:
    free = {
        row
        for group in mechanism.joints
        if is_free(group)
        for row in (*group.first.index, *group.second.index)
    }
    points = np.reshape(np.asarray(mechanism.offsets.p), (-1, 3))
    first = 1 + mechanism.n_bodies
    by_body: list[list[np.ndarray]] = [[] for _ in range(first)]
    # Without ports there is one offset, which belongs to no body.
    for port, (body, point) in enumerate(
        zip(mechanism.port_bodies.index, points, strict=False), first
    ):
        if port not in free:
            by_body[body].append(point)
    return [np.reshape(anchors, (-1, 3)) for anchors in by_body]


def _diagonal(points: np.ndarray) -> float:
    return float(np.linalg.norm(np.ptp(points, axis=0)))
