"""A flexible body: small deformations by shape functions in a floating frame of reference."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ModelError
from ..lie import Pose
from ..model.values import all_concrete, as_leaf, batched
from .abstract import AbstractBody

# The surface with which a flexible body is drawn --------------------------------------------------


class Skin(eqx.Module):
    """Triangles whose vertices move with the nodes of a flexible body. Equations ignore them.

    **Arguments:**

    - `rows`: for each vertex the row of the node with which it moves and turns, shape `(n,)`.
    - `arms`: from these nodes to the vertices at η = 0, in the body's frame, shape `(n, 3)` [m].
    - `triangles`: rows of vertices, shape `(m, 3)`.
    - `strains`: strain at the vertices for each elastic coordinate, shape `(n, k)`, or None.

    **Raises** `ModelError` for wrong shapes and unknown rows.
    """

    arms: Float[Array, "n 3"]
    strains: Float[Array, "n k"] | None
    # As bytes, whose hash Python keeps: the fields are part of the key of compiled programs.
    row_bytes: bytes = eqx.field(static=True)
    triangle_bytes: bytes = eqx.field(static=True)

    def __init__(self, rows: Any, arms: Any, triangles: Any, strains: Any = None):
        rows, triangles = (np.asarray(x, dtype=np.int32) for x in (rows, triangles))
        if rows.ndim != 1 or (triangles.size and triangles.shape[1:] != (3,)):
            raise ModelError(
                "Skin: rows must have shape (n,) and triangles shape (m, 3), got "
                f"{rows.shape} and {triangles.shape}"
            )
        n = len(rows)
        if triangles.size and not 0 <= triangles.min() <= triangles.max() < n:
            raise ModelError(f"Skin: triangles must refer to the {n} vertices by their rows")
        self.arms = as_leaf(arms, (n, 3), "Skin: arms")
        self.strains = None if strains is None else as_leaf(strains, None, "Skin: strains")
        if self.strains is not None:
            as_leaf(self.strains, (n, *self.strains.shape[1:]), "Skin: strains")
        self.row_bytes, self.triangle_bytes = rows.tobytes(), triangles.tobytes()

    @property
    def rows(self) -> np.ndarray:
        """Row of the node of each vertex, shape `(n,)`."""
        return np.frombuffer(self.row_bytes, dtype=np.int32)

    @property
    def triangles(self) -> np.ndarray:
        """Rows of the vertices of each triangle, shape `(m, 3)`."""
        return np.frombuffer(self.triangle_bytes, dtype=np.int32).reshape(-1, 3)


# Largest asymmetry, and most negative eigenvalue, of a matrix relative to its largest entry: in
# double precision, and in units of the precision.
TOLERANCE, ROUNDINGS = 1e-6, 1e2


# ω × p = Σ ω_k p_j, by k, j and the component of the product.
_CROSS = np.zeros((3, 3, 3))
for _k, _j, _i in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _CROSS[_k, _j, _i], _CROSS[_j, _k, _i] = 1.0, -1.0


def coefficients(eta: Float[Array, "k"], n_shapes: int) -> Float[Array, "n_shapes"]:
    """Coefficients (1, η_a, pairs) of the shape functions.

    A pair a ≤ b has the coefficient η_a η_b, and half of it if a = b. There are pairs if `n_shapes`
    exceeds 1 + k.
    """
    one = jnp.ones(1, dtype=eta.dtype)
    if n_shapes == 1 + eta.size:
        return jnp.concatenate([one, eta])
    a, b = np.triu_indices(eta.size)
    # Products with constant matrices: fewer operations than gathers, also when differentiated.
    unit = np.eye(eta.size)
    half = np.where(a == b, 0.5, 1.0)[:, None]
    left, right = (jnp.asarray(x, dtype=eta.dtype) for x in (half * unit[a], unit[b]))
    return jnp.concatenate([one, eta, (left @ eta) * (right @ eta)])


class FlexibleBody(AbstractBody):
    """A body whose points are at p(x, η) = Σ_A c_A(η) ψ_A(x) in its frame of reference.

    ψ₀ is the undeformed position. The next k shape functions, with c_a = η_a, are mode shapes. The
    others are optional: displacements of second order in η, one for each pair a ≤ b, with the
    coefficient η_a η_b (half of it if a = b). Through them loads along a beam stiffen its bending
    (geometric stiffening). The kinetic energy ½ ∫ρ u · u, u = v + ω × p + ṗ, is a function of the
    integrals m = ∫ρ, s_A = ∫ρ ψ_A and S[A, i, B, j] = ∫ρ ψ_{A,i} ψ_{B,j}, which take the place of
    inertia shape invariants (Omar 2014, eqs 35 to 40).

    `jaxmbd.flexible` builds such bodies from finite elements. n is 1 + k, or 1 + k + k (k + 1) / 2
    with pairs.

    **Arguments:**

    - `mass`: m [kg].
    - `first`: s, shape `(n, 3)`.
    - `second`: S, shape `(n, 3, n, 3)`. In units of η chosen such that η ψ is a length [m].
    - `stiffness`, `damping`: K and D, shape `(k, k)`; elastic energy ½ ηᵀ K η, damping force D η̇.
    - `positions`: undeformed positions of nodes, shape `(n_nodes, 3)` [m].
    - `translations`, `rotations`: displacement [m] and rotation vector [rad] of the nodes for each
      coefficient but the first, shape `(n_nodes, n - 1, 3)`.
    - `nodes`: `{name: row}` of named nodes; others are referred to by their rows.
    - `strains`: strain measures at the nodes for each η, shape `(n_nodes, k, 6)`, or None:
      elongation, shear along y and z [1], twist, curvatures about y and z [1/m].
    - `skin`: the surface with which animations draw the body, or None.
    - `without_strains`: rows of nodes at which strains are not unique, such as corners of frames.
    - `stresses`: stress at the nodes of a solid for each η, along the axes of the body, shape
      `(n_nodes, k, 6)`, or None: components xx, yy, zz, yz, zx, xy [Pa].

    Frames on the body name a node: `Frame("rod", node="tip")`.

    **Raises** `ModelError` for wrong shapes and unknown rows. `Model` raises it, with the body's
    name, for matrices that are not symmetric or not positive (semi)definite.

    For example:

        section = mbd.flexible.General(A=1e-4, Iy=1e-9, Iz=1e-9, J=2e-9)
        body = mbd.flexible.beam(1.0, 7e10, 2.6e10, 2700.0, section, 4, n_modes=2)
        body.frequencies()  # [rad/s]
    """

    mass: Float[Array, ""]
    first: Float[Array, "n 3"]
    second: Float[Array, "n 3 n 3"]
    stiffness: Float[Array, "k k"]
    damping: Float[Array, "k k"]
    positions: Float[Array, "n_nodes 3"]
    translations: Float[Array, "n_nodes n-1 3"]
    rotations: Float[Array, "n_nodes n-1 3"]
    strains: Float[Array, "n_nodes k 6"] | None
    skin: Skin | None
    nodes: tuple[tuple[str, int], ...] = eqx.field(static=True)
    without_strains: tuple[int, ...] = eqx.field(static=True)
    stresses: Float[Array, "n_nodes k 6"] | None

    def __init__(
        self,
        mass: Any,
        first: Any,
        second: Any,
        stiffness: Any,
        damping: Any,
        positions: Any,
        translations: Any,
        rotations: Any,
        nodes: Mapping[str, int],
        strains: Any = None,
        skin: Skin | None = None,
        without_strains: Sequence[int] = (),
        stresses: Any = None,
    ):
        caller = "FlexibleBody"
        self.mass = as_leaf(mass, (), f"{caller}: mass")
        self.stiffness = as_leaf(stiffness, None, f"{caller}: stiffness")
        k = self.stiffness.shape[0] if self.stiffness.ndim == 2 else 0
        as_leaf(self.stiffness, (k, k), f"{caller}: stiffness")
        self.damping = as_leaf(damping, (k, k), f"{caller}: damping")
        self.first = as_leaf(first, None, f"{caller}: first")
        n = self.first.shape[0] if self.first.ndim == 2 else 0
        if n not in (1 + k, 1 + k + k * (k + 1) // 2):
            raise ModelError(
                f"{caller}: first must have 1 + k rows, or 1 + k + k (k + 1) / 2 with "
                f"displacements of second order, for k = {k} elastic coordinates; got "
                f"shape {self.first.shape}"
            )
        as_leaf(self.first, (n, 3), f"{caller}: first")
        self.second = as_leaf(second, (n, 3, n, 3), f"{caller}: second")
        self.positions = as_leaf(positions, None, f"{caller}: positions")
        m = self.positions.shape[0] if self.positions.ndim == 2 else 0
        as_leaf(self.positions, (m, 3), f"{caller}: positions")
        self.translations = as_leaf(translations, (m, n - 1, 3), f"{caller}: translations")
        self.rotations = as_leaf(rotations, (m, n - 1, 3), f"{caller}: rotations")
        self.strains = (
            None if strains is None else as_leaf(strains, (m, k, 6), f"{caller}: strains")
        )
        self.stresses = (
            None if stresses is None else as_leaf(stresses, (m, k, 6), f"{caller}: stresses")
        )
        self.skin, self.without_strains = skin, tuple(int(row) for row in without_strains)
        if skin is not None and skin.rows.size and not 0 <= skin.rows.min() <= skin.rows.max() < m:
            raise ModelError(f"{caller}: skin must refer to the {m} nodes by their rows")
        if skin is not None and skin.strains is not None:
            as_leaf(skin.strains, (skin.arms.shape[0], k), f"{caller}: strains of the skin")
        self.nodes = tuple(sorted((str(name), int(row)) for name, row in nodes.items()))
        for name, row in self.nodes:
            if not 0 <= row < m:
                raise ModelError(f"{caller}: node {name!r} is row {row}, but there are {m} nodes")

    @property
    def n_elastic(self) -> int:
        return self.stiffness.shape[-1]

    def coefficients(self, eta: Float[Array, "k"]) -> Float[Array, "n"]:
        """Coefficients (1, η, pairs) of the shape functions."""
        return coefficients(eta, self.first.shape[0])

    def kinetic_energy(
        self, eta: Float[Array, "k"], V: Float[Array, "6"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, ""]:
        X = self._velocity_field(eta, V, eta_dot)
        of_frame = 0.5 * self.mass * (V[:3] @ V[:3])
        mixed = jnp.tensordot(self.first, X, 2) @ V[:3]
        return of_frame + mixed + 0.5 * jnp.vdot(X, jnp.tensordot(self.second, X, 2))

    def _velocity_field(
        self, eta: Float[Array, "k"], V: Float[Array, "6"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, "n 3 3"]:
        """X of the velocities v_i + Σ X[A, j, i] ψ_{A,j} of points along axis i."""
        c, c_dot = jax.jvp(self.coefficients, (eta,), (eta_dot,))
        return jnp.tensordot(c, _cross(V[3:]), 0) + jnp.tensordot(
            c_dot, jnp.eye(3, dtype=V.dtype), 0
        )

    def _resultants(
        self, eta: Float[Array, "k"], a: Float[Array, "3"], Y: Float[Array, "n 3 3"]
    ) -> Float[Array, "6+k"]:
        """Force on (V, η̇) of the force density ρ (a_i + Σ Y[A, j, i] ψ_{A,j}) along axis i."""
        c, back = jax.vjp(self.coefficients, eta)
        force = self.mass * a + jnp.tensordot(self.first, Y, 2)
        # ∫ρ ψ_{A,j} times the density along i.
        F = jnp.tensordot(self.second, Y, 2) + jnp.tensordot(self.first, a, 0)
        product = jnp.asarray(_CROSS, dtype=Y.dtype)
        torque = jnp.tensordot(jnp.tensordot(c, F, 1), product, 2)
        return jnp.concatenate([force, torque, *back(jnp.trace(F, axis1=1, axis2=2))])

    def momentum(self, eta: Float[Array, "k"], u: Float[Array, "6+k"]) -> Float[Array, "6+k"]:
        return self._resultants(eta, u[:3], self._velocity_field(eta, u[:6], u[6:]))

    def momentum_at_uniform_velocity(
        self, eta: Float[Array, "k"], velocity: Float[Array, "3"]
    ) -> Float[Array, "6+k"]:
        c, back = jax.vjp(self.coefficients, eta)
        angular = jnp.cross(c @ self.first, velocity)
        return jnp.concatenate([self.mass * velocity, angular, *back(self.first @ velocity)])

    def mass_matrix(self, eta: Float[Array, "k"]) -> Float[Array, "6+k 6+k"]:
        # Once contracted with c, S has all that depends on η.
        c, slope = self.coefficients(eta), jax.jacfwd(self.coefficients)(eta)
        eye, product = jnp.eye(3, dtype=eta.dtype), jnp.asarray(_CROSS, dtype=eta.dtype)
        of_c = jnp.tensordot(c, self.second, 1)
        moments = jnp.einsum("ibj,b->ij", of_c, c)
        traces = jnp.einsum("aibi->ab", self.second)
        mixed = jnp.einsum("kji,j->ik", product, c @ self.first)
        frame = [
            jnp.concatenate([self.mass * eye, mixed, self.first.T @ slope], axis=1),
            jnp.concatenate(
                [
                    mixed.T,
                    jnp.trace(moments) * eye - moments,
                    jnp.einsum("ibl,ilm,ba->ma", of_c, product, slope),
                ],
                axis=1,
            ),
        ]
        upper = jnp.concatenate(frame)
        elastic = slope.T @ traces @ slope
        return jnp.concatenate([upper, jnp.concatenate([upper[:, 6:].T, elastic], axis=1)])

    def inertial_force(
        self, eta: Float[Array, "k"], u: Float[Array, "6+k"], u_dot: Float[Array, "6+k"]
    ) -> Float[Array, "6+k"]:
        # d'Alembert: points are accelerated by u̇ + ω × u, and S is needed once.
        def velocity(eta: Array, u: Array) -> tuple[Array, Array]:
            return u[:3], self._velocity_field(eta, u[:6], u[6:])

        field, rates = jax.jvp(velocity, (eta, u), (u[6:], u_dot))
        turned = _cross(u[3:6])
        a, Y = (rate + x @ turned for x, rate in zip(field, rates, strict=True))
        return self._resultants(eta, a, Y)

    def elastic_energy(self, eta: Float[Array, "k"]) -> Float[Array, ""]:
        return 0.5 * eta @ self.stiffness @ eta

    def damping_force(
        self, eta: Float[Array, "k"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, "k"]:
        return self.damping @ eta_dot

    def modal_mass(self) -> Float[Array, "k k"]:
        """Mass matrix of the elastic coordinates at η = 0."""
        k = self.n_elastic
        return jnp.einsum("aibi->ab", self.second[1 : 1 + k, :, 1 : 1 + k, :])

    def frequencies(self) -> Float[Array, "k"]:
        """Angular frequencies [rad/s] of the body with its frame of reference held, ascending."""
        L = jnp.linalg.cholesky(self.modal_mass())
        half = jax.scipy.linalg.solve_triangular(L, self.stiffness, lower=True)
        A = jax.scipy.linalg.solve_triangular(L, half.T, lower=True)
        return jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(0.5 * (A + A.T)), 0.0))

    def node_row(self, node: str | int | None) -> int:
        names = dict(self.nodes)
        listed = ", ".join(map(repr, names)) or "none"
        if node is None:
            raise ModelError(
                "a frame on a flexible body names its node, such as node="
                f"{next(iter(names), 0)!r}, since a point moves with the deformation there; "
                f"named nodes are {listed}"
            )
        count = self.positions.shape[-2]
        if isinstance(node, str):
            if node not in names:
                raise ModelError(
                    f"unknown node {node!r}; known are {listed}, and rows 0 to {count - 1}"
                )
            return names[node]
        if not 0 <= node < count:
            raise ModelError(f"node {node} is not one of the rows 0 to {count - 1}")
        return int(node)

    def node_pose(self, row: int) -> Pose:
        p = self.positions[row]
        return Pose(p, jnp.eye(3, dtype=p.dtype))

    def frame_at_node(self, row: Any, offset: Pose, eta: Float[Array, "k"]) -> Pose:
        # Row -1 is the frame of reference, to which a body without joints is free.
        row = jnp.asarray(row)
        c = jnp.where(row < 0, 0.0, self.coefficients(eta)[1:])
        p, R = self.positions[row], _rotation(c @ self.rotations[row])
        return Pose(p + c @ self.translations[row] + R @ (offset.p - p), R @ offset.R)

    def twist_at_node(
        self, row: Any, offset: Pose, eta: Float[Array, "k"], rates: Float[Array, "k"]
    ) -> Float[Array, "6"]:
        # By hand: configurations need it for many velocities, and its derivatives.
        row = jnp.asarray(row)
        c, c_dot = jax.jvp(self.coefficients, (eta,), (rates,))
        c, c_dot = (jnp.where(row < 0, 0.0, x[1:]) for x in (c, c_dot))
        # ω along the axes of the node, by Cayley's rotation: s (θ̇ - ½ θ × θ̇), s = 1 / (1 + ¼ θ²).
        theta, rate = c @ self.rotations[row], c_dot @ self.rotations[row]
        omega = (rate - 0.5 * (rate @ _cross(theta))) / (1.0 + 0.25 * (theta @ theta))
        v = c_dot @ self.translations[row] @ _rotation(theta)
        v = v + (offset.p - self.positions[row]) @ _cross(omega)
        return jnp.concatenate([v @ offset.R, omega @ offset.R])

    def skin_points(self, skin: Skin, eta: Float[Array, "k"]) -> Float[Array, "n_points 3"]:
        """Positions of the vertices of a skin at η, in the body's frame."""
        rows = jnp.asarray(skin.rows)
        offsets = Pose(self.positions[rows] + skin.arms, _identities(skin.arms))
        return jax.vmap(lambda row, X: self.frame_at_node(row, X, eta).p)(rows, offsets)

    def is_concrete(self) -> bool:
        return all_concrete(self)

    def is_possible(self) -> Bool[Array, ""]:
        """True if mass and inertia are positive; traceable, False for NaN."""
        inertia = self.mass_matrix(jnp.zeros(self.n_elastic, dtype=self.mass.dtype))
        inertia = jax.lax.stop_gradient(inertia)
        # With a diagonal of ones no units matter; a zero on it remains.
        diagonal = jnp.diagonal(inertia)
        size = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
        values = jnp.linalg.eigvalsh(inertia / size[None, :] / size[:, None])
        return (self.mass > 0) & (values[0] > 0) & jnp.all(jnp.isfinite(self.stiffness))

    def inequalities(self) -> dict[str, AbstractBody]:
        return {"mass > 0": self._coefficients(mass=np.ones_like(self.mass))}

    def validate(self) -> str | None:
        problem = batched(self, "mass")
        if problem is not None or not self.is_concrete():
            return problem
        if not np.asarray(self.mass) > 0:
            return f"mass must be positive, got {self.mass}"
        n = 3 * self.first.shape[0]
        second = np.asarray(self.second).reshape(n, n)
        for name, matrix in (
            ("second", second),
            ("stiffness", np.asarray(self.stiffness)),
            ("damping", np.asarray(self.damping)),
        ):
            problem = indefinite(name, matrix)
            if problem is not None:
                return problem
        with jax.ensure_compile_time_eval():  # Also where other numbers are traced.
            possible = bool(self.is_possible())
        if not possible:
            return (
                "the mass matrix at η = 0 is not positive definite: a shape function is zero or "
                "repeats another one, or contains a rigid motion; leave it out"
            )
        return None


