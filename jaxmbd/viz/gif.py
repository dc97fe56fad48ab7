"""Animations as GIF files: they need no widgets, no scripts and no network."""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import ModelError
from ..motion.motion import AbstractMotion
from . import meshes
from .deformed import color_range, scale_of
from .drawings import drawings
from .frame_paths import FINER as FINER_PATHS
from .frame_paths import carrier, paths_of
from .keyframes import Motion, keyframes
from .palette import palette_of
from .scene import BOXES, STEEL, Drawing, brightness
from .stage import set_stage, world_points
from .view import bounds, camera
from .visuals import Visuals, visual_points

try:
    from PIL import Image, ImageDraw
except ImportError as error:
    raise ImportError('animate needs Pillow: pip install "jaxmbd[viz]"') from error

SMOOTHING = 2  # A pixel is the mean of SMOOTHING² drawn ones.
ROOM = 0.92  # Part of the picture that the motion fills.
N_COLORS = 64
FINEST = 0.06  # Longest edge of a triangle, as a part of the extent of the picture.
MAX_FRAMES = 400
Limits = tuple[float, float] | None  # Of the values that colour a surface.


class Gif:
    """An animation: the bytes of a GIF file in `data`. Notebooks show it."""

    def __init__(self, data: bytes):
        self.data = data

    def _repr_html_(self) -> str:
        text = base64.b64encode(self.data).decode()
        return f'<img alt="animation" src="data:image/gif;base64,{text}"/>'


def gif_of_solution(
    solution: AbstractMotion,
    path: str | Path | None = None,
    *,
    fps: float | int = 20,
    speed: float | int = 1,
    scale: float | int = 1,
    trace: Sequence[str] | str = (),
    colors: Mapping[str, int | str] | None = None,
    view: Sequence[float | int] | None = None,
    size: tuple[int, int] = (400, 300),
    deformation: float | int = 1,
    contours: str | None = None,
    visuals: Visuals | None = None,
    boxes: bool = True,
    follow: str | None = None,
) -> Gif:
    """Animate a mechanism as a GIF file.

    The pictures are those of `animate_solution`, in perspective, without axes of bodies and
    names. The animation repeats without end.

    **Arguments:**

    - `path`: the file to write. Default: no file.
    - `fps`: frames per second of playing time, at most 50, and 400 frames in all.
    - `speed`: seconds of motion per second of playing time: 0.1 is slow motion.
    - `scale`: factor of the thickness of links and symbols.
    - `trace`: names of frames whose paths to draw.
    - `colors`: `{body: 0xrrggbb or "#rrggbb"}`. Default: a palette.
    - `view`: direction from the mechanism to the camera, in the world, shape `(3,)`. Default:
      roughly normal to the plane of motion.
    - `size`: width and height [pixels].
    - `deformation`: factor of the deformation of flexible bodies.
    - `contours`, `visuals`: as for `animate_solution`. Default: none.
    - `boxes`: whether to draw the boxes of equal mass and inertia.
    - `follow`: name of a frame with which the camera moves. Default: the camera stands still.

    **Returns** a `Gif`, which a notebook shows if it is the last line of a cell.

    **Raises** `KeyError` for an unknown frame or body, and `ModelError` for a batch of motions, a
    motion without a finite time, options that are not positive, and `contours` of strains or
    stresses if no body has any.
    """
    for name, value in {"fps": fps, "speed": speed, "scale": scale, "size": min(size)}.items():
        if not (np.isfinite(value) and value > 0):
            raise ModelError(f"animate: {name} must be positive, got {value}")
    mechanism = solution.system.mechanism
    delay = max(round(100.0 / fps), 2)  # Browsers play shorter delays [1/100 s] slowly.
    interval = speed * delay / 100.0
    motion = keyframes(solution, interval, deformation)
    wanted = (motion.ts[-1] - motion.ts[0]) / interval
    if wanted > MAX_FRAMES:
        raise ModelError(
            f"animate: {wanted:.0f} frames are more than {MAX_FRAMES}; multiply speed by "
            f"{wanted / MAX_FRAMES:.2g}, or lower fps"
        )
    stage = set_stage(mechanism, motion, scale, deformation)
    palette = palette_of(list(mechanism.topology.bodies[1:]), colors)
    paths = paths_of(solution, trace, interval, deformation)
    triad = 16 * stage.unit * np.eye(4)[:, :3]
    moves = _moves(solution, follow, motion, interval, deformation)
    beside = [triad, *paths.values()] if follow is None else []
    still = stage._replace(motion=motion._replace(p=motion.p - moves[:, None]))
    if follow is not None:  # The ground stays behind.
        still = still._replace(anchors=[np.zeros((0, 3)), *stage.anchors[1:]])
    seen = world_points(still, boxes), visual_points(still, visuals)
    points = np.concatenate([*seen, *beside])
    eye = eye_of(points, view, size)
    eyes = [eye._replace(position=eye.position + move) for move in moves]
    lines = [(_rgb(palette.get(carrier(mechanism, n), STEEL)), p) for n, p in paths.items()]
    limits = None if contours is None else color_range(stage.surfaces, contours)
    drawn = [
        split(drawing, points)
        for drawing in drawings(stage, solution, palette, contours, False, visuals)
        if boxes or drawing.group != BOXES
    ]
    data = _encoded(list(_pictures(drawn, lines, eyes, size, limits)), 10 * delay)
    if path is not None:
        Path(path).write_bytes(data)
    return Gif(data)


