"""A plain picture of a mechanism, for places without widgets."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..motion.motion import AbstractMotion
from .drawings import drawings
from .keyframes import keyframes
from .palette import palette_of
from .scene import BOXES, Drawing, brightness
from .stage import set_stage, world_points
from .view import OBLIQUE, bounds
from .visuals import Visuals, visual_points

try:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    from .figure import NotebookFigure
except ImportError as error:
    raise ImportError('show needs matplotlib: pip install "jaxmbd[viz]"') from error


def plot_picture(
    still: AbstractMotion,
    *,
    scale: float = 1.0,
    colors: Mapping[str, int | str] | None = None,
    view: Sequence[float] = OBLIQUE,
    visuals: Visuals | None = None,
    boxes: bool = True,
) -> Figure:
    """Draw the first row of a motion; see `show`."""
    mechanism = still.system.mechanism
    stage = set_stage(mechanism, keyframes(still, 1.0), scale)
    palette = palette_of(list(mechanism.topology.bodies[1:]), colors)
    figure = NotebookFigure(figsize=(7.0, 6.0), layout="constrained")
    axes = figure.add_subplot(projection="3d")
    faces, shades = [], []
    for drawing in drawings(stage, still, palette, visuals=visuals):
        if drawing.group == BOXES and not boxes:
            continue
        local = drawing.mesh.vertices if drawing.vertices is None else drawing.vertices[0]
        pose = drawing.poses[0]
        points = local @ pose[:3, :3].T + pose[:3, 3]
        faces.append(points[drawing.mesh.triangles])
        shades.append(_shaded(drawing, faces[-1]))
    # One collection: matplotlib sorts the triangles of each by depth.
    axes.add_collection3d(
        Poly3DCollection(np.concatenate(faces), facecolors=np.concatenate(shades))
    )
    seen = np.concatenate([world_points(stage, boxes), visual_points(stage, visuals)])
    low, high = bounds(seen, 10 * stage.unit)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]")
    extents = high - low
    for axis, extent in zip((axes.xaxis, axes.yaxis, axes.zaxis), extents, strict=True):
        axis.set_major_locator(MaxNLocator(max(round(6 * extent / np.max(extents)), 2)))
    axes.set_box_aspect(extents)
    x, y, z = view
    axes.view_init(np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x)))
    return figure


def _shaded(drawing: Drawing, faces: np.ndarray) -> np.ndarray:
    """Red, green, blue and opacity of triangles, up to 1, shape `(m, 4)`."""
    packed = drawing.mesh.colors[drawing.mesh.triangles[:, 0]].astype(int)
    rgb = np.stack([packed >> 16 & 255, packed >> 8 & 255, packed & 255], axis=1) / 255
    opacity = np.full((len(rgb), 1), drawing.opacity)
    return np.concatenate([rgb * brightness(faces)[:, None], opacity], axis=1)