def _cross(w: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The matrix W of w × p = p W, for rows p."""
    return jnp.tensordot(w, jnp.asarray(_CROSS, dtype=w.dtype), 1)


def _identities(points: Float[Array, "n 3"]) -> Float[Array, "n 3 3"]:
    return jnp.broadcast_to(jnp.eye(3, dtype=points.dtype), (points.shape[0], 3, 3))


def _rotation(theta: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Cayley's rotation, the exponential to second order in θ, which is as exact as θ."""
    W = jnp.tensordot(theta, jnp.asarray(-_CROSS, dtype=theta.dtype), 1)
    scale = 1.0 / (1.0 + 0.25 * (theta @ theta))
    return jnp.eye(3, dtype=theta.dtype) + scale * (W + 0.5 * (W @ W))


def indefinite(name: str, matrix: np.ndarray) -> str | None:
    """The reason why a matrix is not symmetric and positive semidefinite, or None."""
    scale = np.abs(matrix).max(initial=0.0)
    if scale == 0.0:
        return None
    allowed = max(TOLERANCE, ROUNDINGS * float(jnp.finfo(matrix.dtype).eps))
    error = np.abs(matrix - matrix.T).max() / scale
    if error > allowed:
        return (
            f"{name} must be symmetric, but differs from its transpose by {error:.1e} of its "
            "largest entry; check the order of rows and columns"
        )
    lowest = np.linalg.eigvalsh(0.5 * (matrix + matrix.T))[0] / scale
    if lowest < -allowed:
        return (
            f"{name} must not be indefinite, but has the eigenvalue {lowest:.1e} relative to its "
            "largest entry; check signs and the order of rows and columns"
        )
    return None
