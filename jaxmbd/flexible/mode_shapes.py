"""Mode shapes of finite element models, and frames of reference.

Sources: Craig & Bampton (1968) for constraint and fixed-interface modes; Rubin (1975) for residual
attachment modes; Nikravesh (2005) and Shabana (2020) for frames of reference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_count, as_leaf, is_concrete
from ..programs import stored
from .interfaces import Interfaces, per_node_of, rigid_modes

# Relative difference up to which eigenvalues count as repeated.
REPEATED = 1e-6
# Entries of a mode larger than this part of its largest one decide its sign: the largest ones of a
# symmetric mode are equal but for rounding.
LARGE = 0.7
# Lowest eigenvalue of the Gram matrix of shapes with unit elastic energy.
INDEPENDENT = 1e-10


@jax.custom_jvp
def eigh(A: Float[Array, "n n"]) -> tuple[Float[Array, "n"], Float[Array, "n n"]]:
    """Eigenvalues and eigenvectors of a symmetric matrix.

    Derivatives of eigenvectors have no components within a set of repeated eigenvalues, where
    eigenvectors are not unique. What depends on the span of such a set only has right derivatives.
    """
    values, vectors = jnp.linalg.eigh(A)
    return values, vectors


@eigh.defjvp
def _eigh_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Any, Any]:
    (A,), (A_dot,) = primals, tangents
    values, vectors = eigh(A)
    inner = vectors.T @ (0.5 * (A_dot + A_dot.T)) @ vectors
    difference = values[None, :] - values[:, None]
    scale = jnp.abs(values)[None, :] + jnp.abs(values)[:, None]
    apart = jnp.abs(difference) > REPEATED * scale
    rotation = jnp.where(apart, inner / jnp.where(apart, difference, 1.0), 0.0)
    return (values, vectors), (jnp.diagonal(inner), vectors @ rotation)


def eigen(
    K: Float[Array, "n n"], M: Float[Array, "n n"]
) -> tuple[Float[Array, "n"], Float[Array, "n n"]]:
    """Eigenvalues ω², ascending, and eigenvectors y of K y = ω² M y, with yᵀ M y = 1.

    Their signs are those of `signs`, for entries weighted by the square roots of M's diagonal.
    """
    L = jnp.linalg.cholesky(M)
    half = jsl.solve_triangular(L, K, lower=True)
    A = jsl.solve_triangular(L, half.T, lower=True)
    values, vectors = eigh(0.5 * (A + A.T))
    vectors = jsl.solve_triangular(L, vectors, trans=1, lower=True)
    # Displacements and rotations have different units; shares of the kinetic energy have one.
    weight = jnp.sqrt(jnp.diagonal(M))
    return values, vectors * signs(weight[:, None] * vectors)[None]


def signs(vectors: Any) -> Float[Array, "m"]:
    """Factors 1 or -1 that make the first large entry of each column, all of one unit, positive.

    LAPACK's signs differ from processor to processor, and elastic coordinates with them.
    """
    size = jnp.abs(vectors)
    largest = jnp.max(size, axis=0, keepdims=True, initial=0.0)
    first = jnp.argmax(size > LARGE * largest, axis=0)
    entries = jnp.take_along_axis(jnp.asarray(vectors), first[None], axis=0)[0]
    return jax.lax.stop_gradient(jnp.where(entries < 0, -1.0, 1.0).astype(entries.dtype))


def _lowest(
    K: Float[Array, "n n"], M: Float[Array, "n n"], n: int, skip: int
) -> tuple[Float[Array, "n m"], Float[Array, "2"]]:
    """The n lowest modes beyond the first `skip`, and the eigenvalues on both sides of the cut."""
    limits = jnp.asarray([0.0, jnp.inf], dtype=K.dtype)
    if n == 0:
        return jnp.zeros((K.shape[0], 0), dtype=K.dtype), limits
    values, vectors = eigen(K, M)
    ends = jnp.concatenate([limits[:1], values[skip:], limits[1:]])
    return vectors[:, skip : skip + n], jax.lax.stop_gradient(ends[n : n + 2])


def check_cut(cut: Array | np.ndarray, n: int, caller: str) -> None:
    """**Raises** `ModelError` if a number of modes parts a pair of repeated ones."""
    if not is_concrete(cut):
        return
    inside, outside = np.asarray(cut)
    if n > 0 and np.isfinite(outside) and abs(outside - inside) <= REPEATED * abs(outside):
        raise ModelError(
            f"{caller}: modes {n} and {n + 1} have the same frequency, {np.sqrt(outside):.6g} "
            f"rad/s, and n_modes={n} would keep one of them, in an arbitrary direction; choose "
            f"n_modes={n + 1} or {n - 1}"
        )


def modes(
    K: Float[Array, "n n"],
    M: Float[Array, "n n"],
    positions: Float[Array, "n_nodes 3"],
    interfaces: Mapping[str, Any],
    n_modes: int,
    method: str = "craig-bampton",
    frame: str = "clamped",
    attachments: Sequence[str] = (),
    nodes: Mapping[str, Any] | None = None,
) -> Float[Array, "n k"]:
    """Mode shapes of a free finite element model, without rigid motions.

    Arguments as in `reduce`. The shapes satisfy the conditions of the frame of reference, have unit
    mass, and are ordered by the frequencies of the body with that frame held.
    """
    caller = "flexible.modes"
    n_modes = as_count(n_modes, f"{caller}: n_modes", least=0)
    per_node = per_node_of(K, positions, caller)
    known = Interfaces.of({**(nodes or {}), **interfaces}, len(positions), caller)
    ends = known.select(tuple(interfaces), caller)
    if not ends.names:
        raise ModelError(f"{caller}: interfaces must name at least one node, at which a joint acts")
    loaded = known.select(tuple(attachments), caller)
    if method not in ("craig-bampton", "free"):
        raise ModelError(f"{caller}: method must be 'craig-bampton' or 'free', got {method!r}")
    if frame not in ("clamped", "chord", "mean-axis"):
        raise ModelError(f"{caller}: frame must be clamped, chord or mean-axis, got {frame!r}")
    if frame == "chord" and len(ends.names) < 2:
        raise ModelError(f"{caller}: frame='chord' needs two interfaces, at the ends of the chord")
    held = ends.dofs(per_node) if method == "craig-bampton" else [np.arange(6)]
    available = len(K) - sum(len(dofs) for dofs in held)
    if not 0 <= n_modes <= available:
        raise ModelError(f"{caller}: n_modes must be from 0 to {available}, got {n_modes}")
    shapes, cut, independence = _modes(K, M, positions, ends, loaded, n_modes, method, frame)
    check_cut(cut, n_modes, caller)
    if is_concrete(independence) and not float(independence) > INDEPENDENT:
        raise ModelError(
            f"{caller}: attachment modes repeat other modes; leave out attachments at interfaces, "
            "or reduce n_modes"
        )
    return shapes


@stored
def _modes(
    K: Array,
    M: Array,
    positions: Array,
    ends: Interfaces,
    loaded: Interfaces,
    n_modes: int,
    method: str,
    frame: str,
) -> tuple[Float[Array, "n k"], Float[Array, "2"], Float[Array, ""]]:
    """Mode shapes, eigenvalues on both sides of the cut, and a measure of independence."""
    per_node = K.shape[0] // positions.shape[0]
    R = rigid_modes(positions, per_node, ends.centres(positions)[0])
    of_method = _constraint_shapes if method == "craig-bampton" else _free_shapes
    B, cut = of_method(K, M, R, positions, ends, n_modes)
    independence = jnp.ones((), dtype=K.dtype)
    if loaded.names:
        attached = _attachment_shapes(K, M, R, positions, ends, loaded, method)
        B, independence = _scaled(jnp.concatenate([B, attached], axis=1), K)
    C = _conditions(M, R, positions, ends, frame)
    shapes = B - R @ jnp.linalg.solve(C @ R, C @ B)
    _, mixed = eigen(shapes.T @ K @ shapes, shapes.T @ M @ shapes)
    return shapes @ mixed, cut, independence


def _constraint_shapes(
    K: Array, M: Array, R: Array, positions: Array, ends: Interfaces, n_modes: int
) -> tuple[Float[Array, "n k"], Float[Array, "2"]]:
    """Static shapes by motions of interfaces after the first, and modes with interfaces held."""
    n, per_node = K.shape[0], K.shape[0] // positions.shape[0]
    support, *others = ends.dofs(per_node)
    inner = np.setdiff1d(np.arange(n), np.concatenate([support, *others]))
    held = inner[:, None], inner[None]
    parts = []
    for dofs, centre in zip(others, ends.centres(positions)[1:], strict=True):
        rigid = rigid_modes(positions, per_node, centre)[dofs]
        shape = jnp.zeros((n, 6), dtype=K.dtype).at[dofs].set(rigid)
        if inner.size > 0:
            follow = -jnp.linalg.solve(K[held], K[inner[:, None], dofs[None]] @ rigid)
            shape = shape.at[inner].set(follow)
        parts.append(shape)
    normal, cut = _lowest(K[held], M[held], n_modes, 0)
    parts.append(jnp.zeros((n, n_modes), dtype=K.dtype).at[inner].set(normal))
    return jnp.concatenate(parts, axis=1), cut


def _free_shapes(
    K: Array, M: Array, R: Array, positions: Array, ends: Interfaces, n_modes: int
) -> tuple[Float[Array, "n k"], Float[Array, "2"]]:
    """Modes of the free body after the six rigid ones."""
    return _lowest(K, M, n_modes, 6)


def _attachment_shapes(
    K: Array,
    M: Array,
    R: Array,
    positions: Array,
    ends: Interfaces,
    loaded: Interfaces,
    method: str,
) -> Float[Array, "n k"]:
    """Static shapes by unit forces and moments at nodes, with the first interface held.

    Loads on a free body are balanced by inertia.
    """
    n, per_node = K.shape[0], K.shape[0] // positions.shape[0]
    free = np.setdiff1d(np.arange(n), ends.dofs(per_node)[0])
    parts = []
    for dofs, centre in zip(loaded.dofs(per_node), loaded.centres(positions), strict=True):
        unit = rigid_modes(positions, per_node, centre)[dofs]
        parts.append(jnp.zeros((n, 6), dtype=K.dtype).at[dofs].set(jnp.linalg.pinv(unit).T))
    loads = jnp.concatenate(parts, axis=1)
    if method == "free":
        loads = loads - M @ R @ jnp.linalg.solve(R.T @ M @ R, R.T @ loads)
    inner = jnp.linalg.solve(K[free[:, None], free[None]], loads[free])
    return jnp.zeros(loads.shape, dtype=K.dtype).at[free].set(inner)


def _scaled(
    B: Float[Array, "n k"], K: Float[Array, "n n"]
) -> tuple[Float[Array, "n k"], Float[Array, ""]]:
    """The shapes with unit elastic energy, and the lowest eigenvalue of their Gram matrix."""
    scale = 1.0 / jnp.sqrt(jnp.einsum("ik,ij,jk->k", B, K, B))
    scaled = B * scale[None]
    gram = jax.lax.stop_gradient(scaled.T @ K @ scaled)
    return scaled, jnp.linalg.eigvalsh(gram)[0]


def _conditions(
    M: Array, R: Array, positions: Array, ends: Interfaces, frame: str
) -> Float[Array, "6 n"]:
    """Rows C of the conditions C u = 0 on displacements in the frame of reference."""
    n = M.shape[0]
    if frame == "mean-axis":
        return R.T @ M
    per_node = n // positions.shape[0]

    def motion(k: int) -> Float[Array, "6 n"]:
        """Displacement and rotation of the k-th interface."""
        dofs, centre = ends.dofs(per_node)[k], ends.centres(positions)[k]
        fit = jnp.linalg.pinv(rigid_modes(positions, per_node, centre)[dofs])
        return jnp.zeros((6, n), dtype=M.dtype).at[:, dofs].set(fit)

    first = motion(0)
    if frame == "clamped":
        return first
    a, b = ends.centres(positions)[:2]
    axis = (b - a) / jnp.linalg.norm(b - a)
    across = jnp.linalg.svd(axis[None])[2][1:]
    return jnp.concatenate([first[:3], axis[None] @ first[3:], across @ motion(1)[:3]])


def projected(matrix: Float[Array, "n n"], shapes: Float[Array, "n k"]) -> Float[Array, "k k"]:
    """A symmetric matrix on mode shapes, symmetric despite rounding errors."""
    found = shapes.T @ matrix @ shapes
    return 0.5 * (found + found.T)


def shapes_of(basis: Any, computed: Any, n: int, caller: str) -> Float[Array, "n k"]:
    """Mode shapes by the argument `basis`: frozen, moving, or given."""
    if isinstance(basis, str):
        if basis == "moving":
            return computed()
        if basis == "frozen":
            return jax.lax.stop_gradient(computed())
        raise ModelError(f"{caller}: basis must be 'frozen', 'moving' or an array, got {basis!r}")
    given = as_leaf(basis, None, f"{caller}: basis")
    if given.ndim != 2 or given.shape[0] != n:
        raise ModelError(f"{caller}: basis must have {n} rows, got shape {given.shape}")
    return given


# Damping matrices of elastic coordinates ----------------------------------------------------------


class Rayleigh(eqx.Module):
    """Damping D = α M + β K, with the mass matrix M of the elastic coordinates at η = 0.

    **Arguments:** `alpha` [1/s]; `beta` [s].
    """

    alpha: Float[Array, ""]
    beta: Float[Array, ""]

    def __init__(self, alpha: Any = 0.0, beta: Any = 0.0):
        self.alpha = as_leaf(alpha, (), "Rayleigh: alpha")
        self.beta = as_leaf(beta, (), "Rayleigh: beta")


def damping_matrix(
    damping: Any, K: Float[Array, "k k"], M: Float[Array, "k k"]
) -> Float[Array, "k k"]:
    """D from a `Rayleigh`, or from damping ratios: a number, or one for each elastic coordinate.

    The ratio ζ of a coordinate with stiffness κ and mass μ gives it the damping 2 ζ √(κ μ).
    """
    if isinstance(damping, Rayleigh):
        alpha, beta = (jnp.asarray(x, dtype=K.dtype) for x in (damping.alpha, damping.beta))
        return alpha * M + beta * K
    ratio = as_leaf(damping, None, "damping").astype(K.dtype)
    ratio = jnp.broadcast_to(jnp.atleast_1d(ratio), (K.shape[0],))
    return jnp.diag(2.0 * ratio * jnp.sqrt(jnp.diagonal(K) * jnp.diagonal(M)))
