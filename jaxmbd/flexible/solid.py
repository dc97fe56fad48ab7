"""Finite elements of linear elastic solids: meshes, and matrices per unit modulus and density."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from ..errors import ModelError

MISSING = "flexible.from_mesh needs the extra fem: pip install 'jaxmbd[fem]'"
MESHES = ("MeshTet1", "MeshTet2", "MeshHex1", "MeshHex2")
# Cells that skfem reads, and volumes that count as zero, relative to the mean one.
CELLS = ("tetra", "tetra10", "hexahedron", "hexahedron27")
FLAT = 1e-9
# Distance from a node, relative to the size of the mesh, up to which a point is that node.
SAME = 1e-9


class Solid(NamedTuple):
    """A mesh of a solid with its matrices, all sparse, for n nodes.

    - `positions`: of the nodes, shape `(n, 3)` [m].
    - `mass`: ∫ φ_a φ_b, shape `(n, n)`; the mass matrix of one direction for unit density.
    - `by_lambda`, `by_mu`: stiffness matrices of unit Lamé parameters, shape `(3 n, 3 n)`.
    - `slopes`: ∂/∂x, ∂/∂y, ∂/∂z at the nodes, the mean of the elements there, weighted with their
      volumes; shapes `(n, n)`.
    - `triangles`: rows of the nodes of the surface's triangles, outwards, shape `(m, 3)`.
    - `points`: rows of the nodes at the points of the mesh or of its file.
    - `facets`: rows of the nodes of each facet of the surface, with `n_corners` vertices first.
    - `sets`: names of parts of the surface and of sets of points, with the rows of their nodes.
    """

    positions: np.ndarray
    mass: sp.csr_matrix
    by_lambda: sp.csr_matrix
    by_mu: sp.csr_matrix
    slopes: tuple[sp.csr_matrix, ...]
    triangles: np.ndarray
    points: np.ndarray
    facets: np.ndarray
    n_corners: int
    sets: dict[str, np.ndarray]


def solid(mesh: Any, unit: float, degree: int, caller: str) -> Solid:
    """Read a mesh, check its elements, and assemble its matrices.

    **Arguments:** `mesh`: a file, or a `skfem` mesh; `unit`: its unit of length [m]; `degree`: of
    the polynomials of displacements, 1 or 2.

    **Raises** `ImportError` without scikit-fem and meshio, and `ModelError` for meshes that are
    not of tetrahedra or hexahedra, or that have flat, inverted or unconnected elements.
    """
    if degree not in (1, 2):
        raise ModelError(f"{caller}: degree must be 1 or 2, got {degree}")
    points, sets = None, {}
    if isinstance(mesh, (str, Path)):
        mesh, points, sets = _read(Path(mesh), caller)
    _check_kind(mesh, caller)
    points = unit * (mesh.p.T if points is None else points)
    mesh = mesh.scaled(unit)
    _check_elements(mesh, caller)
    basis, of_mass = _bases(mesh, degree)
    inside = np.unique(basis.element_dofs)
    kept = np.full(basis.N, -1)
    kept[inside] = np.arange(len(inside))
    G = [[_gradients(basis, i, j)[inside][:, inside] for j in range(3)] for i in range(3)]
    M = _masses(of_mass)[inside][:, inside]
    _check_connected(M, caller)
    positions = basis.doflocs[:, inside].T
    surface = mesh.boundary_facets()
    facets = kept[_facet_dofs(basis, surface)]
    parts = {
        name: kept[basis.get_dofs(facets=np.asarray(own)).flatten()]
        for name, own in (mesh.boundaries or {}).items()
    }
    rows = _rows_at(points, positions)
    named = {name: rows[own] for name, own in sets.items()}
    return Solid(
        positions,
        M,
        *_stiffness(G),
        tuple(x[inside][:, inside] for x in _slopes_at_nodes(mesh, basis)),
        kept[_triangles(mesh, surface)],
        rows,
        facets,
        mesh.facets.shape[0],
        {**named, **parts},
    )


def _check_kind(mesh: Any, caller: str) -> None:
    """**Raises** `ModelError` for other objects than meshes of tetrahedra or hexahedra."""
    try:
        import skfem
    except ImportError as error:
        raise ImportError(MISSING) from error
    kind = type(mesh).__name__
    if kind not in MESHES:
        cells = f"cells of dimension {mesh.dim()}" if isinstance(mesh, skfem.Mesh) else "no mesh"
        raise ModelError(
            f"{caller}: {kind} has {cells}; a solid needs a mesh of tetrahedra or hexahedra, as a "
            "file or as skfem.MeshTet, MeshTet2, MeshHex or MeshHex2"
        )


def _bases(mesh: Any, degree: int) -> tuple[Any, Any]:
    """Bases for the stiffness and the mass matrix, which differ in their quadrature.

    It is exact for straight elements; the volume of curved ones is of higher degree.
    """
    import skfem

    kind = type(mesh).__name__
    names = ("ElementTetP1", "ElementTetP2") if "Tet" in kind else ("ElementHex1", "ElementHex2")
    element = getattr(skfem, names[degree - 1])()
    orders = {"MeshTet1": (2 * degree - 2, 2 * degree), "MeshTet2": (4, 7)}.get(kind, (5, 5))
    basis, of_mass = (skfem.Basis(mesh, element, intorder=max(order, 1)) for order in orders)
    return basis, of_mass


def _read(path: Path, caller: str) -> tuple[Any, np.ndarray, dict[str, np.ndarray]]:
    """A mesh from a file, with the points and the sets of points of the file."""
    try:
        import meshio
        from skfem.io.meshio import from_meshio
    except ImportError as error:
        raise ImportError(MISSING) from error
    if not path.exists():
        raise ModelError(f"{caller}: no file {path}")
    try:
        found = meshio.read(path)
    except (Exception, SystemExit) as error:  # Its readers raise errors of many types.
        raise ModelError(f"{caller}: meshio cannot read {path.name}: {error}") from error
    kinds = [kind for kind in CELLS if kind in found.cells_dict]
    others = sorted({block.type for block in found.cells if block.dim == 3} - set(kinds))
    if len(kinds) != 1 or others:
        have = ", ".join(sorted(found.cells_dict)) or "none"
        raise ModelError(
            f"{caller}: {path.name} has cells {have}; a solid needs cells of one kind among "
            f"{', '.join(CELLS)}"
        )
    if found.points.shape[1] != 3:
        raise ModelError(
            f"{caller}: points of {path.name} have {found.points.shape[1]} coordinates"
        )
    alone = meshio.Mesh(found.points, {kinds[0]: found.cells_dict[kinds[0]]})
    return from_meshio(alone), np.asarray(found.points), _named_points(found)


def _named_points(found: Any) -> dict[str, np.ndarray]:
    """Points of named sets of a file: of points, and of cells, such as physical groups of Gmsh."""
    sets = {name: np.asarray(own) for name, own in found.point_sets.items()}
    cells: dict[str, list[np.ndarray]] = {}
    for name, by_block in found.cell_sets.items():
        if not name.startswith("gmsh:"):
            cells[name] = [
                block.data[np.asarray(own)].ravel()
                for block, own in zip(found.cells, by_block, strict=True)
                if own is not None and len(own)
            ]
    for name, (tag, dimension) in found.field_data.items():
        if name not in cells and "gmsh:physical" in found.cell_data:
            tags = found.cell_data["gmsh:physical"]
            cells[name] = [
                block.data[own == tag].ravel()
                for block, own in zip(found.cells, tags, strict=True)
                if block.dim == dimension
            ]
    of_cells = {name: np.unique(np.concatenate(own)) for name, own in cells.items() if own}
    return {**of_cells, **sets}


def _check_elements(mesh: Any, caller: str) -> None:
    """**Raises** `ModelError` for flat elements, and for elements turned inside out."""
    from skfem.quadrature import get_quadrature

    # At the vertices as well as inside, since volume vanishes first at a vertex.
    corners = np.asarray(mesh.elem.refdom.p)
    inside, _ = get_quadrature(mesh.elem.refdom, 4)
    volume = mesh.mapping().detDF(np.concatenate([corners, inside], axis=1))
    mean = np.abs(volume).mean()
    bad = np.flatnonzero(
        (np.abs(volume).min(axis=1) <= FLAT * mean) | (volume.min(axis=1) * volume.max(axis=1) < 0)
    )
    if not bad.size and mesh.t.shape[0] == 4:
        bad = _folded(mesh)
    if bad.size:
        listed = ", ".join(map(str, bad[:5]))
        raise ModelError(
            f"{caller}: {bad.size} elements are flat or inverted, such as {listed}; repair the mesh"
        )


def _folded(mesh: Any) -> np.ndarray:
    """Tetrahedra on the same side of a facet as their neighbour."""
    inner = np.setdiff1d(np.arange(mesh.facets.shape[1]), mesh.boundary_facets())
    a, b, c = (mesh.p[:, mesh.facets[i, inner]] for i in range(3))
    normal = np.cross(b - a, c - a, axis=0)
    sides = []
    for cells in mesh.f2t[:, inner]:
        centre = mesh.p[:, mesh.t[:, cells]].mean(axis=1)
        sides.append(np.sum(normal * (centre - a), axis=0))
    same = sides[0] * sides[1] > 0
    return np.unique(mesh.f2t[0, inner[same]])


def _check_connected(M: sp.csr_matrix, caller: str) -> None:
    n, labels = connected_components(M, directed=False)
    if n > 1:
        listed = ", ".join(map(str, np.bincount(labels)))
        raise ModelError(
            f"{caller}: the mesh has {n} parts that share no nodes (of {listed} "
            "nodes), which would move freely; merge nodes at equal positions, or make a body of "
            "each part"
        )


def _gradients(basis: Any, i: int, j: int) -> sp.csr_matrix:
    """∫ ∂φ_a/∂x_i ∂φ_b/∂x_j."""
    import skfem

    form = skfem.BilinearForm(lambda u, v, w: u.grad[j] * v.grad[i])
    return sp.csr_matrix(form.assemble(basis))


def _masses(basis: Any) -> sp.csr_matrix:
    """∫ φ_a φ_b."""
    import skfem

    return sp.csr_matrix(skfem.BilinearForm(lambda u, v, w: u * v).assemble(basis))


def _stiffness(G: list[list[sp.csr_matrix]]) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Matrices of ∫ div u div v and ∫ 2 ε(u) : ε(v), node by node."""
    unit = np.eye(3)
    pairs = [(i, j) for i in range(3) for j in range(3)]
    of = {(i, j): np.outer(unit[i], unit[j]) for i, j in pairs}
    by_lambda = sum(sp.kron(G[i][j], of[i, j]) for i, j in pairs)
    twisted = sum(sp.kron(G[i][j], of[j, i]) for i, j in pairs)
    return sp.csr_matrix(by_lambda), sp.csr_matrix(
        sp.kron(G[0][0] + G[1][1] + G[2][2], unit) + twisted
    )


