"""Collision shapes of a URDF file."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..contact import AbstractSolid, Box, Cylinder, Sphere
from ..errors import ModelError
from ..model import Frame
from .urdf_folders import MeshFolders, Roots, mesh_folders
from .urdf_lumps import Assembly
from .urdf_parts import Link, read_origin
from .urdf_placement import Placement
from .urdf_tree import Robot
from .urdf_xml import Element

Meshes = str | Mapping[str, str]
TREATMENTS = ("box", "sphere", "skip")


def read_shapes(
    robot: Robot, assembly: Assembly, source: Any, meshes: Meshes, packages: Roots | None
) -> dict[str, AbstractSolid]:
    """Shapes of all links, by the name of the link, with numbers from 2 on for further ones."""
    folders = mesh_folders(source, packages)
    _check_treatments(meshes, robot)
    shapes: dict[str, AbstractSolid] = {}
    for link in robot.links.values():
        treatment = meshes if isinstance(meshes, str) else meshes.get(link.name, "box")
        body, X = assembly.places[link.name]
        for element in link.element.all("collision"):
            shape = _shape(element, body, X @ read_origin(element), folders, treatment)
            if shape is not None:
                shapes[_unused(link, shapes)] = shape
    return shapes


def _check_treatments(meshes: Meshes, robot: Robot) -> None:
    given = {meshes} if isinstance(meshes, str) else set(meshes.values())
    for treatment in given - set(TREATMENTS):
        raise ModelError(f"meshes: {treatment!r} is none of {', '.join(map(repr, TREATMENTS))}")
    for name in () if isinstance(meshes, str) else meshes:
        if name not in robot.links:
            raise ModelError(f"meshes: there is no link {name!r}")


def _unused(link: Link, shapes: Mapping[str, Any]) -> str:
    name, k = link.name, 1
    while name in shapes:
        k += 1
        name = f"{link.name} {k}"
    return name


def _shape(
    element: Element, body: str, X: Placement, folders: MeshFolders, treatment: str
) -> AbstractSolid | None:
    """The shape of a `<collision>`, or None for a mesh that is skipped."""
    geometry = element.required("geometry")
    if len(geometry.children) != 1:
        raise geometry.error(f"it needs one shape, got {len(geometry.children)}")
    (shape,) = geometry.children
    frame = Frame(body, X.p, quat=X.quat)
    match shape.tag:
        case "sphere":
            return Sphere(frame, _positive(shape, "radius"))
        case "cylinder":
            return Cylinder(frame, _positive(shape, "radius"), _positive(shape, "length"))
        case "box":
            size = shape.vector("size")
            if not np.all(size > 0.0):
                raise shape.error(f"size must be positive, got {size.tolist()}")
            return Box(frame, size)
        case "mesh":
            return _of_mesh(shape, body, X, folders, treatment)
    raise shape.error("unknown shape; known are sphere, cylinder, box, mesh")


def _of_mesh(
    shape: Element, body: str, X: Placement, folders: MeshFolders, treatment: str
) -> AbstractSolid | None:
    """The box around a mesh along its axes, or a ball of the mean of its edges."""
    if treatment == "skip":
        return None
    points = _vertices(shape, folders)
    if "scale" in shape.attributes:
        points = points * shape.vector("scale")
    low, high = points.min(axis=0), points.max(axis=0)
    frame = Frame(body, X.apply(0.5 * (low + high)), quat=X.quat)
    if treatment == "sphere":
        return Sphere(frame, 0.5 * float(np.mean(high - low)))
    if not np.all(high > low):
        raise shape.error("the box around this mesh is flat; give meshes='skip' for this link")
    return Box(frame, high - low)


def _vertices(shape: Element, folders: MeshFolders) -> np.ndarray:
    """Vertices of the mesh of a file [m], shape `(n, 3)`."""
    name = shape.text("filename")
    path = folders.find(name, shape)
    try:
        import meshio
    except ImportError as error:
        raise ImportError(
            'collision meshes need meshio: pip install "jaxmbd[fem]", or give meshes="skip"'
        ) from error
    try:
        with np.errstate(all="ignore"):  # Of text it reads the number of triangles first.
            points = np.asarray(meshio.read(path).points, dtype=float)
    except (Exception, SystemExit) as error:  # meshio leaves the program for unknown formats.
        raise shape.error(f"cannot read the mesh {name!r}: {error}") from error
    if points.ndim != 2 or points.shape[1:] != (3,) or not np.all(np.isfinite(points)):
        raise shape.error(f"the mesh {name!r} has no finite vertices in space")
    return points


def _positive(shape: Element, attribute: str) -> float:
    value = shape.number(attribute)
    if not value > 0.0:
        raise shape.error(f"{attribute} must be positive, got {value}")
    return value


__all__ = ["TREATMENTS", "Meshes", "read_shapes"]
