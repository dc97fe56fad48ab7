"""Flexible bodies from meshes of solids."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse as sp
from jaxtyping import Array, Float
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from ..bodies import FlexibleBody, Skin
from ..errors import ModelError
from ..model.model import unknown
from ..model.values import as_count, as_leaf, as_mapping, as_positive, is_concrete
from .beam import check_units, positive
from .mode_shapes import check_cut, damping_matrix, signs
from .solid import Solid, solid
from .stress import COMPONENTS

# Mode shapes of large finite element models by sparse matrices, on the host -----------------------
# Sources: Craig & Bampton (1968) for constraint and fixed-interface modes.

# Lowest eigenvalue of a body without mechanisms, times the number of nodes, relative to the mean.
MECHANISM = 1e-9
# Smallest singular value of rigid motions of an interface's nodes, relative to the largest.
COLLINEAR = 1e-6


class Tie(NamedTuple):
    """An interface: nodes that follow a frame at `p` rigidly, or whose mean motion is its motion.

    - `rows`: of the nodes; `p`: position of the frame [m]; `rigid`: whether they follow rigidly.
    """

    name: str
    rows: np.ndarray
    p: np.ndarray
    rigid: bool


def rigid_motions(positions: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Displacements for unit translations, and unit rotations about `centre`, shape `(3 n, 6)`."""
    moved = np.broadcast_to(np.eye(3), (len(positions), 3, 3))
    turned = np.cross(np.eye(3)[None], (positions - centre)[:, None]).swapaxes(1, 2)
    return np.concatenate([moved, turned], axis=2).reshape(-1, 6)


def mean_motion(positions: np.ndarray, tie: Tie, caller: str) -> np.ndarray:
    """The motion of an interface by displacements of its nodes, shape `(6, 3 m)`.

    It fits them by least squares. **Raises** `ModelError` for nodes on a line.
    """
    arms = positions[tie.rows] - tie.p
    # Rotations count as displacements at the size of the interface.
    size = max(float(np.linalg.norm(np.ptp(arms, axis=0))), np.finfo(float).tiny)
    scale = np.array([1.0, 1.0, 1.0, size, size, size])
    R = rigid_motions(positions[tie.rows], positions[tie.rows].mean(axis=0)) / scale
    values = np.linalg.svd(R, compute_uv=False)
    if len(tie.rows) < 3 or values[-1] <= COLLINEAR * values[0]:
        raise ModelError(
            f"{caller}: interface {tie.name!r} has {len(tie.rows)} nodes on a line or at a point, "
            "whose motion gives no rotation; select at least three nodes that span a plane"
        )
    return np.linalg.pinv(rigid_motions(positions[tie.rows], tie.p) / scale) / scale[:, None]


def craig_bampton(
    K: Any, M: Any, positions: np.ndarray, ties: list[Tie], n_modes: int, frame: str, caller: str
) -> np.ndarray:
    """Mode shapes of a free body without rigid motions, of unit mass, shape `(3 n, k)`.

    Shapes by unit motions of the interfaces after the first, and `n_modes` modes with all
    interfaces held, in a frame of reference as in `reduce`. `K`, `M`: sparse, shape `(3 n, 3 n)`.

    **Raises** `ModelError` for too many modes, a number of them that parts a pair of repeated
    ones, and for parts that move without elastic energy.
    """
    T, C, fits = _constraints(positions, ties, caller)
    inner, held = T.T @ K @ T, C @ T
    n, m = inner.shape[0], held.shape[0]
    if not 0 <= n_modes < n - m - 1:
        raise ModelError(f"{caller}: n_modes must be from 0 to {n - m - 2}, got {n_modes}")
    factors = _factors(inner, held, caller)
    unit = np.zeros((n + m, m - 6))
    unit[n + 6 :] = np.eye(m - 6)
    static = factors.solve(unit)[:n]
    normal = _normal_modes(factors, T.T @ M @ T, inner, n_modes, m, caller)
    B = T @ np.concatenate([static, normal], axis=1)
    R = rigid_motions(positions, ties[0].p)
    conditions = _conditions(M, R, fits, ties, frame)
    shapes = B - R @ np.linalg.solve(conditions @ R, conditions @ B)
    _, mixed = scipy.linalg.eigh(shapes.T @ (K @ shapes), shapes.T @ (M @ shapes))
    shapes = shapes @ mixed
    with jax.ensure_compile_time_eval():  # Shapes are computed on the host under `jit`, too.
        return shapes * np.asarray(signs(shapes))


