"""A plain picture of a mechanism, for places without widgets."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..motion.motion import AbstractMotion
from .drawings import drawings
from .motion import keyframes
from .palette import palette_of
from .stage import set_stage, world_points
from .view import OBLIQUE, bounds
from .visuals import Visuals

try:
    from matplotlib.colors import to_rgb
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
) -> Figure:
    """Draw the first row of a motion; see `show`."""
    mechanism = still.system.mechanism
    stage = set_stage(mechanism, keyframes(still, 1.0), scale)
    palette = palette_of(list(mechanism.topology.bodies[1:]), colors)
    figure = NotebookFigure(figsize=(7.0, 6.0), layout="constrained")
    axes = figure.add_subplot(projection="3d")
    for drawing in drawings(stage, still, palette, visuals=visuals):
        local = drawing.mesh.vertices if drawing.vertices is None else drawing.vertices[0]
        pose = drawing.poses[0]
        points = local @ pose[:3, :3].T + pose[:3, 3]
        faces = drawing.mesh.triangles
        shades = [to_rgb(f"#{c:06x}") for c in drawing.mesh.colors[faces[:, 0]]]
        axes.add_collection3d(
            Poly3DCollection(points[faces], facecolors=shades, alpha=drawing.opacity)
        )
    low, high = bounds(world_points(stage), 10 * stage.unit)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set(xlabel="x [m]", ylabel="y [m]", zlabel="z [m]")
    extents = high - low
    for axis, extent in zip((axes.xaxis, axes.yaxis, axes.zaxis), extents, strict=True):
        axis.set_major_locator(MaxNLocator(max(round(6 * extent / np.max(extents)), 2)))
    axes.set_box_aspect(extents)
    x, y, z = view
    axes.view_init(np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x)))
    return figure
