"""One picture with the poses of a mechanism at several times."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import ModelError
from ..model.values import as_count
from ..motion.motion import AbstractMotion
from .drawings import drawings
from .frame_paths import carrier, paths_of
from .gif import SMOOTHING, Eye, eye_of, paint, split
from .keyframes import keyframes
from .palette import palette_of
from .scene import BOXES, STEEL, Drawing
from .stage import set_stage, world_points
from .visuals import Visuals, visual_points

try:
    from matplotlib.figure import Figure
    from PIL import Image, ImageDraw

    from .figure import NotebookFigure
except ImportError as error:
    raise ImportError('snapshots needs matplotlib: pip install "jaxmbd[viz]"') from error

FAINT = 0.3  # Opacity of all poses but one.
DPI = 100


def plot_snapshots(
    solution: AbstractMotion,
    n: int = 5,
    *,
    solid: int = -1,
    scale: float | int = 1,
    trace: Sequence[str] | str = (),
    colors: Mapping[str, int | str] | None = None,
    view: Sequence[float | int] | None = None,
    size: tuple[int, int] = (640, 480),
    deformation: float | int = 1,
    visuals: Visuals | None = None,
    boxes: bool = False,
) -> Figure:
    """Draw a mechanism at `n` equal times; see `AbstractMotion.snapshots`.

    **Raises** `KeyError` for an unknown frame or body, and `ModelError` for a batch of motions, a
    motion without a finite time, fewer than two times, and invalid options.
    """
    n = as_count(n, "snapshots: n")
    if n < 2:
        raise ModelError(f"snapshots: n must be at least 2, got {n}; `show` draws one state")
    if not (isinstance(solid, int) and -n <= solid < n):
        raise ModelError(f"snapshots: solid must be one of the {n} poses, from 0, got {solid!r}")
    for name, value in {"scale": scale, "size": min(size), "deformation": deformation}.items():
        if not (np.isfinite(value) and value > 0):
            raise ModelError(f"snapshots: {name} must be positive, got {value}")
    finite = solution.finite()
    interval = float(finite.ts[-1] - finite.ts[0]) / (n - 1) if len(finite.ts) else 1.0
    motion = keyframes(finite, interval or 1.0, deformation)
    mechanism = solution.system.mechanism
    stage = set_stage(mechanism, motion, scale, deformation)
    palette = palette_of(list(mechanism.topology.bodies[1:]), colors)
    paths = paths_of(finite, trace, interval / 8, deformation, "trace") if interval > 0 else {}
    seen = [world_points(stage, boxes), visual_points(stage, visuals), *paths.values()]
    points = np.concatenate(seen)
    drawn = [
        split(drawing, points)
        for drawing in drawings(stage, finite, palette, None, False, visuals)
        if boxes or drawing.group != BOXES
    ]
    eye = eye_of(points, view, size)
    picture = _over_one_another(drawn, eye, size, len(motion.ts), solid)
    draw = ImageDraw.Draw(picture, "RGBA")
    for name, positions in paths.items():
        color = palette.get(carrier(mechanism, name), STEEL)
        flat, _ = eye.project(positions)
        line = [tuple(p) for p in flat.tolist()]
        draw.line(line, fill=(color >> 16 & 255, color >> 8 & 255, color & 255, 160), width=4)
    return _as_figure(picture.resize(size, Image.Resampling.BOX))


def _over_one_another(
    drawn: list[Drawing], eye: Eye, size: tuple[int, int], n: int, solid: int
) -> Image.Image:
    """Faint poses above what stands still, and the solid pose above them.

    Each pose is painted by itself, so that its own hidden parts do not shine through.
    """
    pixels = SMOOTHING * size[0], SMOOTHING * size[1]
    picture = Image.new("RGB", pixels, "white")
    paint(picture, [d for d in drawn if len(d.poses) == 1], 0, eye)
    moving = [drawing for drawing in drawn if len(drawing.poses) > 1]
    order = [row for row in range(n) if row != solid % n] + [solid % n]
    for row in order:
        pose = picture.copy() if row == order[-1] else Image.new("RGB", pixels, "white")
        mask = Image.new("L", pixels, 0)
        paint(pose, moving, row, eye, mask=mask)
        opacity = 1.0 if row == order[-1] else FAINT
        picture.paste(pose, mask=mask.point(lambda x, opacity=opacity: int(opacity * x)))
    return picture


def _as_figure(picture: Image.Image) -> Figure:
    inches = picture.width / DPI, picture.height / DPI
    figure = NotebookFigure(figsize=inches, dpi=DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.imshow(np.asarray(picture), interpolation="none")
    axes.set_axis_off()
    return figure
