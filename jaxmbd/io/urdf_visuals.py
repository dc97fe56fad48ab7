"""Visual geometry of URDF files: boxes, cylinders, spheres and meshes of links."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .urdf_parts import read_origin
from .urdf_xml import Element, MeshFolders, Roots, mesh_folders, read_xml

GREY = 0xB0B0B0


class Visual(NamedTuple):
    """A triangle mesh that is fixed to a link.

    - `vertices`: shape `(n, 3)` [m], in the frame of the link; `triangles`: shape `(m, 3)`.
    - `color`: 0xrrggbb; `opacity`: from 0 to 1.
    """

    vertices: np.ndarray
    triangles: np.ndarray
    color: int
    opacity: float


def urdf_visuals(
    source: str | os.PathLike[str], packages: Roots | None = None
) -> dict[str, tuple[Visual, ...]]:
    """Visual geometry of the links of a URDF file, by the names of links.

    A link has the frame of its name in the model of `from_urdf`, so that `show` and `animate` draw
    it there: `motion.animate(visuals=urdf_visuals("robot.urdf"))`. Reads STL, OBJ, PLY and glTF,
    and with pycollada DAE; needs the extra `viz`.

    **Arguments:**

    - `source`: path of the file, or the XML text itself.
    - `packages`: where `package://name/path` leads: `{name: folder}`, or folders that contain
      packages. Default: a package that the file itself is in, which is the folder of this name
      around it.

    Meshes by other paths are relative to the file's folder. Files outside of this folder and of
    `packages` are not read.

    **Raises** `ModelError`, with the file, the line and the element, for unknown packages, for
    files that do not exist, cannot be read or are elsewhere, and for malformed elements.
    """
    document = read_xml(source)
    folders = mesh_folders(source, packages)
    colors = {
        element.text("name"): _color(element)
        for element in document.all("material")
        if "name" in element.attributes
    }
    return {
        link.text("name"): tuple(
            _visual(element, folders, colors) for element in link.all("visual")
        )
        for link in document.all("link")
    }


def _visual(
    element: Element, folders: MeshFolders, colors: Mapping[str, tuple[int, float]]
) -> Visual:
    origin = read_origin(element)
    vertices, triangles, color = _geometry(element.required("geometry"), folders)
    material = element.child("material")
    shade = (color, 1.0)
    if material is not None:
        known = colors.get(material.attributes.get("name", ""), shade)
        shade = known if material.child("color") is None else _color(material)
    points = vertices @ origin.R.T + origin.p
    return Visual(points, triangles, *shade)


def _color(element: Element) -> tuple[int, float]:
    """Colour and opacity of a material."""
    color = element.child("color")
    if color is None:
        return GREY, 1.0
    red, green, blue, alpha = color.vector("rgba", 4)
    parts = [round(255 * min(max(float(x), 0.0), 1.0)) for x in (red, green, blue)]
    return (parts[0] << 16) + (parts[1] << 8) + parts[2], float(np.clip(alpha, 0.0, 1.0))


def _geometry(element: Element, folders: MeshFolders) -> tuple[np.ndarray, np.ndarray, int]:
    try:
        import trimesh
    except ImportError as error:
        raise ImportError('meshes need trimesh: pip install "jaxmbd[viz]"') from error
    (shape, *others) = element.children or [element]
    if shape is element or others:
        raise element.error("one shape is needed: box, cylinder, sphere or mesh")
    if shape.tag == "box":
        mesh = trimesh.creation.box(extents=shape.vector("size"))
    elif shape.tag == "cylinder":
        mesh = trimesh.creation.cylinder(
            shape.number("radius"), shape.number("length"), sections=32
        )
    elif shape.tag == "sphere":
        mesh = trimesh.creation.icosphere(subdivisions=2, radius=shape.number("radius"))
    elif shape.tag == "mesh":
        mesh = _mesh(trimesh, shape, folders)
    else:
        raise shape.error("unknown shape; known are box, cylinder, sphere and mesh")
    return np.asarray(mesh.vertices), np.asarray(mesh.faces), _shade(mesh)


def _mesh(trimesh: Any, shape: Element, folders: MeshFolders) -> Any:
    path = folders.find(shape.text("filename"), shape)
    scale = shape.vector("scale") if "scale" in shape.attributes else np.ones(3)
    try:
        # Without a resolver, a mesh cannot name files elsewhere, such as textures.
        with path.open("rb") as file:
            loaded = trimesh.load(file, file_type=path.suffix[1:].lower(), force="mesh")
    except Exception as error:  # Its readers raise exceptions of many kinds.
        raise shape.error(f"the mesh {path.name!r} cannot be read: {error}") from error
    if not len(loaded.faces):
        raise shape.error(f"the mesh {path.name!r} has no triangles")
    loaded.apply_scale(scale)
    return loaded


def _shade(mesh: Any) -> int:
    """The main colour of a mesh, or grey."""
    color = getattr(mesh.visual, "main_color", None)
    if color is None or not mesh.visual.defined:
        return GREY
    return (int(color[0]) << 16) + (int(color[1]) << 8) + int(color[2])
