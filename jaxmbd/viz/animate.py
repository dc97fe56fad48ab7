"""Animations of mechanisms: k3d plots, and pages that need no network."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from ..motion.motion import AbstractMotion
from . import player
from .deformed import color_range, scale_of
from .drawings import drawings
from .frame_paths import carrier, paths_of
from .keyframes import keyframes
from .palette import palette_of
from .scene import BOXES, STEEL, Drawing
from .stage import Stage, set_stage, world_points
from .view import FIELD_OF_VIEW, bounds, camera
from .visuals import Visuals, visual_points

try:
    import k3d
except ImportError as error:
    raise ImportError('animate needs k3d: pip install "jaxmbd[viz]"') from error

MAX_LABELS = 8


def animate_solution(
    solution: AbstractMotion,
    path: str | Path | None = None,
    *,
    fps: float | int = 30,
    speed: float | int = 1,
    scale: float | int = 1,
    trace: Sequence[str] | str = (),
    colors: Mapping[str, int | str] | None = None,
    labels: bool | None = None,
    view: Sequence[float | int] | None = None,
    height: int = 600,
    deformation: float | int = 1,
    contours: str | None = None,
    visuals: Visuals | None = None,
    boxes: bool = True,
) -> k3d.Plot:
    """Animate a mechanism.

    A body is drawn as rods from its centre of mass to its joints, forces and marker frames, with
    its axes and, translucent, the uniform box of equal mass and inertia. Joints are dark: a pin
    along each axis of rotation, a ball, or a block without rotation; sliding joints have a rail.
    Springs are coils. Blocks mark points fixed to the ground. Shapes in contact are translucent.
    Red arrows are contact forces on the first bodies at the saved times, in length proportional to
    the square root of the force.

    A flexible body is drawn as it deforms: a beam by its section along its nodes, another one by
    its `skin`, or, if it has none, by rods from its first node to the others.

    **Arguments:**

    - `path`: file for a page (`.html`) that plays the motion in any browser, without a network.
      The space key, and the bar at its bottom, start and stop it. Default: no file.
    - `fps`: keyframes per second of playing time, at most 1800 in all.
    - `speed`: seconds of motion per second of playing time: 0.1 is slow motion.
    - `scale`: factor of the thickness of links and symbols.
    - `trace`: names of frames whose paths to draw.
    - `colors`: `{body: 0xrrggbb or "#rrggbb"}`. Default: a palette.
    - `labels`: whether to write the names of the bodies beside them. Default: for up to eight
      bodies.
    - `view`: direction from the mechanism to the camera, in the world, shape `(3,)`. Default:
      roughly normal to the plane of motion.
    - `height`: height of the plot in a notebook [pixels].
    - `deformation`: factor of the deformation of flexible bodies. Frames on them follow it. Other
      bodies do not: a joint between both is drawn open.
    - `contours`: quantity that colours flexible bodies: `"displacement"` is the size of their
      elastic displacement [m], in their frames of reference, `"strain"` the strain along the fibres
      of beams [1], and `"stress"` the equivalent stress of von Mises of bodies of `from_mesh` [Pa].
      None of them is multiplied by `deformation`. Default: the colours of the bodies.
    - `visuals`: `{frame: meshes}` of `io.urdf_visuals` or of trimesh, instead of rods and boxes of
      their bodies. Meshes of trimesh without a colour have that of their body. Default: none.
    - `boxes`: whether to draw the boxes of equal mass and inertia.

    **Returns** the `k3d.Plot`. A notebook shows it if it is the last line of a cell, with a slider
    of time in its panel under Controls, Animation.

    **Raises** `KeyError`, with the known names, for an unknown frame or body, and `ModelError` for
    a batch of motions, a motion without a finite time, and invalid options, such as `contours` of
    strains or stresses if no body has any.
    """
    _check_positive(fps=fps, speed=speed, scale=scale, deformation=deformation)
    if path is not None and Path(path).suffix.lower() not in (".html", ".htm"):
        raise ModelError(f"animate: the path must end in .html or .gif, got {str(path)!r}")
    mechanism = solution.system.mechanism
    names = list(mechanism.topology.bodies[1:])
    palette = palette_of(names, colors)
    motion = keyframes(solution, speed / fps, deformation)
    stage = set_stage(mechanism, motion, scale, deformation)
    limits = None if contours is None else color_range(stage.surfaces, contours)
    paths = paths_of(solution, trace, speed / fps, deformation)
    played = (motion.ts - motion.ts[0]) / speed
    title = "motion" if path is None else Path(path).stem
    seen = world_points(stage, boxes), visual_points(stage, visuals)
    points = np.concatenate([*seen, *paths.values()])
    plot = k3d.Plot(
        **_framing(points, 10 * stage.unit, view),
        height=height,
        fps=fps,
        name=title,
        additional_js_code=player.script(float(motion.ts[0]), float(played[-1]), speed),
    )
    for drawing in drawings(stage, solution, palette, contours, visuals=visuals):
        if boxes or drawing.group != BOXES:
            plot += _mesh(drawing, played, limits)
    for name, positions in paths.items():
        color = palette.get(carrier(mechanism, name), STEEL)
        plot += _path(name, positions, color, 0.6 * stage.unit)
    if len(names) <= MAX_LABELS if labels is None else labels:
        plot += _labels(stage, played, palette)
    if path is not None:
        page = player.titled(plot.get_snapshot(), title)
        Path(path).write_text(page, encoding="utf-8")
    return plot


def _framing(
    points: np.ndarray, margin: float, view: Sequence[float | int] | None
) -> dict[str, Any]:
    """Grid and camera for all points; k3d would fit the first keyframe only."""
    low, high = bounds(points, margin)
    return {
        "camera_auto_fit": False,
        "grid_auto_fit": False,
        "grid": [*low, *high],
        "camera": camera(low, high, view),
        "camera_fov": FIELD_OF_VIEW,
        "camera_up_axis": "z",
        "axes_helper": 0.0,
        "axes": [rf"{axis}\ \mathrm{{[m]}}" for axis in "xyz"],
    }


def _check_positive(**options: float | int) -> None:
    for name, value in options.items():
        if not (np.isfinite(value) and value > 0):
            raise ModelError(f"animate: {name} must be positive, got {value}")


def _mesh(drawing: Drawing, played: np.ndarray, limits: tuple[float, float] | None) -> Any:
    coloured: dict[str, Any] = {"colors": drawing.mesh.colors.tolist()}
    if limits is not None and drawing.values is not None:
        coloured = {
            "attribute": drawing.values[0].astype(np.float32),
            "color_map": scale_of(limits),
            "color_range": list(limits),
        }
    mesh = k3d.mesh(
        drawing.mesh.vertices.astype(np.float32),
        drawing.mesh.triangles.astype(np.uint32),
        **coloured,
        flat_shading=drawing.vertices is not None,
        opacity=drawing.opacity,
        name=drawing.name,
        group=drawing.group,
    )
    moving = len(drawing.poses) > 1
    if moving and drawing.vertices is not None:
        mesh.vertices = _series(played, drawing.vertices.astype(np.float32))
        if "attribute" in coloured and drawing.values is not None:
            mesh.attribute = _series(played, drawing.values.astype(np.float32))
    poses = drawing.poses.astype(np.float32)
    mesh.model_matrix = _series(played, poses) if moving else poses[0]
    return mesh


def _path(name: str, positions: np.ndarray, color: int, width: float) -> Any:
    vertices = positions.astype(np.float32)
    return k3d.line(vertices, color=color, width=width, name=f"path of {name}", group="paths")


def _labels(stage: Stage, played: np.ndarray, palette: Mapping[str, int]) -> Any:
    """The names of all bodies at their centres of mass, as one object."""
    positions = label_positions(stage)
    style = "text-shadow: 0 0 3px #fff, 0 0 3px #fff; margin-left: 0.8em"
    texts: Any = [
        f'<span style="color: #{color:06x}; {style}">{html.escape(name)}</span>'
        for name, color in palette.items()
    ]
    labels = k3d.text(texts, is_html=True, label_box=False, size=0.9, name="names", group="labels")
    labels.position = _series(played, positions) if len(played) > 1 else positions[0]
    return labels


def label_positions(stage: Stage) -> np.ndarray:
    """Centres of mass of all bodies at the keyframes, shape `(n, 3 n_bodies)`."""
    rows = range(1, 1 + stage.mechanism.n_bodies)
    com = np.asarray(stage.mechanism.rigid.com)
    p, R = stage.motion.p[:, rows], stage.motion.R[:, rows]
    return (p + np.einsum("nbij,bj->nbi", R, com)).reshape(len(p), -1).astype(np.float32)


def _series(played: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    return {f"{t:.6f}": value for t, value in zip(played, values, strict=True)}
