"""Mode shapes of large finite element models by sparse matrices, on the host.

Sources: Craig & Bampton (1968) for constraint and fixed-interface modes.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from ..errors import ModelError
from .modes import check_cut

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


def mean_motion(positions: np.ndarray, tie: Tie, who: str) -> np.ndarray:
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
            f"{who}: interface {tie.name!r} has {len(tie.rows)} nodes on a line or at a point, "
            "whose motion gives no rotation; select at least three nodes that span a plane"
        )
    return np.linalg.pinv(rigid_motions(positions[tie.rows], tie.p) / scale) / scale[:, None]


def craig_bampton(
    K: Any, M: Any, positions: np.ndarray, ties: list[Tie], n_modes: int, frame: str, who: str
) -> np.ndarray:
    """Mode shapes of a free body without rigid motions, of unit mass, shape `(3 n, k)`.

    Shapes by unit motions of the interfaces after the first, and `n_modes` modes with all
    interfaces held, in a frame of reference as in `reduce`. `K`, `M`: sparse, shape `(3 n, 3 n)`.

    **Raises** `ModelError` for too many modes, a number of them that parts a pair of repeated
    ones, and for parts that move without elastic energy.
    """
    T, C, fits = _constraints(positions, ties, who)
    inner, held = T.T @ K @ T, C @ T
    n, m = inner.shape[0], held.shape[0]
    if not 0 <= n_modes < n - m - 1:
        raise ModelError(f"{who}: n_modes must be from 0 to {n - m - 2}, got {n_modes}")
    factors = _factors(inner, held, who)
    unit = np.zeros((n + m, m - 6))
    unit[n + 6 :] = np.eye(m - 6)
    static = factors.solve(unit)[:n]
    normal = _normal_modes(factors, T.T @ M @ T, inner, n_modes, m, who)
    B = T @ np.concatenate([static, normal], axis=1)
    R = rigid_motions(positions, ties[0].p)
    conditions = _conditions(M, R, fits, ties, frame)
    shapes = B - R @ np.linalg.solve(conditions @ R, conditions @ B)
    _, mixed = scipy.linalg.eigh(shapes.T @ (K @ shapes), shapes.T @ (M @ shapes))
    return shapes @ mixed


def _constraints(positions: np.ndarray, ties: list[Tie], who: str) -> tuple[Any, Any, Any]:
    """Matrices of the constraints of interfaces on the displacements u of all nodes.

    **Returns** T of u = T q, where q has the displacements of nodes outside of rigid interfaces and
    the motions of rigid interfaces; C of the motions C u of all interfaces; and the rows of C for
    each interface, as dense arrays.
    """
    n = len(positions)
    fits, place = [], np.arange(n)
    for tie in ties:
        fit = np.zeros((6, 3 * n))
        fit[:, _dofs(tie.rows)] = mean_motion(positions, tie, who)
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


def _factors(K: Any, C: Any, who: str) -> Any:
    """Sparse LU factors of the equations K q + Cᵀ λ = f, C q = d."""
    scale = float(abs(K).max())
    saddle = sp.csc_matrix(sp.bmat([[K, scale * C.T], [scale * C, None]]))
    try:
        factors = splu(saddle, permc_spec="MMD_AT_PLUS_A")
    except RuntimeError:
        raise ModelError(_mechanism(who)) from None
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


def _normal_modes(factors: _Scaled, M: Any, K: Any, n_modes: int, m: int, who: str) -> np.ndarray:
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
        raise ModelError(_mechanism(who))
    if n_modes > 0:
        check_cut(values[n_modes - 1 :], n_modes, who)
    return vectors[:, :n_modes]


def _mechanism(who: str) -> str:
    return (
        f"{who}: a part of the mesh moves without elastic energy while the interfaces are held; "
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


__all__ = ["Tie", "craig_bampton", "mean_motion", "rigid_motions"]