def _slopes_at_nodes(mesh: Any, basis: Any) -> list[sp.csr_matrix]:
    """First derivatives at the nodes: means of the elements there, weighted with their volumes."""
    import skfem

    element = basis.elem
    corners = np.asarray(element.doflocs).T
    at_nodes = skfem.Basis(mesh, element, quadrature=(corners, np.ones(corners.shape[1])))
    dofs, volumes = basis.element_dofs, basis.dx.sum(axis=1)
    total = np.bincount(dofs.ravel(), np.tile(volumes, len(dofs)), minlength=basis.N)
    share = volumes / np.maximum(total, np.finfo(float).tiny)[dofs]
    n = len(dofs)
    rows, columns = (np.broadcast_to(x, (n, n, dofs.shape[1])) for x in (dofs[None], dofs[:, None]))
    # For axes, functions, nodes, and elements.
    grads = np.stack([np.asarray(at_nodes.basis[i][0].grad) for i in range(n)], axis=1)
    place = rows.ravel(), columns.ravel()
    grads = np.swapaxes(grads, 2, 3) * share
    return [sp.csr_matrix((g.ravel(), place), (basis.N, basis.N)) for g in grads]


def _facet_dofs(basis: Any, surface: np.ndarray) -> np.ndarray:
    """Degrees of freedom of facets, one row a facet."""
    dofs, mesh = basis.dofs, basis.mesh
    parts = [dofs.nodal_dofs[:, mesh.facets[:, surface]].reshape(-1, len(surface))]
    if dofs.edge_dofs.size:
        edges = mesh.f2e[:, surface]
        parts.append(dofs.edge_dofs[:, edges].reshape(-1, len(surface)))
    if dofs.facet_dofs.size:
        parts.append(dofs.facet_dofs[:, surface])
    return np.concatenate(parts).T


def _triangles(mesh: Any, surface: np.ndarray) -> np.ndarray:
    """Vertices of the triangles of the surface, in order about the outward normal."""
    corners = mesh.facets[:, surface]
    outwards = np.cross(
        mesh.p[:, corners[1]] - mesh.p[:, corners[0]],
        mesh.p[:, corners[2]] - mesh.p[:, corners[0]],
        axis=0,
    )
    middle = mesh.p[:, mesh.t[:, mesh.f2t[0, surface]]].mean(axis=1)
    away = mesh.p[:, corners].mean(axis=1) - middle
    turn = np.sum(outwards * away, axis=0) < 0
    ordered = np.where(turn, corners[::-1], corners)
    fans = [ordered[[0, i + 1, i + 2]] for i in range(len(corners) - 2)]
    return np.concatenate(fans, axis=1).T


def _rows_at(points: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Row of the node at each point, or -1."""
    size = np.ptp(positions, axis=0).max()
    distance, rows = KDTree(positions).query(points)
    return np.where(distance <= SAME * size, rows, -1)
