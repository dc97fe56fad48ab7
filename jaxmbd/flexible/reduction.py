"""Reduced bodies from the matrices of finite element models."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import FlexibleBody
from ..bodies.flexible import indefinite
from ..errors import ModelError
from ..model.model import unknown
from ..model.values import as_count, as_leaf, as_mapping, as_names, is_concrete
from ..programs import stored
from .interfaces import Interfaces, per_node_of, rigid_modes
from .mode_shapes import damping_matrix, modes, projected, shapes_of

# Geometric stiffness of reduced bodies, as displacements of second order --------------------------

# Relative size of singular values that count as zero, and of load data that has no mass to act on.
SINGULAR, UNRELATED = 1e-12, 1e-6


class GeometricStiffness(eqx.Module):
    """Geometric stiffness matrices of a finite element model for unit loads (Wallrapp &
    Schwertassek 1991).

    Each is the derivative of the tangent stiffness by a load, with the body held at its first
    interface and the load in equilibrium with the reactions there. Its rows and columns are those
    of K.

    **Arguments:**

    - `uniform`: for the body force ρ e_j per unit volume, j = x, y, z, shape `(3, n, n)`. A force
      of weight g is g times this one.
    - `linear`: for the body forces ρ x_i e_j, with the positions x_i, shape `(3, 3, n, n)` by i and
      j. Centrifugal and angular accelerations are sums of them.
    - `loads`: `{name: matrices}` for unit forces along x, y, z and unit moments about them at named
      nodes, shape `(6, n, n)`. Loads at other nodes do not stiffen the body.

    **Raises** `ModelError` for wrong shapes.
    """

    uniform: Float[Array, "3 n n"]
    linear: Float[Array, "3 3 n n"]
    loads: dict[str, Float[Array, "6 n n"]]

    def __init__(self, uniform: Any, linear: Any, loads: Mapping[str, Any] | None = None):
        caller = "GeometricStiffness"
        self.uniform = as_leaf(uniform, None, f"{caller}: uniform")
        n = self.uniform.shape[-1] if self.uniform.ndim > 0 else 0
        as_leaf(self.uniform, (3, n, n), f"{caller}: uniform")
        self.linear = as_leaf(linear, (3, 3, n, n), f"{caller}: linear")
        self.loads = {
            name: as_leaf(x, (6, n, n), f"{caller}: loads: {name!r}")
            for name, x in (loads or {}).items()
        }


def stiffened(
    arrays: Mapping[str, Any],
    geometric: GeometricStiffness,
    shapes: Float[Array, "n k"],
    rows: Mapping[str, int],
    caller: str,
) -> dict[str, Any]:
    """Arrays of a reduced body with displacements of second order that have this stiffness.

    A load does the work ½ ηᵀ ψ η through displacements ψ of second order, so that ψ = -K_geo for
    a unit load. Between the loads that are given, ψ is affine in the undeformed position, which
    makes the mass matrix the least one that is consistent with them.

    **Raises** `ModelError` for unknown nodes, and for body forces without mass to act on.
    """
    if geometric.uniform.shape[-1] != shapes.shape[0]:
        raise ModelError(
            f"{caller}: matrices of geometric stiffness have {geometric.uniform.shape[-1]} rows, "
            f"but K has {shapes.shape[0]}"
        )
    for name in geometric.loads:
        if name not in rows:
            raise ModelError(unknown(f"{caller}: geometric: unknown node", name, dict(rows)))
    first, second, error = _geometric_integrals(arrays, geometric, shapes)
    if is_concrete(error) and not float(error) < UNRELATED:
        raise ModelError(
            f"{caller}: geometric stiffness for body forces along directions in which the body has "
            f"no extent (relative size {float(error):.1e}); check the order of `linear`, by i and j"
        )
    a, b = np.triu_indices(shapes.shape[1])
    pairs = jnp.zeros((len(rows), 6, len(a)), dtype=shapes.dtype)
    for name, matrices in geometric.loads.items():
        pairs = pairs.at[rows[name]].set(-_projected(matrices, shapes)[:, a, b])
    pairs = jnp.swapaxes(pairs, 1, 2)
    return {
        "first": first,
        "second": second,
        "translations": jnp.concatenate([arrays["translations"], pairs[..., :3]], axis=1),
        "rotations": jnp.concatenate([arrays["rotations"], pairs[..., 3:]], axis=1),
    }


def _projected(matrices: Float[Array, "*m n n"], shapes: Float[Array, "n k"]) -> Array:
    matrices = matrices.astype(shapes.dtype)
    return jnp.einsum("ia,...ij,jb->...ab", shapes, 0.5 * (matrices + matrices.mT), shapes)


@stored
def _geometric_integrals(
    arrays: Mapping[str, Any], geometric: GeometricStiffness, shapes: Float[Array, "n k"]
) -> tuple[Float[Array, "m 3"], Float[Array, "m 3 m 3"], Float[Array, ""]]:
    """s and S with pairs, and the part of the load data that no affine ψ has."""
    a, b = np.triu_indices(shapes.shape[1])
    uniform, linear = (_projected(x, shapes) for x in (geometric.uniform, geometric.linear))
    work = -jnp.concatenate([uniform[None], linear])[:, :, a, b]  # By (1, x_i), j and pair.
    first, second = arrays["first"], arrays["second"]
    # ∫ρ of products of (1, x, y, z), and of these with the fields.
    corner = jnp.concatenate([arrays["mass"][None], first[0]])[None]
    gram = jnp.concatenate([corner, jnp.concatenate([first[0][:, None], second[0, :, 0]], axis=1)])
    moments = jnp.concatenate([first[:, :, None], second[:, :, 0]], axis=2)
    size = jnp.sqrt(jnp.diagonal(gram))
    unit = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    inverse = jnp.linalg.pinv(gram * unit[:, None] * unit[None], rtol=SINGULAR, hermitian=True)
    affine = jnp.einsum("lm,mjp->ljp", inverse * unit[:, None] * unit[None], work)
    found = jnp.einsum("lm,mjp->ljp", gram, affine)
    scale = jnp.max(jnp.abs(work))
    error = jnp.max(jnp.abs(found - work)) / jnp.where(scale > 0, scale, 1.0)
    mixed = jnp.einsum("ail,ljp->aipj", moments, affine)
    of_pairs = jnp.einsum("lip,lm,mjq->piqj", affine, gram, affine)
    n, m = first.shape[0], len(a)
    S = jnp.concatenate(
        [
            jnp.concatenate([second, mixed], axis=2),
            jnp.concatenate([jnp.transpose(mixed, (2, 3, 0, 1)), of_pairs], axis=2),
        ]
    )
    s = jnp.concatenate([first, found[0].T])
    return s, S.reshape(n + m, 3, n + m, 3), error


# Largest force of K on a rigid motion, relative to ‖K‖ times the motion.
RIGID = 1e-6


def checked_matrices(
    K: Array, M: Array, positions: Array, caller: str
) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """The symmetric parts of K and M; **raises** `ModelError` for invalid concrete values."""
    if not (is_concrete(K) and is_concrete(M) and is_concrete(positions)):
        return 0.5 * (K + K.T), 0.5 * (M + M.T)
    for name, matrix in (("K", np.asarray(K)), ("M", np.asarray(M))):
        if not np.all(np.isfinite(matrix)):
            raise ModelError(f"{caller}: {name} must be finite")
        problem = indefinite(name, matrix)
        if problem is not None:
            raise ModelError(f"{caller}: {problem}")
    forces = np.asarray(_rigid_forces(K, positions))
    if forces.max() > RIGID:
        motions = [m for m, f in zip(_RIGID_MOTIONS, forces, strict=True) if f > RIGID]
        raise ModelError(
            f"{caller}: K resists the rigid {', '.join(motions)} of the body (by up to "
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
    geometric: GeometricStiffness | None = None,
) -> FlexibleBody:
    """A flexible body from the stiffness and mass matrix of a free finite element model.

    Displacements are u = Φ η. The body's frame of reference has the axes and the origin of
    `positions`. Loads stiffen the body only by `geometric`, since K and M do not contain it:
    without it, divide the body, or use `beam`, if loads along a slender part matter.

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
    - `attachments`: names of nodes; each adds six static modes by unit loads.
    - `nodes`: `{name: rows}` of further nodes for frames.
    - `damping`: modal damping ratios, a number or one for each mode; or a `Rayleigh`.
    - `geometric`: a `GeometricStiffness`, with `frame="clamped"`. Default: no stiffening.

    **Raises** `ModelError` for matrices that are not symmetric or indefinite, for supports left in
    K, for unknown nodes, and for a number of modes that parts a pair of repeated ones.

    For example:

        nodes = jnp.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0.3, 0.3, 1.0]])
        K = jnp.zeros((4, 3, 4, 3))  # of a tetrahedron of bars
        for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
            d = (nodes[j] - nodes[i]) / jnp.linalg.norm(nodes[j] - nodes[i])
            k = 1e6 * jnp.outer(d, d)
            K = K.at[i, :, i].add(k).at[j, :, j].add(k).at[i, :, j].add(-k).at[j, :, i].add(-k)
        M = 0.5 * jnp.eye(12)
        body = mbd.flexible.reduce(K.reshape(12, 12), M, nodes, {"base": [0, 1, 2]}, n_modes=2)
    """
    caller = "flexible.reduce"
    K, M = as_leaf(K, None, f"{caller}: K"), as_leaf(M, None, f"{caller}: M")
    positions = as_leaf(positions, None, f"{caller}: positions")
    if positions.ndim != 2 or positions.shape[1] != 3:
        raise ModelError(f"{caller}: positions must have shape (n_nodes, 3), got {positions.shape}")
    for name, matrix in (("K", K), ("M", M)):
        if matrix.ndim != 2:
            raise ModelError(f"{caller}: {name} must be a matrix, got shape {matrix.shape}")
    interfaces = as_mapping(interfaces, f"{caller}: interfaces", "{name: row}")
    nodes = as_mapping(nodes, f"{caller}: nodes", "{name: row}")
    attachments = as_names(attachments, f"{caller}: attachments")
    n_modes = as_count(n_modes, f"{caller}: n_modes", least=0)
    per_node = per_node_of(K, positions, caller)
    as_leaf(K, (per_node * len(positions),) * 2, f"{caller}: K")
    as_leaf(M, K.shape, f"{caller}: M")
    K, M = checked_matrices(K, M, positions, caller)
    known = {**nodes, **interfaces}

    def computed() -> Array:
        return modes(K, M, positions, interfaces, n_modes, method, frame, attachments, nodes)

    shapes = shapes_of(basis, computed, K.shape[0], caller)
    _check_mass(M.reshape(len(positions), per_node, len(positions), per_node), caller)
    named = Interfaces.of(known, len(positions), caller)
    arrays = _reduced(K, M, positions, shapes, named, damping)
    if geometric is not None:
        if frame != "clamped":
            raise ModelError(
                f"{caller}: geometric stiffness requires frame='clamped', got {frame!r}"
            )
        arrays |= stiffened(arrays, geometric, shapes, named.by_row(), caller)
    return FlexibleBody(**arrays, nodes=named.by_row())


@stored
def _reduced(
    K: Array, M: Array, positions: Array, shapes: Array, named: Interfaces, damping: Any
) -> dict[str, Any]:
    """Arrays of the reduced body."""
    per_node = K.shape[0] // positions.shape[0]
    mass, first, second = _integrals(M, positions, shapes)
    centres = jnp.stack(named.centres(positions))
    motions = [
        jnp.linalg.pinv(rigid_modes(positions, per_node, centre)[dofs]) @ shapes[dofs]
        for centre, dofs in zip(centres, named.dofs(per_node), strict=True)
    ]
    at_nodes = jnp.swapaxes(jnp.stack(motions), 1, 2)
    stiffness = projected(K, shapes)
    return {
        "mass": mass,
        "first": first,
        "second": second,
        "stiffness": stiffness,
        "damping": damping_matrix(damping, stiffness, projected(M, shapes)),
        "positions": centres,
        "translations": at_nodes[..., :3],
        "rotations": at_nodes[..., 3:],
    }


def _integrals(
    M: Array, positions: Array, shapes: Array
) -> tuple[Float[Array, ""], Float[Array, "n 3"], Float[Array, "n 3 n 3"]]:
    """m, s and S from a mass matrix, exact for solid elements and for lumped masses."""
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
        second = second + _turning(blocks[nodes, 3:, nodes, 3:], by_node[:, 3:])
    return jnp.sum(scalar), first, second


def lump_integrals(
    masses: Any, inertias: Any, positions: Any, shapes: Any
) -> tuple[Float[Array, "n 3"], Float[Array, "n 3 n 3"]]:
    """Integrals s and S of `FlexibleBody` from rigid lumps at nodes.

    **Arguments:** `masses`: shape `(n_nodes,)` [kg]; `inertias`: tensors about the nodes, shape
    `(n_nodes, 3, 3)` [kg m²]; `positions`: shape `(n_nodes, 3)` [m]; `shapes`: displacements and
    rotation vectors of the nodes, shape `(n_nodes, 6, k)`.
    """
    masses, inertias, positions, shapes = map(jnp.asarray, (masses, inertias, positions, shapes))
    psi = jnp.concatenate([positions[:, :, None], shapes[:, :3]], axis=2)
    second = jnp.einsum("n,nia,njb->aibj", masses, psi, psi)
    return jnp.einsum("n,nib->bi", masses, psi), second + _turning(inertias, shapes[:, 3:])


def _turning(
    J: Float[Array, "n_nodes 3 3"], rotations: Float[Array, "n_nodes 3 k"]
) -> Float[Array, "n 3 n 3"]:
    """The part of S by the extent of lumps with tensors of inertia J.

    A point of the lump of a node is at u + D b, with the directors D = 1 + θ̂ of the node and
    ∫ρ b bᵀ = ½ tr(J) 1 - J.
    """
    axes = jnp.eye(3, dtype=J.dtype)
    lump = 0.5 * jnp.trace(J, axis1=1, axis2=2)[:, None, None] * axes[None] - J
    # Column l of the director for the rotation θ is θ × e_l.
    turned = jnp.cross(jnp.swapaxes(rotations, 1, 2)[:, :, None], axes[None, None])
    undeformed = jnp.broadcast_to(axes, (J.shape[0], 1, 3, 3))
    D = jnp.concatenate([undeformed, turned], axis=1)
    return jnp.einsum("nali,nlm,nbmj->aibj", D, lump, D)


def _check_mass(blocks: Float[Array, "n d n d"], caller: str) -> None:
    """**Raises** `ModelError` if S does not follow from the mass matrix."""
    if not is_concrete(blocks):
        return
    M = np.asarray(blocks)
    scale = np.abs(M).max()
    moves = M[:, :3, :, :3]
    isotropic = moves[:, :1, :, :1] * np.eye(3)[None, :, None, :]
    if np.abs(moves - isotropic).max() > 1e-8 * scale:
        raise ModelError(
            f"{caller}: M differs between directions or couples them, from which inertia at large "
            "rotations does not follow; lump the masses, or use flexible.beam for beams"
        )
    if M.shape[1] == 6:
        n = np.arange(M.shape[0])
        rest = M.copy()
        rest[:, :3, :, :3] = 0.0
        rest[n, 3:, n, 3:] = 0.0
        if np.abs(rest).max() > 1e-8 * scale:
            raise ModelError(
                f"{caller}: M couples rotations of a node with other degrees of freedom; lump the "
                "masses, or use flexible.beam for beams"
            )
