"""Everything that a picture of a mechanism draws as a mesh."""

from collections.abc import Collection, Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..contact import AbstractShape, Box, Capsule, Cylinder, Disc, HalfSpace, Sphere, Terrain
from ..forces import Contact, Tyre
from ..mechanism.elements import FrameElements
from ..motion.motion import AbstractMotion
from ..system.abstract import State
from ..system.loads import contacts, tyre_contacts
from . import meshes
from .meshes import Mesh
from .scene import (
    GROUND,
    STEEL,
    Drawing,
    body_drawings,
    ground_drawings,
    joint_drawings,
    port_poses,
    spring_drawings,
)
from .stage import Stage, world_points
from .visuals import Visuals, visual_bodies, visual_drawings


def drawings(
    stage: Stage,
    solution: AbstractMotion,
    palette: Mapping[str, int],
    contours: str | None = None,
    axes_of_bodies: bool = True,
    visuals: Visuals | None = None,
) -> Iterator[Drawing]:
    """Everything that is drawn as a mesh, with its poses at the keyframes of the stage.

    Bodies with visuals are drawn by these, without rods, boxes and shapes of contacts.
    """
    hidden = visual_bodies(stage.mechanism, visuals) if visuals else set()
    yield from ground_drawings(stage)
    yield from body_drawings(stage, palette, contours, axes_of_bodies, hidden)
    if visuals:
        yield from visual_drawings(stage, visuals, palette)
    yield from joint_drawings(stage)
    yield from spring_drawings(stage)
    yield from contact_drawings(stage, solution, hidden - {"ground"})


# Shapes and forces of contacts and tyres in animations --------------------------------------------

FORCE = 0xD62728
PATCH = 41  # Vertices along a side of a drawn surface.
SIDES = {Contact: ("shape_a", "shape_b"), Tyre: ("wheel", "road")}
LONGEST = 0.25  # Longest arrow, as a part of the extent of the motion.


def contact_drawings(
    stage: Stage, solution: AbstractMotion, hidden: Collection[str] = ()
) -> Iterator[Drawing]:
    """Each shape once, and an arrow at each point of contact where there is a force.

    Shapes on bodies that are `hidden` are left out. Tyres have one arrow each, from the road along
    the total force on the wheel.
    """
    drawn: set[tuple] = set()
    for group in stage.mechanism.elements:
        sides = next((x for kind, x in SIDES.items() if isinstance(group.element, kind)), None)
        if sides is None or not isinstance(group, FrameElements):
            continue
        for row, name in enumerate(group.names):
            element = jax.tree.map(lambda x, row=row: np.asarray(x[row]), group.element)
            for side, rows in zip(sides, group.ports, strict=True):
                shape, port = getattr(element, side), rows.index[row]
                key = _identity(stage, shape, port)
                of = stage.mechanism.topology.bodies[key[1]]
                mesh = None if key in drawn or of in hidden else _mesh(stage, shape, port)
                drawn.add(key)
                if mesh is not None:
                    poses = port_poses(stage.motion, port)
                    yield Drawing(f"{name}.{side}", "contact shapes", mesh, poses, opacity=0.5)
    if drawn:
        yield from _arrows(stage, solution)


def _identity(stage: Stage, shape: AbstractShape, port: int) -> tuple:
    """A key that shapes of several contacts share if they are the same."""
    body = stage.mechanism.port_bodies.index[port - 1 - stage.mechanism.n_bodies]
    leaves = tuple(np.asarray(x).tobytes() for x in jax.tree.leaves(shape))
    return type(shape).__name__, body, leaves


def _mesh(stage: Stage, shape: AbstractShape, port: int) -> Mesh | None:
    """A shape in its frame; None for shapes of other kinds than those of this package."""
    z = np.eye(3)[2]
    if isinstance(shape, Sphere):
        return meshes.sphere(np.zeros(3), float(shape.radius), STEEL)
    if isinstance(shape, Box):
        return meshes.box(np.asarray(shape.size), np.zeros(3), np.eye(3), STEEL)
    if isinstance(shape, Disc):
        return meshes.wheel(z, float(shape.radius), 0.4 * stage.unit, STEEL, 0x3A3A3A)
    if isinstance(shape, Cylinder | Capsule):
        half = 0.5 * float(shape.length) * z
        tube = meshes.cylinder(-half, half, float(shape.radius), STEEL)
        if isinstance(shape, Cylinder):
            return tube
        balls = [meshes.sphere(s * half, float(shape.radius), STEEL) for s in (-1.0, 1.0)]
        return meshes.merged([tube, *balls])
    if isinstance(shape, HalfSpace | Terrain):
        return _surface(stage, shape, port)
    return None


