"""Triangle meshes of the shapes in animations."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

SIDES = 16


class Mesh(NamedTuple):
    """Vertices [m], shape `(n, 3)`; triangles, shape `(m, 3)`; colours 0xrrggbb, shape `(n,)`."""

    vertices: np.ndarray
    triangles: np.ndarray
    colors: np.ndarray


def painted(vertices: np.ndarray, triangles: np.ndarray, color: int) -> Mesh:
    """A mesh of one colour."""
    return Mesh(vertices, triangles, np.full(len(vertices), color, dtype=np.uint32))


def merged(meshes: Iterable[Mesh]) -> Mesh:
    """Several meshes as one; **raises** `ValueError` for none."""
    parts = list(meshes)
    starts = np.cumsum([0, *[len(part.vertices) for part in parts[:-1]]])
    return Mesh(
        np.concatenate([part.vertices for part in parts]),
        np.concatenate([part.triangles + n for part, n in zip(parts, starts, strict=True)]),
        np.concatenate([part.colors for part in parts]),
    )


def box(size: np.ndarray, center: np.ndarray, R: np.ndarray, color: int) -> Mesh:
    """A box of edge lengths `size` along the columns of `R`."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) / 2
    faces = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    # Each face has its own corners, so that its edges are drawn sharp.
    vertices = center + (corners[np.ravel(faces)] * size) @ R.T
    halves = np.array([[0, 1, 2], [0, 2, 3]])
    triangles = (4 * np.arange(6)[:, None, None] + halves).reshape(-1, 3)
    return painted(vertices, triangles, color)


def sphere(center: np.ndarray, radius: float, color: int) -> Mesh:
    """A ball."""
    up, around = np.linspace(0, np.pi, SIDES // 2 + 1), np.linspace(0, 2 * np.pi, SIDES + 1)
    u, a = np.meshgrid(up, around, indexing="ij")
    grid = np.stack([np.sin(u) * np.cos(a), np.sin(u) * np.sin(a), np.cos(u)], axis=-1)
    return painted(center + radius * grid.reshape(-1, 3), grid_triangles(*u.shape), color)


def cylinder(
    start: np.ndarray, end: np.ndarray, radius: float, color: int, sides: int = SIDES
) -> Mesh:
    """A solid cylinder between two points."""
    axis = (end - start) / np.linalg.norm(end - start)
    R = basis(axis)
    angle = np.linspace(0, 2 * np.pi, sides + 1)
    ring = radius * (np.outer(np.cos(angle), R[:, 0]) + np.outer(np.sin(angle), R[:, 1]))
    wall = painted(np.concatenate([end + ring, start + ring]), grid_triangles(2, sides + 1), color)
    fan = np.array([[0, i + 1, i + 2] for i in range(sides)])
    top = painted(np.concatenate([end[None], end + ring]), fan, color)
    bottom = painted(np.concatenate([start[None], start + ring]), fan[:, ::-1], color)
    return merged([wall, top, bottom])


def wheel(axis: np.ndarray, radius: float, thickness: float, color: int, mark: int) -> Mesh:
    """A disc about the unit `axis` through the origin, with a bar that shows its rotation."""
    half, (across, along) = 0.5 * thickness * axis, basis(axis)[:, :2].T
    disc = cylinder(-half, half, radius, color, sides=64)
    size = np.array([1.8 * radius, 0.1 * radius, 1.4 * thickness])
    R = np.stack([across, along, axis], axis=1)
    return merged([disc, box(size, np.zeros(3), R, mark)])


def coil(radius: float, wire: float, length: float, color: int, turns: int = 8) -> Mesh:
    """A helical spring from the origin to (0, 0, 1), to be stretched along z to about `length`."""
    s = np.linspace(0, 1, 16 * turns + 1)
    angle = 2 * np.pi * turns * s
    reach = radius * np.clip(np.minimum(s, 1 - s) / 0.06, 0, 1)  # Ends lie on the axis.
    path = np.stack([reach * np.cos(angle), reach * np.sin(angle), s * length], axis=1)
    along = np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    out = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(s)], axis=1)
    side = np.cross(out, along)
    around = np.linspace(0, 2 * np.pi, 7)
    ring = np.cos(around)[:, None] * out[:, None] + np.sin(around)[:, None] * side[:, None]
    vertices = (path[:, None] + wire * ring).reshape(-1, 3) / [1.0, 1.0, length]
    return painted(vertices, grid_triangles(len(s), len(around)), color)


def triad(length: float, radius: float) -> Mesh:
    """The axes of a frame: x red, y green, z blue."""
    colors = (0xD62728, 0x2CA02C, 0x1F4FD8)
    return merged(
        cylinder(np.zeros(3), length * axis, radius, color)
        for axis, color in zip(np.eye(3), colors, strict=True)
    )


def divided(mesh: Mesh, longest: float) -> Mesh:
    """A mesh whose triangles are cut across their longest edges until these are short.

    Each triangle of the result has corners of its own.
    """
    corners, colors = mesh.vertices[mesh.triangles], mesh.colors[mesh.triangles[:, 0]]
    done, shades = [np.zeros((0, 3, 3))], [colors[:0]]
    while len(corners):
        edges = np.linalg.norm(np.roll(corners, -1, axis=1) - corners, axis=2)
        counts = np.ceil(edges.max(axis=1) / longest).astype(int)
        opposite = (np.argmin(edges, axis=1) + 2) % 3
        corners = np.take_along_axis(corners, (opposite[:, None] + np.arange(3))[..., None] % 3, 1)
        done.append(corners[counts <= 1])
        shades.append(colors[counts <= 1])
        cut = [(_strips(corners[counts == n], n), n) for n in np.unique(counts[counts > 1])]
        colors = np.concatenate(
            [colors[:0], *(colors[counts == n].repeat(2 * n - 1) for _, n in cut)]
        )
        corners = np.concatenate([corners[:0], *(x for x, _ in cut)])
    vertices = np.concatenate(done).reshape(-1, 3)
    triangles = np.arange(len(vertices)).reshape(-1, 3)
    return Mesh(vertices, triangles, np.repeat(np.concatenate(shades), 3))


def _strips(corners: np.ndarray, n: int) -> np.ndarray:
    """The parts of triangles that n cuts parallel to the edge opposite of the first corner leave.

    Shapes `(m, 3, 3)` and `(m * (2 n - 1), 3, 3)`, the parts of a triangle one after another.
    """
    apex, *ends = (corners[:, None, k] for k in range(3))
    part = (np.arange(n + 1) / n)[:, None]
    first, second = (apex + part * (end - apex) for end in ends)
    near = np.stack([first[:, :-1], first[:, 1:], second[:, 1:]], axis=2)
    far = np.stack([first[:, 1:-1], second[:, 2:], second[:, 1:-1]], axis=2)
    return np.concatenate([near, far], axis=1).reshape(-1, 3, 3)


def basis(axis: np.ndarray) -> np.ndarray:
    """A right-handed orthonormal basis, as columns, whose third vector is the unit `axis`."""
    helper = np.eye(3)[np.argmin(np.abs(axis))]
    first = np.cross(helper, axis)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(axis, first), axis], axis=1)


def grid_triangles(rows: int, columns: int) -> np.ndarray:
    """Triangles between neighbours of a grid of vertices, row by row."""
    corner = (columns * np.arange(rows - 1)[:, None] + np.arange(columns - 1)).reshape(-1, 1)
    below = corner + columns
    return np.concatenate(
        [np.hstack([corner, below, corner + 1]), np.hstack([corner + 1, below, below + 1])]
    )
