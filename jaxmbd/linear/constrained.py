"""The vector nearest to a given one that satisfies linear constraints, some possibly redundant.

    minimize ½ |y - y₀|²  subject to  Bᵀ y = b,   y = y₀ + B λ

Gauss' principle of least constraint has this form, with y = Lᵀ v̇, M = L Lᵀ and B = L⁻¹ Gᵀ
(Udwadia and Kalaba 1992). Columns of B that are independent by construction are factored exactly,
B_T = Q R. The components of the others normal to them, W = (1 - Q Qᵀ) B_L, are factored by singular
values, which decide which combinations of these columns are independent. B is never squared.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float

# Rounding errors of a column of W, in units of the float type's precision and of the lengths of the
# columns that it is combined from (singular values of zero come to 1.3 of these units at most, for
# masses from 1e-6 to 1e6 kg and chains of up to 100 links); and the relative error of the columns,
# in units of the violation of the constraints.
ROUNDING, DISTURBANCE = 16.0, 30.0

# Rounding errors of a column of unit length in an elimination, in units of the float type's
# precision and of the number of its entries.
ELIMINATION = 8.0

# Singular values above this are not zero, however much the constraints are violated.
MOST = 1e-4


class ConstraintFactors(eqx.Module):
    """Factors of B for `nearest`, and what they say about its columns.

    - `Q`, `R`: of the columns that are independent by construction.
    - `P`: Qᵀ B_L.
    - `U`, `sigma`, `V`: singular values and vectors of W, its columns divided by `scale`.
    - `scale`: errors of the columns of W.
    - `kept`: which singular values are not errors.
    """

    Q: Float[Array, "n m"]
    R: Float[Array, "m m"]
    P: Float[Array, "m k"]
    U: Float[Array, "n r"]
    sigma: Float[Array, "r"]
    V: Float[Array, "k r"]
    scale: Float[Array, "k"]
    kept: Bool[Array, "r"]
    redundant: tuple[bool, ...] = eqx.field(static=True)

    @property
    def order(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns that are independent by construction, and the others."""
        mask = np.asarray(self.redundant, dtype=bool)
        return np.flatnonzero(~mask), np.flatnonzero(mask)

    def nearest(
        self, y0: Float[Array, "n"], b: Float[Array, "m_k"]
    ) -> tuple[Float[Array, "n"], Float[Array, "m_k"]]:
        """y and λ, of which the possibly redundant ones have the least norm if they are not unique.

        Entries of `b` along combinations of columns that are zero are ignored. Rounding errors are
        relative to the largest entry of `y0`; callers refine the result.
        """
        first, others = self.order
        z = jsl.solve_triangular(self.R, b[first], trans=1)
        weights = jnp.where(self.kept, 1.0 / jnp.where(self.kept, self.sigma, 1.0), 0.0)
        left = self.V.T @ ((b[others] - self.P.T @ z) / self.scale) * weights

        tree, loops = z - self.Q.T @ y0, jnp.where(self.kept, left - self.U.T @ y0, 0.0)
        y = y0 + self.Q @ tree + self.U @ loops
        lam_loops = (self.V @ (loops * weights)) / self.scale
        lam_tree = jsl.solve_triangular(self.R, tree - self.P @ lam_loops)
        order = np.argsort(np.concatenate([first, others]), kind="stable")
        return y, jnp.concatenate([lam_tree, lam_loops])[order]

    def unseen(self) -> Float[Array, "n"]:
        """What the columns leave of each unit vector: the diagonal of 1 - B B⁺."""
        U = jnp.where(self.kept[None], self.U, 0.0)
        return 1.0 - jnp.sum(self.Q**2, axis=1) - jnp.sum(U**2, axis=1)

    def idle(self) -> Float[Array, "m_k k"]:
        """Z, so that Z Zᵀ is the orthogonal projector on the solutions λ of B λ = 0."""
        first, others = self.order
        V = jnp.where(self.kept[None], self.V, 0.0)
        independent = V @ V.T
        units = jnp.min(self.scale) / self.scale
        of_loops = units[:, None] * (jnp.eye(len(others), dtype=V.dtype) - independent)
        of_tree = -jsl.solve_triangular(self.R, self.P @ of_loops)
        order = np.argsort(np.concatenate([first, others]), kind="stable")
        solutions = jnp.concatenate([of_tree, of_loops])[order]
        # Independent combinations of columns, below, make all k columns independent.
        return jnp.linalg.qr(jnp.concatenate([solutions, independent]))[0][: len(solutions)]