def _constraints(positions: np.ndarray, ties: list[Tie], caller: str) -> tuple[Any, Any, Any]:
    """Matrices of the constraints of interfaces on the displacements u of all nodes.

    **Returns** T of u = T q, where q has the displacements of nodes outside of rigid interfaces and
    the motions of rigid interfaces; C of the motions C u of all interfaces; and the rows of C for
    each interface, as dense arrays.
    """
    n = len(positions)
    fits, place = [], np.arange(n)
    for tie in ties:
        fit = np.zeros((6, 3 * n))
        fit[:, _dofs(tie.rows)] = mean_motion(positions, tie, caller)
        fits.append(fit)
    rigid = [tie for tie in ties if tie.rigid]
    free = np.setdiff1d(place, np.concatenate([np.zeros(0, int), *(tie.rows for tie in rigid)]))
    dofs = _dofs(free)
    columns = [
        sp.csr_matrix((np.ones(len(dofs)), (dofs, np.arange(len(dofs)))), (3 * n, len(dofs)))
    ]
    for tie in rigid:
        R = sp.lil_matrix((3 * n, 6))
        R[_dofs(tie.rows)] = rigid_motions(positions[tie.rows], tie.p)
        columns.append(R.tocsc())
    C = sp.csr_matrix(np.concatenate(fits))
    return sp.csr_matrix(sp.hstack(columns)), C, fits


def _dofs(rows: np.ndarray) -> np.ndarray:
    return (3 * rows[:, None] + np.arange(3)).ravel()


def _factors(K: Any, C: Any, caller: str) -> Any:
    """Sparse LU factors of the equations K q + Cᵀ λ = f, C q = d."""
    scale = float(abs(K).max())
    saddle = sp.csc_matrix(sp.bmat([[K, scale * C.T], [scale * C, None]]))
    try:
        factors = splu(saddle, permc_spec="MMD_AT_PLUS_A")
    except RuntimeError:
        raise ModelError(_mechanism(caller)) from None
    return _Scaled(factors, K.shape[0], scale)


class _Scaled(NamedTuple):
    """Factors of equations whose constraints are multiplied by `scale`."""

    factors: Any
    n: int
    scale: float

    def solve(self, right: np.ndarray) -> np.ndarray:
        right = np.array(right)
        right[self.n :] *= self.scale
        return self.factors.solve(right)


class _Inverse(LinearOperator):
    """q of K q + Cᵀ λ = b, C q = 0."""

    def __init__(self, factors: _Scaled, n: int, m: int):
        super().__init__(np.dtype(float), (n, n))
        self.factors, self.zeros = factors, np.zeros(m)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self.factors.solve(np.concatenate([x.ravel(), self.zeros]))[: self.shape[0]]


def _normal_modes(
    factors: _Scaled, M: Any, K: Any, n_modes: int, m: int, caller: str
) -> np.ndarray:
    """The lowest modes with interfaces held."""
    n = M.shape[0]
    inverse = _Inverse(factors, n, m)
    # Always the same start, for the same result.
    start = inverse.matvec(M @ np.random.default_rng(0).normal(size=n))
    values, vectors = eigsh(K, n_modes + 1, M, sigma=0.0, OPinv=inverse, v0=start)
    order = np.argsort(values)
    values, vectors = values[order], vectors[:, order]
    mean = K.diagonal().sum() / M.diagonal().sum()
    if values[0] <= MECHANISM * mean / n:
        raise ModelError(_mechanism(caller))
    if n_modes > 0:
        check_cut(values[n_modes - 1 :], n_modes, caller)
    return vectors[:, :n_modes]


def _mechanism(caller: str) -> str:
    return (
        f"{caller}: a part of the mesh moves without elastic energy while the interfaces are held; "
        "parts must share facets, not only an edge or a node"
    )