def _surface(stage: Stage, shape: HalfSpace | Terrain, port: int) -> Mesh:
    """A patch of a half space or of terrain below the motion."""
    motion = stage.motion
    points = motion.p[:, 1 : 1 + stage.mechanism.n_bodies] - motion.p[:, port, None]
    local = np.einsum("tbi,tij->tbj", points, motion.R[:, port]).reshape(-1, 3)
    low, high = local.min(axis=0)[:2], local.max(axis=0)[:2]
    size = np.max(np.linalg.norm(stage.corners, axis=2))
    margin = 0.2 * np.max(high - low) + 2.0 * size
    x, y = np.meshgrid(
        *(np.linspace(a - margin, b + margin, PATCH) for a, b in zip(low, high, strict=True)),
        indexing="ij",
    )
    z = np.zeros_like(x)
    if isinstance(shape, Terrain):
        height = shape.height
        at = jnp.asarray(x.ravel()), jnp.asarray(y.ravel())
        heights, covered = jax.jit(jax.vmap(lambda x, y: (height(x, y), height.covers(x, y))))(*at)
        z = np.where(np.asarray(covered), np.asarray(heights), 0.0).reshape(x.shape)
    vertices = np.stack([x, y, z], axis=-1).reshape(-1, 3)
    return meshes.painted(vertices, meshes.grid_triangles(PATCH, PATCH), GROUND)


def _arrows(stage: Stage, solution: AbstractMotion) -> Iterator[Drawing]:
    """Arrows from the points of contact along the forces on the first bodies."""

    def places(t: Array, y: State) -> dict[str, tuple[Array, Array]]:
        """Positions and forces, by name, shape `(k, 3)` each."""
        touching = contacts(solution.system, t, y).items()
        rolling = tyre_contacts(solution.system, t, y).items()
        found = {name: (points.position, points.force) for name, points in touching}
        return found | {name: (x.position[None], x.force[None]) for name, x in rolling}

    found = jax.vmap(places)(solution.ts, solution.states)
    ts = np.asarray(solution.ts)
    rows = np.clip(np.searchsorted(ts, stage.motion.ts - 1e-9), 0, len(ts) - 1)
    sizes = [np.linalg.norm(np.asarray(force), axis=-1) for _, force in found.values()]
    largest = max(float(np.nanmax(size, initial=0.0)) for size in sizes)
    if not largest > 0:
        return
    p = stage.motion.p[:, 1 : 1 + stage.mechanism.n_bodies]
    first = stage._replace(motion=type(stage.motion)(*(x[:1] for x in stage.motion)))
    own = float(np.linalg.norm(np.ptp(world_points(first)[len(stage.anchors[0]) :], axis=0)))
    # A mechanism that goes far does not get longer arrows. Forces differ by orders of magnitude
    # between impact and rest.
    extent = min(float(np.max(np.ptp(p, axis=(0, 1)))), 2.0 * own)
    longest = max(LONGEST * extent, 10 * stage.unit)
    mesh = _arrow(stage.unit)
    for (name, (position, force_on)), size in zip(found.items(), sizes, strict=True):
        for k in range(size.shape[1]):
            force = np.asarray(force_on)[rows, k]
            length = longest * np.sqrt(np.nan_to_num(size[rows, k]) / largest)
            poses = _along(np.nan_to_num(force), length, np.asarray(position)[rows, k])
            yield Drawing(f"{name} force {k}", "contact forces", mesh, poses)


def _arrow(unit: float) -> Mesh:
    """An arrow from the origin to (0, 0, 1), to be stretched along z."""
    z = np.eye(3)[2]
    shaft = meshes.cylinder(np.zeros(3), 0.85 * z, 0.4 * unit, FORCE)
    return meshes.merged([shaft, meshes.cylinder(0.85 * z, z, 0.9 * unit, FORCE)])


def _along(force: np.ndarray, length: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Matrices that map the unit z axis to the arrows; a point where there is no force."""
    poses = np.zeros((len(force), 4, 4))
    poses[:, 3, 3], poses[:, :3, 3] = 1.0, np.nan_to_num(start)
    for pose, f, L in zip(poses, force, length, strict=True):
        size = np.linalg.norm(f)
        if size > 0 and L > 0:
            basis = meshes.basis(f / size)
            pose[:3, :2], pose[:3, 2] = basis[:, :2], L * basis[:, 2]
        else:
            pose[:3, :3] = 1e-9 * np.eye(3)
    return poses