def factor_constraints(
    B: Float[Array, "n m_k"],
    redundant: tuple[bool, ...],
    length: Float[Array, "m_k"],
    violation: Float[Array, ""],
    demand: Float[Array, "m_k"] | None = None,
) -> ConstraintFactors:
    """Factors of B.

    **Arguments:**

    - `redundant`: for each column whether it is possibly redundant.
    - `length`: of each column by itself; rounding errors of its entries are relative to it.
    - `violation`: relative error of the columns, since the configuration that they belong to is not
      exactly on the constraints.
    - `demand`: the part of `b` that does not come from that violation. A combination of columns as
      small as the violation counts as independent if `demand` along it is larger than the violation
      explains.
    """
    mask = np.asarray(redundant, dtype=bool)
    first, others = np.flatnonzero(~mask), np.flatnonzero(mask)
    Q, R = _orthonormal(B[:, first])
    B_L = B[:, others]
    P = Q.T @ B_L
    W = B_L - Q @ P
    W = W - Q @ (Q.T @ W)  # Twice is enough (Parlett 1980).
    if not others.size:
        sigma, V = jnp.zeros(0, B.dtype), jnp.zeros((0, 0), B.dtype)
        return ConstraintFactors(Q, R, P, W, sigma, V, length[others], sigma > 0, redundant)
    rounding, scale = _errors(B, first, others, length, violation, R, P)
    U, sigma, Vt = jnp.linalg.svd(W / scale[None], full_matrices=False)
    kept = sigma > 1.0
    if demand is not None:
        z = jsl.solve_triangular(R, demand[first], trans=1)
        wanted = Vt @ ((demand[others] - P.T @ z) / scale)
        whole = jnp.max(jnp.abs(demand / length), initial=0.0)
        above = sigma > jnp.linalg.norm(Vt * (rounding / scale)[None], axis=1)
        kept |= above & (jnp.abs(wanted) > whole)
    return ConstraintFactors(Q, R, P, U, sigma, Vt.T, scale, kept, redundant)


def _errors(
    B: Float[Array, "n m_k"],
    first: np.ndarray,
    others: np.ndarray,
    length: Float[Array, "m_k"],
    violation: Float[Array, ""],
    R: Float[Array, "m m"],
    P: Float[Array, "m k"],
) -> tuple[Float[Array, "k"], Float[Array, "k"]]:
    """Errors of the columns of W: those of rounding, and the larger of these and the violation's.

    A column of W is one of B_L less a combination B_T C, C = R⁻¹ P, and has the rounding errors of
    all of its terms. C is large if columns of B_T are nearly dependent.
    """
    eps = float(jnp.finfo(B.dtype).eps)
    C = jsl.solve_triangular(R, P)
    terms = length[others] + jnp.linalg.norm(B[:, first], axis=0) @ jnp.abs(C)
    rounding = ROUNDING * eps * terms
    disturbance = jnp.minimum(DISTURBANCE * violation, MOST) * length[others]
    return rounding, jnp.maximum(rounding, disturbance)


def threshold(shape: tuple[int, ...], violation: Float[Array, ""]) -> Float[Array, ""]:
    """Below which pivots of columns of unit length are zero, for their number and violation."""
    rounding = ELIMINATION * max(shape) * float(jnp.finfo(violation.dtype).eps)
    return jnp.clip(DISTURBANCE * violation, rounding, max(MOST, rounding))


def _orthonormal(B: Float[Array, "n m"]) -> tuple[Float[Array, "n m"], Float[Array, "m m"]]:
    if B.shape[1] == 0:
        return B, jnp.zeros((0, 0), dtype=B.dtype)
    return jnp.linalg.qr(B)


__all__ = ["ConstraintFactors", "factor_constraints", "threshold"]