def _conditions(
    M: Any, R: np.ndarray, fits: list[np.ndarray], ties: list[Tie], frame: str
) -> np.ndarray:
    """Rows C of the conditions C u = 0 on displacements in the frame of reference."""
    if frame == "mean-axis":
        return (M @ R).T
    if frame == "clamped":
        return fits[0]
    axis = ties[1].p - ties[0].p
    axis = axis / np.linalg.norm(axis)
    across = scipy.linalg.null_space(axis[None]).T
    return np.concatenate([fits[0][:3], (axis @ fits[0][3:])[None], across @ fits[1][:3]])


# Largest difference of the mass from the one that is expected.
MASS = 0.01


@dataclass(frozen=True, eq=False)
class Interface:
    """Nodes of a mesh with the frame to which a joint attaches.

    **Arguments:**

    - `select`: the name of a part of the surface or of a set of points in the mesh; or a function
      of positions, shape `(n, 3)` [m], that returns n booleans; or rows of points of the mesh.
    - `coupling`: `"rigid"`, the nodes follow the frame as a rigid body; `"averaged"`, the frame
      follows the nodes, by least squares with equal weights, and does not stiffen the body there.
    - `p`: position of the frame, in the axes of the mesh, shape `(3,)` [m]. Default: the mean of
      the nodes.

    **Raises** `ModelError` for another coupling, and for another shape of `p`.
    """

    select: Any
    coupling: str = "rigid"
    p: Any = None

    def __post_init__(self):
        if self.coupling not in ("rigid", "averaged"):
            raise ModelError(
                f"Interface: coupling must be 'rigid' or 'averaged', got {self.coupling!r}"
            )
        if self.p is not None and np.shape(self.p) != (3,):
            raise ModelError(f"Interface: p must have shape (3,), got {np.shape(self.p)}")


class _Unit(NamedTuple):
    """A reduced solid for unit density and unit Lamé parameters, in NumPy arrays.

    `motions`: displacements and rotations of the nodes of the body, shape `(n_nodes, k, 6)`;
    `strains`: strain tensors there, shape `(n_nodes, k, 3, 3)`.
    """

    volume: float
    first: np.ndarray
    second: np.ndarray
    by_lambda: np.ndarray
    by_mu: np.ndarray
    positions: np.ndarray
    motions: np.ndarray
    strains: np.ndarray


