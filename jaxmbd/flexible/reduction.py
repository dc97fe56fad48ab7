"""Reduction of finite element models: mode shapes, frames of reference, and reduced bodies.

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

from ..bodies import FlexibleBody
from ..bodies.flexible import indefinite
from ..errors import ModelError
from ..model.values import as_leaf, is_concrete
from .damping import damping_matrix

# Relative difference up to which eigenvalues count as repeated.
REPEATED = 1e-6
# Largest force of K on a rigid motion, relative to ‖K‖ times the motion.
RIGID = 1e-6
# Lowest eigenvalue of the Gram matrix of shapes with unit elastic energy.
INDEPENDENT = 1e-10


class Interfaces(eqx.Module):
    """Named sets of nodes, each of which counts as rigid; static."""

    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def of(given: Mapping[str, Any], n_nodes: int, who: str) -> "Interfaces":
        """**Raises** `ModelError` for rows that are not those of nodes."""
        rows = []
        for name, value in given.items():
            own = tuple(int(row) for row in np.atleast_1d(np.asarray(value)))
            if not own or min(own) < 0 or max(own) >= n_nodes:
                raise ModelError(
                    f"{who}: node {name!r} has the rows {own}, but there are {n_nodes} nodes "
                    "(rows count nodes, not degrees of freedom)"
                )
            rows.append(own)
        return Interfaces(tuple(given), tuple(rows))

    def select(self, names: Sequence[str], who: str) -> "Interfaces":
        """Those of these names, in their order; **raises** `ModelError` for an unknown name."""
        for name in names:
            if name not in self.names:
                listed = ", ".join(map(repr, self.names)) or "none"
                raise ModelError(f"{who}: unknown node {name!r}; known are {listed}")
        rows = dict(zip(self.names, self.rows, strict=True))
        return Interfaces(tuple(names), tuple(rows[name] for name in names))

    def by_row(self) -> dict[str, int]:
        """Their rows in this order."""
        return {name: row for row, name in enumerate(self.names)}

    def dofs(self, per_node: int) -> list[np.ndarray]:
        """Degrees of freedom of each."""
        return [
            (per_node * np.asarray(rows)[:, None] + np.arange(per_node)).ravel()
            for rows in self.rows
        ]

    def centres(self, positions: Float[Array, "n_nodes 3"]) -> list[Float[Array, "3"]]:
        """Mean position of the nodes of each."""
        return [jnp.mean(positions[np.asarray(rows)], axis=0) for rows in self.rows]


def rigid_modes(
    positions: Float[Array, "n_nodes 3"], per_node: int, centre: Float[Array, "3"]
) -> Float[Array, "n_dofs 6"]:
    """Degrees of freedom for unit translations, and unit rotations about `centre`."""
    arms = positions - centre[None]
    dtype, eye = positions.dtype, jnp.eye(3, dtype=positions.dtype)
    turned = jax.vmap(lambda s: jnp.cross(eye, s[None]).T)(arms)  # Column j: e_j × s.
    moved = jnp.broadcast_to(eye, (*arms.shape[:1], 3, 3))
    rows = jnp.concatenate([moved, turned], axis=2)
    if per_node == 6:
        rotations = jnp.concatenate([jnp.zeros((3, 3), dtype), eye], axis=1)
        below = jnp.broadcast_to(rotations, (*arms.shape[:1], 3, 6))
        rows = jnp.concatenate([rows, below], axis=1)
    return rows.reshape(-1, 6)


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
    """Eigenvalues ω², ascending, and eigenvectors y of K y = ω² M y, with yᵀ M y = 1."""
    L = jnp.linalg.cholesky(M)
    half = jsl.solve_triangular(L, K, lower=True)
    A = jsl.solve_triangular(L, half.T, lower=True)
    values, vectors = eigh(0.5 * (A + A.T))
    return values, jsl.solve_triangular(L, vectors, trans=1, lower=True)


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


def _check_cut(cut: Array, n: int, who: str) -> None:
    """**Raises** `ModelError` if a number of modes parts a pair of repeated ones."""
    if not is_concrete(cut):
        return
    inside, outside = np.asarray(cut)
    if n > 0 and np.isfinite(outside) and abs(outside - inside) <= REPEATED * abs(outside):
        raise ModelError(
            f"{who}: modes {n} and {n + 1} have the same frequency, {np.sqrt(outside):.6g} rad/s, "
            f"and n_modes={n} would keep one of them, in an arbitrary direction; choose "
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
    who = "flexible.modes"
    per_node = _per_node(K, positions, who)
    known = Interfaces.of({**(nodes or {}), **interfaces}, len(positions), who)
    ends = known.select(tuple(interfaces), who)
    if not ends.names:
        raise ModelError(f"{who}: interfaces must name at least one node, at which a joint acts")
    loaded = known.select(tuple(attachments), who)
    if method not in ("craig-bampton", "free"):
        raise ModelError(f"{who}: method must be 'craig-bampton' or 'free', got {method!r}")
    if frame not in ("clamped", "chord", "mean-axis"):
        raise ModelError(f"{who}: frame must be clamped, chord or mean-axis, got {frame!r}")
    if frame == "chord" and len(ends.names) < 2:
        raise ModelError(f"{who}: frame='chord' needs two interfaces, at the ends of the chord")
    held = ends.dofs(per_node) if method == "craig-bampton" else [np.arange(6)]
    available = len(K) - sum(len(dofs) for dofs in held)
    if not 0 <= n_modes <= available:
        raise ModelError(f"{who}: n_modes must be from 0 to {available}, got {n_modes}")
    shapes, cut, independence = _modes(K, M, positions, ends, loaded, n_modes, method, frame)
    _check_cut(cut, n_modes, who)
    if is_concrete(independence) and not float(independence) > INDEPENDENT:
        raise ModelError(
            f"{who}: attachment modes repeat other modes; leave out attachments at interfaces, or "
            "reduce n_modes"
        )
    return shapes


@eqx.filter_jit
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


def _per_node(K: Array, positions: Array, who: str) -> int:
    n, n_nodes = K.shape[0], positions.shape[0]
    if n_nodes == 0 or n not in (3 * n_nodes, 6 * n_nodes):
        raise ModelError(
            f"{who}: K has {n} rows for {n_nodes} positions; nodes have 3 degrees of freedom "
            "(displacement), or 6 (displacement and rotation vector)"
        )
    return n // n_nodes


def checked_matrices(
    K: Array, M: Array, positions: Array, who: str
) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """The symmetric parts of K and M; **raises** `ModelError` for invalid concrete values."""
    if not (is_concrete(K) and is_concrete(M) and is_concrete(positions)):
        return 0.5 * (K + K.T), 0.5 * (M + M.T)
    for name, matrix in (("K", np.asarray(K)), ("M", np.asarray(M))):
        if not np.all(np.isfinite(matrix)):
            raise ModelError(f"{who}: {name} must be finite")
        problem = indefinite(name, matrix)
        if problem is not None:
            raise ModelError(f"{who}: {problem}")
    forces = np.asarray(_rigid_forces(K, positions))
    if forces.max() > RIGID:
        motions = [m for m, f in zip(_RIGID_MOTIONS, forces, strict=True) if f > RIGID]
        raise ModelError(
            f"{who}: K resists the rigid {', '.join(motions)} of the body (by up to "
            f"{forces.max():.1e} of its norm); export the matrices of the free body, without "
            "supports, with positions and rotations in the units of K"
        )
    return 0.5 * (K + K.T), 0.5 * (M + M.T)


@jax.jit
def _rigid_forces(K: Float[Array, "n n"], positions: Float[Array, "m 3"]) -> Float[Array, "6"]:
    """Norms of the forces of K on unit rigid motions, relative to that of K."""
    per_node = K.shape[0] // positions.shape[0]
    R = rigid_modes(positions, per_node, jnp.mean(positions, axis=0))
    return jnp.linalg.norm(K @ R, axis=0) / jnp.linalg.norm(R, axis=0) / jnp.linalg.norm(K)


_RIGID_MOTIONS = [f"{kind} {axis}" for kind in ("motion along", "rotation about") for axis in "xyz"]


def shapes_of(basis: Any, computed: Any, n: int, who: str) -> Float[Array, "n k"]:
    """Mode shapes by the argument `basis`: frozen, moving, or given."""
    if isinstance(basis, str):
        if basis == "moving":
            return computed()
        if basis == "frozen":
            return jax.lax.stop_gradient(computed())
        raise ModelError(f"{who}: basis must be 'frozen', 'moving' or an array, got {basis!r}")
    given = as_leaf(basis, None, f"{who}: basis")
    if given.ndim != 2 or given.shape[0] != n:
        raise ModelError(f"{who}: basis must have {n} rows, got shape {given.shape}")
    return given


def reduce(
    K: Any,
    M: Any,
    positions: Any,
    interfaces: Mapping[str, Any],
    n_modes: int,
    method: str = "craig-bampton",
    frame: str = "clamped",
    basis: Any = "frozen",
    attachments: Sequence[str] = (),
    nodes: Mapping[str, Any] | None = None,
    damping: Any = 0.0,
) -> FlexibleBody:
    """A flexible body from the stiffness and mass matrix of a free finite element model.

    Displacements are u = Φ η. The body's frame of reference has the axes and the origin of
    `positions`. Geometric stiffening is not included, since K and M do not contain it: divide the
    body, or use `beam`, if loads along a slender part matter.

    **Arguments:**

    - `K`, `M`: symmetric, with 3 degrees of freedom a node (displacement) or 6 (displacement and
      rotation vector), node by node [N/m, kg and so on]. M of nodes with 3 must be the same in all
      three directions, as for solid elements. M of nodes with 6 must be lumped: a mass and a tensor
      of inertia for each node.
    - `positions`: undeformed positions of the nodes, shape `(n_nodes, 3)` [m].
    - `interfaces`: `{name: row}` or `{name: rows}` of nodes at which joints act. Several nodes move
      together rigidly, about their mean position.
    - `n_modes`: number of normal modes.
    - `method`: `"craig-bampton"`, modes with interfaces held, and six constraint modes for each
      interface after the first; `"free"`, modes of the free body.
    - `frame`: `"clamped"`, fixed in the first interface; `"chord"`, from the first towards the
      second interface; `"mean-axis"`, such that modes have no linear and angular momentum.
    - `basis`: `"frozen"`, Φ has no derivatives, and derivatives are those of K and M projected on
      it; `"moving"`, Φ has derivatives; or Φ itself, shape `(n, k)`, such as from `modes`.
    - `attachments`: names of nodes for each of which six static modes by unit loads are added.
    - `nodes`: `{name: rows}` of further nodes for frames.
    - `damping`: modal damping ratios, a number or one for each mode; or a `Rayleigh`.

    **Raises** `ModelError` for matrices that are not symmetric or indefinite, for supports left in
    K, for unknown nodes, and for a number of modes that parts a pair of repeated ones.
    """
    who = "flexible.reduce"
    K, M = as_leaf(K, None, f"{who}: K"), as_leaf(M, None, f"{who}: M")
    positions = as_leaf(positions, None, f"{who}: positions")
    as_leaf(positions, (len(positions), 3), f"{who}: positions")
    per_node = _per_node(K, positions, who)
    as_leaf(K, (per_node * len(positions),) * 2, f"{who}: K")
    as_leaf(M, K.shape, f"{who}: M")
    K, M = checked_matrices(K, M, positions, who)
    known = {**(nodes or {}), **interfaces}

    def computed() -> Array:
        return modes(K, M, positions, interfaces, n_modes, method, frame, attachments, nodes)

    shapes = shapes_of(basis, computed, K.shape[0], who)
    _check_mass(M.reshape(len(positions), per_node, len(positions), per_node), who)
    named = Interfaces.of(known, len(positions), who)
    return FlexibleBody(**_reduced(K, M, positions, shapes, named, damping), nodes=named.by_row())


@eqx.filter_jit
def _reduced(
    K: Array, M: Array, positions: Array, shapes: Array, named: Interfaces, damping: Any
) -> dict[str, Array]:
    """Arrays of the reduced body."""
    per_node = K.shape[0] // positions.shape[0]
    mass, first, second = _integrals(M, positions, shapes)
    centres = jnp.stack(named.centres(positions))
    motions = [
        jnp.linalg.pinv(rigid_modes(positions, per_node, centre)[dofs]) @ shapes[dofs]
        for centre, dofs in zip(centres, named.dofs(per_node), strict=True)
    ]
    at_nodes = jnp.swapaxes(jnp.stack(motions), 1, 2)
    stiffness = shapes.T @ K @ shapes
    return {
        "mass": mass,
        "first": first,
        "second": second,
        "stiffness": stiffness,
        "damping": damping_matrix(damping, stiffness, shapes.T @ M @ shapes),
        "positions": centres,
        "translations": at_nodes[..., :3],
        "rotations": at_nodes[..., 3:],
    }


def _integrals(
    M: Array, positions: Array, shapes: Array
) -> tuple[Float[Array, ""], Float[Array, "n 3"], Float[Array, "n 3 n 3"]]:
    """m, s and S from a mass matrix, exact for solid elements and for lumped masses.

    A point of the lump of a node is at u + D b, with the directors D = 1 + θ̂ of the node and
    ∫ρ b bᵀ = ½ tr(J) 1 - J.
    """
    n_nodes, per_node = positions.shape[0], M.shape[0] // positions.shape[0]
    k = shapes.shape[1]
    by_node = shapes.reshape(n_nodes, per_node, k)
    psi = jnp.concatenate([positions[:, :, None], by_node[:, :3]], axis=2)
    blocks = M.reshape(n_nodes, per_node, n_nodes, per_node)
    scalar = blocks[:, 0, :, 0]
    weighted = jnp.einsum("nm,mjb->njb", scalar, psi)
    second = jnp.einsum("nia,njb->aibj", psi, weighted)
    first = jnp.einsum("njb->bj", weighted)
    if per_node == 6:
        nodes = np.arange(n_nodes)
        J = blocks[nodes, 3:, nodes, 3:]
        axes = jnp.eye(3, dtype=M.dtype)
        lump = 0.5 * jnp.trace(J, axis1=1, axis2=2)[:, None, None] * axes[None] - J
        # Column l of the director for the rotation θ is θ × e_l.
        turned = jnp.cross(jnp.swapaxes(by_node[:, 3:], 1, 2)[:, :, None], axes[None, None])
        undeformed = jnp.broadcast_to(axes, (n_nodes, 1, 3, 3))
        D = jnp.concatenate([undeformed, turned], axis=1)
        second = second + jnp.einsum("nali,nlm,nbmj->aibj", D, lump, D)
    return jnp.sum(scalar), first, second


def _check_mass(blocks: Float[Array, "n d n d"], who: str) -> None:
    """**Raises** `ModelError` if S does not follow from the mass matrix."""
    if not is_concrete(blocks):
        return
    M = np.asarray(blocks)
    scale = np.abs(M).max()
    moves = M[:, :3, :, :3]
    isotropic = moves[:, :1, :, :1] * np.eye(3)[None, :, None, :]
    if np.abs(moves - isotropic).max() > 1e-8 * scale:
        raise ModelError(
            f"{who}: M differs between directions or couples them, from which inertia at large "
            "rotations does not follow; lump the masses, or use flexible.beam for beams"
        )
    if M.shape[1] == 6:
        n = np.arange(M.shape[0])
        rest = M.copy()
        rest[:, :3, :, :3] = 0.0
        rest[n, 3:, n, 3:] = 0.0
        if np.abs(rest).max() > 1e-8 * scale:
            raise ModelError(
                f"{who}: M couples rotations of a node with other degrees of freedom; lump the "
                "masses, or use flexible.beam for beams"
            )


__all__ = ["Interfaces", "eigen", "modes", "reduce", "shapes_of"]
