"""Visual geometry of links, such as of a URDF file, in pictures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from ..mechanism.mechanism import Mechanism
from ..model.model import unknown
from .frame_paths import carrier
from .meshes import Mesh, painted
from .scene import STEEL, Drawing, port_poses
from .stage import Stage

Visuals = Mapping[str, Sequence[Any]]


def ports_of(mechanism: Mechanism, visuals: Visuals, caller: str) -> dict[str, int]:
    """Rows of the frames that have visuals; **raises** `KeyError` for an unknown frame.

    Links on the ground that are not frames of the mechanism are left out.
    """
    names = mechanism.port_names
    known = {name: row for row, name in enumerate(names) if name is not None}
    for name in visuals:
        if name not in known:
            raise KeyError(unknown(f"{caller}: visuals: unknown frame", name, known))
    return {name: known[name] for name in visuals}


def visual_bodies(mechanism: Mechanism, visuals: Visuals) -> set[str]:
    """Bodies that visuals show, so that no rods and boxes are drawn for them."""
    first, bodies = 1 + mechanism.n_bodies, mechanism.topology.bodies
    shown = set()
    for name, row in ports_of(mechanism, visuals, "visuals").items():
        if len(visuals[name]):
            body = row if row < first else mechanism.port_bodies.index[row - first]
            shown.add(bodies[body])
    return shown


def visual_drawings(
    stage: Stage, visuals: Visuals, palette: Mapping[str, int]
) -> Iterator[Drawing]:
    """The meshes at the frames of their links."""
    for name, row in ports_of(stage.mechanism, visuals, "visuals").items():
        color = palette.get(carrier(stage.mechanism, name), STEEL)
        for number, visual in enumerate(visuals[name]):
            mesh, opacity = _mesh(name, visual, color)
            label = f"{name} visual" + (f" {number}" if number else "")
            yield Drawing(label, "visuals", mesh, port_poses(stage.motion, row), opacity=opacity)


def _mesh(name: str, visual: Any, color: int) -> tuple[Mesh, float]:
    """Mesh and opacity of a `Visual`, or of a mesh of trimesh; `color` is that of a mesh without.

    **Raises** `ModelError` for anything else.
    """
    vertices, faces = getattr(visual, "vertices", None), getattr(visual, "faces", None)
    if vertices is not None and faces is not None:  # trimesh.Trimesh
        opacity = 1.0
        if visual.visual.defined:
            red, green, blue, alpha = (int(x) for x in visual.visual.main_color)
            color, opacity = (red << 16) + (green << 8) + blue, alpha / 255
        return painted(np.asarray(vertices, float), np.asarray(faces), color), opacity
    triangles = getattr(visual, "triangles", None)
    if vertices is None or triangles is None:
        raise ModelError(
            f"visuals: {name!r} needs a sequence of meshes of io.urdf_visuals or of trimesh, "
            f"got a {type(visual).__name__} in it"
        )
    mesh = painted(np.asarray(vertices, float), np.asarray(triangles), visual.color)
    return mesh, visual.opacity


def visual_points(stage: Stage, visuals: Visuals | None) -> np.ndarray:
    """Corners of boxes around the meshes at all keyframes, shape `(k, 3)` [m]."""
    found = [np.zeros((0, 3))]
    for name, row in ports_of(stage.mechanism, visuals or {}, "visuals").items():
        if visuals is not None and len(visuals[name]):
            points = np.concatenate([_mesh(name, x, STEEL)[0].vertices for x in visuals[name]])
            ends = np.stack([points.min(axis=0), points.max(axis=0)])
            corners = np.stack(np.meshgrid(*ends.T), axis=-1).reshape(-1, 3)
            p, R = stage.motion.p[:, row, None], stage.motion.R[:, row]
            found.append((p + corners @ np.swapaxes(R, 1, 2)).reshape(-1, 3))
    return np.concatenate(found)