def from_mesh(
    mesh: Any,
    E: Any,
    nu: Any,
    density: Any,
    interfaces: Mapping[str, Any],
    n_modes: int = 6,
    *,
    unit: float,
    frame: str = "clamped",
    nodes: Mapping[str, Any] | None = None,
    damping: Any = 0.0,
    degree: int = 2,
    basis_nu: float | None = None,
    total_mass: float | None = None,
) -> FlexibleBody:
    """A flexible body of an elastic solid from a mesh of tetrahedra or hexahedra.

    The solid is linear elastic, isotropic and homogeneous. Mode shapes are those of Craig &
    Bampton (1968): `n_modes` modes with interfaces held, and six static shapes for each interface
    after the first. They are computed with sparse matrices on the host, and are the same for all E
    and densities. The body's frame of reference has the axes and the origin of the mesh. Nodes for
    frames are the names of `interfaces` and `nodes`, and the rows of the vertices of the surface
    after them, which turn by least squares with their neighbours on the surface.

    `sensors.Stress` reads the stress at nodes. It is that of the strains of the elements at the
    node, in the mean, and at interfaces and named nodes the mean of their nodes. Stresses converge
    by one order less than displacements, and not at all at edges of rigid interfaces, where those
    of an elastic solid are unbounded.

    Derivatives by E, ν, density and damping are those of a frozen basis, as in `reduce`. The mesh
    has no derivatives. Loads do not stiffen the body (K has no geometric stiffness). Needs the
    extra `fem`.

    **Arguments:**

    - `mesh`: a file that meshio reads, such as of Gmsh, Abaqus or VTK, or a `skfem` mesh.
    - `E`: Young's modulus [Pa]; `nu`: Poisson's ratio; `density` [kg/m³].
    - `interfaces`: `{name: selection}` with the selections of `Interface`, or `{name: Interface}`.
      The first one holds the frame of reference if that is clamped.
    - `n_modes`: number of normal modes.
    - `unit`: unit of length of the mesh [m], 1e-3 for mm. Files do not contain it.
    - `frame`: `"clamped"`, `"chord"` or `"mean-axis"`, as in `reduce`.
    - `nodes`: `{name: selection}` of further frames, which follow the mean motion of their nodes.
    - `damping`: modal damping ratios, a number or one for each mode; or a `Rayleigh`.
    - `degree`: of the displacements in an element, 1 or 2. With 1, thin parts are much too stiff
      in bending.
    - `basis_nu`: Poisson's ratio for which mode shapes are computed. Default: `nu`. Pass it if `nu`
      is traced, and for finite differences by `nu`.
    - `total_mass`: mass that the body is to have to 1 % [kg], as a check of the units.

    **Raises** `ModelError` for values that are impossible, for moduli and density that no material
    has in SI units, for unknown or empty selections, interfaces on a line or with common nodes,
    unsuitable meshes, a number of modes that parts a pair of repeated ones, and a mass that is not
    `total_mass`. `ImportError` without scikit-fem and meshio.
    """
    caller = "flexible.from_mesh"
    interfaces = as_mapping(interfaces, f"{caller}: interfaces", "{name: selection}")
    nodes = as_mapping(nodes, f"{caller}: nodes", "{name: selection}")
    n_modes = as_count(n_modes, f"{caller}: n_modes", least=0)
    E, density = positive(E, f"{caller}: E"), positive(density, f"{caller}: density")
    check_units(E, density, caller)
    nu, at = _poisson(nu, basis_nu, caller)
    unit = as_positive(unit, f"{caller}: unit [m]")
    if frame not in ("clamped", "chord", "mean-axis"):
        raise ModelError(f"{caller}: frame must be clamped, chord or mean-axis, got {frame!r}")
    if len(interfaces) < (2 if frame == "chord" else 1):
        raise ModelError(
            f"{caller}: interfaces must name the parts at which joints act: one, or two "
            "for frame='chord'"
        )
    given = solid(mesh, unit, degree, caller)
    ties = [_tie(given, name, x, caller) for name, x in interfaces.items()]
    _check_apart(ties, caller)
    extra = [_tie(given, name, x, caller) for name, x in nodes.items() if name not in interfaces]
    shapes = _shapes(given, ties, n_modes, frame, at, caller)
    reduced, skin = _reduced(given, shapes, [*ties, *extra], caller)
    _check_mass(density, reduced.volume, total_mass, caller)
    arrays = _body_arrays(reduced, E, nu, density, damping)
    names = {tie.name: row for row, tie in enumerate([*ties, *extra])}
    return FlexibleBody(**arrays, nodes=names, skin=skin)


def _poisson(nu: Any, basis_nu: float | None, caller: str) -> tuple[Float[Array, ""], float]:
    """ν as an array, and its value for the mode shapes."""
    given = nu if basis_nu is None else basis_nu
    nu = as_leaf(nu, (), f"{caller}: nu")
    # Within jit as_leaf traces even a Python number.
    at = given if is_concrete(given) else jax.lax.stop_gradient(given)
    if not is_concrete(at):
        raise ModelError(
            f"{caller}: nu is traced, but mode shapes are computed on the host; pass basis_nu, the "
            "number for which they are computed"
        )
    for value in (nu, at):
        if is_concrete(value) and not -1.0 < float(value) < 0.5:
            raise ModelError(
                f"{caller}: Poisson's ratio must be above -1 and below 0.5, got {value}"
            )
    return nu, float(at)


def _lame(E: Any, nu: Any) -> tuple[Any, Any]:
    """λ and μ."""
    return E * nu / ((1.0 + nu) * (1.0 - 2.0 * nu)), E / (2.0 * (1.0 + nu))


def _tie(given: Solid, name: str, value: Any, caller: str) -> Tie:
    """The nodes and the frame of an interface; **raises** `ModelError` if there are none."""
    x = value if isinstance(value, Interface) else Interface(value)
    rows = _selected(given, name, x.select, caller)
    if rows.size == 0:
        low, high = given.positions.min(axis=0), given.positions.max(axis=0)
        raise ModelError(
            f"{caller}: interface {name!r} selects no node of an element; the body extends from "
            f"{low} to {high} m"
        )
    p = given.positions[rows].mean(axis=0) if x.p is None else np.asarray(x.p, dtype=float)
    return Tie(name, rows, p, x.coupling == "rigid")