def _moves(
    solution: AbstractMotion,
    follow: str | None,
    motion: Motion,
    interval: float,
    deformation: float | int,
) -> np.ndarray:
    """Displacements of a frame from its first position to those at the keyframes, `(n, 3)` [m]."""
    if follow is None:
        return np.zeros((len(motion.ts), 3))
    p = paths_of(solution, [follow], interval, deformation, "follow")[follow]
    return p[np.minimum(FINER_PATHS * np.arange(len(motion.ts)), len(p) - 1)] - p[0]


class Eye(NamedTuple):
    """A perspective view: position [m], axes as rows, pixels by unit of tangent, the centre of the
    picture [pixels], and the smallest depth that is drawn [m]."""

    position: np.ndarray
    axes: np.ndarray
    focal: float
    centre: np.ndarray
    near: float

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels, shape `(..., 2)`, and depths [m], shape `(...)`, of points in the world."""
        local = (points - self.position) @ self.axes.T
        depth = np.maximum(-local[..., 2], 1e-9)
        aside = local[..., :2] * np.array([1.0, -1.0])
        return self.centre + self.focal * aside / depth[..., None], depth


def eye_of(points: np.ndarray, view: Sequence[float | int] | None, size: tuple[int, int]) -> Eye:
    """The camera of `animate_solution`, moved so that the points [m] fill the picture."""
    numbers = np.array(camera(*bounds(points, 0.0), view))
    position, target, up = numbers[:3], numbers[3:6], numbers[6:]
    back = (position - target) / np.linalg.norm(position - target)
    right = np.cross(up, back) / np.linalg.norm(np.cross(up, back))
    pixels = SMOOTHING * np.array(size, dtype=float)
    eye = Eye(position, np.stack([right, np.cross(back, right), back]), 1.0, np.zeros(2), 0.0)
    flat, depth = eye.project(points)
    low, high = flat.min(axis=0), flat.max(axis=0)
    focal = float(np.min(ROOM * pixels / np.maximum(high - low, 1e-9)))
    centre = pixels / 2 - focal * (low + high) / 2
    return eye._replace(focal=focal, centre=centre, near=0.5 * float(depth.min()))


def _pictures(
    drawn: list[Drawing],
    lines: list[tuple[tuple[int, int, int], np.ndarray]],
    eyes: Sequence[Eye],
    size: tuple[int, int],
    limits: Limits,
) -> Iterator[Image.Image]:
    """One picture for each keyframe and its eye."""
    for i, eye in enumerate(eyes):
        picture = Image.new("RGB", (SMOOTHING * size[0], SMOOTHING * size[1]), "white")
        draw = ImageDraw.Draw(picture, "RGBA")
        for color, points in lines:
            flat, _ = eye.project(points[: FINER_PATHS * i + 1])
            draw.line([tuple(p) for p in flat.tolist()], fill=(*color, 160), width=2 * SMOOTHING)
        paint(picture, drawn, i, eye, limits)
        yield picture.resize(size, Image.Resampling.BOX)


def paint(
    picture: Image.Image,
    drawn: Sequence[Drawing],
    i: int,
    eye: Eye,
    limits: Limits = None,
    mask: Image.Image | None = None,
) -> None:
    """Paint drawings at keyframe i, triangles from the farthest to the nearest.

    `mask`, of mode L, gets 255 where anything is painted.
    """
    if not drawn:
        return
    parts = zip(*(_triangles(drawing, i, eye, limits) for drawing in drawn), strict=True)
    flat, depth, color = (np.concatenate(x) for x in parts)
    # Most triangles of wide terrain are beside the picture.
    inside = np.all((flat.max(axis=1) >= 0) & (flat.min(axis=1) < picture.size), axis=1)
    order = np.flatnonzero(inside)[np.argsort(-depth[inside])]
    draw = ImageDraw.Draw(picture, "RGBA")
    cover = None if mask is None else ImageDraw.Draw(mask)
    corners = flat[order].reshape(-1, 6).tolist()
    for points, fill in zip(corners, map(tuple, color[order].tolist()), strict=True):
        draw.polygon(points, fill=fill)
        if cover is not None:
            cover.polygon(points, fill=255)


def split(drawing: Drawing, points: np.ndarray) -> Drawing:
    """A drawing with short triangles: the depths of long ones do not tell which is nearer.

    Those of bodies, joints and visuals are halved until they are shorter than a part of the extent
    of `points` [m]. Surfaces that deform, translucent ones and contact shapes are not changed.
    """
    if drawing.vertices is not None or drawing.opacity < 1.0:
        return drawing
    longest = FINEST * float(np.linalg.norm(np.ptp(points, axis=0)))
    return drawing._replace(mesh=meshes.divided(drawing.mesh, longest))


def _triangles(
    drawing: Drawing, i: int, eye: Eye, limits: Limits = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners [pixels], shape `(m, 3, 2)`, depths [m], and colours with opacity, shape `(m, 4)`."""
    local = drawing.mesh.vertices if drawing.vertices is None else drawing.vertices[i]
    pose = drawing.poses[min(i, len(drawing.poses) - 1)]
    corners = (local @ pose[:3, :3].T + pose[:3, 3])[drawing.mesh.triangles]
    flat, depth = eye.project(corners)
    shade = brightness(corners)
    if limits is None or drawing.values is None:
        packed = drawing.mesh.colors[drawing.mesh.triangles[:, 0]].astype(int)
        rgb = np.stack([packed >> 16 & 255, packed >> 8 & 255, packed & 255], axis=1)
    else:
        rgb = _of_values(drawing.values[i][drawing.mesh.triangles].mean(axis=1), limits)
    rgb = rgb * shade[:, None]
    opacity = np.full((len(rgb), 1), 255.0 * drawing.opacity)
    # Of a translucent mesh both sides are drawn: each has half of the opacity.
    opacity = opacity if drawing.opacity >= 1.0 else 0.5 * opacity
    colors = np.concatenate([rgb, opacity], axis=1).astype(int)
    # Terrain extends beyond the motion, also behind the camera.
    seen = depth.min(axis=1) > eye.near
    return flat[seen], depth[seen].mean(axis=1), colors[seen]


def _of_values(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Colours of the scale for `contours`, shape `(m, 3)`, up to 255."""
    scale = scale_of(limits)
    part = (values - limits[0]) / (limits[1] - limits[0])
    return 255 * np.stack([np.interp(part, scale[:, 0], scale[:, k]) for k in (1, 2, 3)], axis=1)


def _rgb(color: int) -> tuple[int, int, int]:
    return color >> 16 & 255, color >> 8 & 255, color & 255


def _encoded(pictures: list[Image.Image], delay: int) -> bytes:
    """One palette for all pictures, so that what does not move takes no space."""
    some = pictures[:: max(len(pictures) // 8, 1)]
    strip = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for row, picture in enumerate(some):
        strip.paste(picture, (0, row * picture.height))
    palette = strip.quantize(N_COLORS, dither=Image.Dither.NONE)
    frames = [p.quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures]
    buffer = io.BytesIO()
    frames[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=delay,
        loop=0,
        optimize=True,
    )
    return buffer.getvalue()