def _selected(given: Solid, name: str, select: Any, caller: str) -> np.ndarray:
    """Rows of nodes, ascending."""
    if isinstance(select, str):
        if select not in given.sets:
            raise ModelError(
                unknown(f"{caller}: interface {name!r}: unknown set", select, given.sets)
            )
        rows = given.sets[select]
    elif callable(select):
        chosen = np.asarray(select(given.positions))
        if chosen.dtype != bool or chosen.shape != (len(given.positions),):
            raise ModelError(
                f"{caller}: interface {name!r}: the function must return booleans of shape (n,) "
                f"for positions of shape (n, 3), got {chosen.dtype} of shape {chosen.shape}"
            )
        return np.flatnonzero(chosen)
    else:
        points = np.asarray(select)
        n = len(given.points)
        if points.dtype == bool and points.shape == (n,):
            points = np.flatnonzero(points)
        if not np.issubdtype(points.dtype, np.integer) or points.ndim != 1:
            raise ModelError(
                f"{caller}: interface {name!r} must be a name, a function of positions, or rows of "
                f"points, got {select!r}"
            )
        if points.size and not 0 <= points.min() <= points.max() < n:
            raise ModelError(f"{caller}: interface {name!r} has rows outside of the {n} points")
        rows = given.points[points]
    return _completed(given, np.unique(rows[rows >= 0]))


def _completed(given: Solid, rows: np.ndarray) -> np.ndarray:
    """The nodes, with those on the edges and facets of the surface whose vertices are chosen."""
    inside = np.isin(given.facets[:, : given.n_corners], rows).all(axis=1)
    return np.union1d(rows, given.facets[inside])


def _check_apart(ties: list[Tie], caller: str) -> None:
    for i, tie in enumerate(ties):
        for other in ties[:i]:
            common = np.intersect1d(tie.rows, other.rows)
            if common.size:
                raise ModelError(
                    f"{caller}: interfaces {other.name!r} and {tie.name!r} have {common.size} "
                    "nodes in common, which cannot follow both"
                )


def _shapes(
    given: Solid, ties: list[Tie], n_modes: int, frame: str, nu: float, caller: str
) -> np.ndarray:
    """Mode shapes of unit mass for unit density."""
    lam, mu = _lame(1.0, nu)
    K = lam * given.by_lambda + mu * given.by_mu
    M = sp.csr_matrix(sp.kron(given.mass, np.eye(3)))
    return craig_bampton(K, M, given.positions, ties, n_modes, frame, caller)


def _reduced(given: Solid, shapes: np.ndarray, ties: list[Tie], caller: str) -> tuple[_Unit, Skin]:
    n, k = len(given.positions), shapes.shape[1]
    by_node = shapes.reshape(n, 3, k)
    psi = np.concatenate([given.positions[:, :, None], by_node], axis=2)
    weighted = (given.mass @ psi.reshape(n, -1)).reshape(psi.shape)
    second = np.einsum("nia,njb->aibj", psi, weighted)
    vertices, triangles = np.unique(given.triangles, return_inverse=True)
    triangles = triangles.reshape(-1, 3)
    of_ties = [
        np.einsum(
            "ij,jk->ki", mean_motion(given.positions, tie, caller), by_node[tie.rows].reshape(-1, k)
        )
        for tie in ties
    ]
    at_surface = _surface_motions(given.positions[vertices], by_node[vertices], triangles)
    positions = np.concatenate([np.stack([tie.p for tie in ties]), given.positions[vertices]])
    unit = _Unit(
        float(given.mass.sum()),
        weighted.sum(axis=0).T,
        second,
        shapes.T @ (given.by_lambda @ shapes),
        shapes.T @ (given.by_mu @ shapes),
        positions,
        np.concatenate([np.stack(of_ties), at_surface]),
        _strains(given, by_node, ties, vertices),
    )
    rows = len(ties) + np.arange(len(vertices))
    return unit, Skin(rows, np.zeros((len(vertices), 3)), triangles)


def _strains(
    given: Solid, by_node: np.ndarray, ties: list[Tie], vertices: np.ndarray
) -> np.ndarray:
    """Strain tensors of all shapes, shape `(n_nodes, k, 3, 3)`.

    The strain at an interface or a named node is the mean of those of its nodes.
    """
    n, _, k = by_node.shape
    rows = [tie.rows for tie in ties]
    sizes = np.array([len(own) for own in rows])
    means = sp.csr_matrix(
        (
            np.repeat(1.0 / sizes, sizes),
            (np.repeat(np.arange(len(ties)), sizes), np.concatenate(rows)),
        ),
        (len(ties), n),
    )
    flat = by_node.reshape(n, -1)
    slopes = [sp.vstack([means @ by_axis, by_axis[vertices]]) @ flat for by_axis in given.slopes]
    G = np.stack(slopes, axis=1).reshape(-1, 3, 3, k)  # Nodes, ∂/∂x_j, displacement i, shapes.
    return np.moveaxis(0.5 * (G + G.swapaxes(1, 2)), 3, 1)


def _surface_motions(
    positions: np.ndarray, displacements: np.ndarray, triangles: np.ndarray
) -> np.ndarray:
    """Displacements, and rotations by least squares with the neighbours, shape `(n, k, 6)`."""
    n = len(positions)
    pairs = np.concatenate([triangles[:, [i, j]] for i in range(3) for j in range(3) if i != j])
    a, b = np.unique(pairs, axis=0).T
    arms = positions[b] - positions[a]
    spread, turned = np.zeros((n, 3, 3)), np.zeros((n, 3, displacements.shape[2]))
    squares = np.sum(arms**2, axis=1)[:, None, None] * np.eye(3) - arms[:, :, None] * arms[:, None]
    np.add.at(spread, a, squares)
    np.add.at(turned, a, np.cross(arms[:, :, None], displacements[b] - displacements[a], axis=1))
    rotations = np.linalg.pinv(spread, hermitian=True) @ turned
    return np.concatenate([displacements, rotations], axis=1).swapaxes(1, 2)


def _check_mass(
    density: Float[Array, ""], volume: float, total_mass: float | None, caller: str
) -> None:
    if total_mass is None or not is_concrete(density):
        return
    mass = float(density) * volume
    if abs(mass - total_mass) > MASS * abs(total_mass):
        raise ModelError(
            f"{caller}: the mesh has a mass of {mass:.6g} kg, but total_mass is {total_mass:.6g} "
            "kg; check unit (1e-3 for a mesh in mm) and density [kg/m³]"
        )


def _body_arrays(
    reduced: _Unit,
    E: Float[Array, ""],
    nu: Float[Array, ""],
    density: Float[Array, ""],
    damping: Any,
) -> dict[str, Any]:
    """Arrays of the body, with shapes of unit mass."""
    dtype = jnp.result_type(E, nu, density)
    lam, mu = _lame(E, nu)
    scale = 1.0 / jnp.sqrt(jax.lax.stop_gradient(density))
    k = reduced.by_mu.shape[0]
    scales = jnp.concatenate([jnp.ones(1, dtype), jnp.broadcast_to(scale, (k,))])
    of = {name: jnp.asarray(x, dtype) for name, x in reduced._asdict().items()}
    stiffness = scale**2 * (lam * of["by_lambda"] + mu * of["by_mu"])
    second = density * of["second"] * scales[:, None, None, None] * scales[None, None, :, None]
    modal = jnp.einsum("aibi->ab", second[1:, :, 1:])
    dilatation = jnp.trace(of["strains"], axis1=2, axis2=3)
    sphere = dilatation[..., None, None] * jnp.eye(3, dtype=dtype)[None, None]
    stress = lam * sphere + 2.0 * mu * of["strains"]
    return {
        "mass": density * of["volume"],
        "first": density * scales[:, None] * of["first"],
        "second": second,
        "stiffness": stiffness,
        "damping": damping_matrix(damping, stiffness, modal),
        "positions": of["positions"],
        "translations": scale * of["motions"][..., :3],
        "rotations": scale * of["motions"][..., 3:],
        "stresses": scale * stress[..., *np.array(COMPONENTS).T],
    }
