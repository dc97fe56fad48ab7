"""Least-squares problems with linear constraints, some of which are possibly redundant.

    minimize ½ |y - y₀|²  subject to  Bᵀ y = b,   y = y₀ + B λ

Gauss' principle of least constraint has this form, with y = Lᵀ v̇, M = L Lᵀ and B = L⁻¹ Gᵀ
(Udwadia and Kalaba 1992). Columns of B that are independent by construction are factored exactly,
B_T = Q R. The components of the other columns orthogonal to them, W = (1 - Q Qᵀ) B_L, are factored
by singular values, which determine the independent combinations of these columns. The product BᵀB
is never formed.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxlib.version import __version__ as jaxlib_version
from jaxtyping import Array, Bool, Float

from ..runtime_guard import is_affected

# Rounding errors of a column of W, in units of the machine epsilon and of the lengths of the
# columns that it combines (measured singular values of zero are at most 1.3 of these units, for
# masses from 1e-6 to 1e6 kg and chains of up to 100 links); and the relative error of the columns,
# in units of the violation of the constraints.
ROUNDING, DISTURBANCE = 16.0, 30.0

# Rounding errors of a column of unit length in an elimination, in units of the machine epsilon and
# of the number of its entries.
ELIMINATION = 8.0

# Singular values above this limit are nonzero, for any violation of the constraints.
MAX_DISTURBANCE = 1e-4


class ConstraintFactors(eqx.Module):
    """Factors of B.

    - `Q`, `R`: factors of the columns that are independent by construction.
    - `P`: Qᵀ B_L.
    - `U`, `sigma`, `V`: singular values and vectors of W, its columns divided by `scale`.
    - `scale`: lengths of the columns of B_L by themselves.
    - `nonzero`: whether each singular value exceeds errors.
    - `redundant`: whether each column of B is possibly redundant.
    """

    Q: Float[Array, "n m"]
    R: Float[Array, "m m"]
    P: Float[Array, "m k"]
    U: Float[Array, "n r"]
    sigma: Float[Array, "r"]
    V: Float[Array, "k r"]
    scale: Float[Array, "k"]
    nonzero: Bool[Array, "r"]
    redundant: tuple[bool, ...] = eqx.field(static=True)

    @property
    def order(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the columns that are independent by construction, and of the others."""
        mask = np.asarray(self.redundant, dtype=bool)
        return np.flatnonzero(~mask), np.flatnonzero(mask)

    @property
    def last(self) -> Array:
        """The result of the last operation of the factorization; see `after` in `linear`."""
        return self.nonzero if self.nonzero.size > 0 else self.Q

    def after(self, other: Array) -> "ConstraintFactors":
        """The same factors, for use after `other`; see `after` in `linear`."""
        R, scale = after(self.R, other), after(self.scale, other)
        return eqx.tree_at(lambda own: (own.R, own.scale), self, (R, scale))

    def nearest(
        self, y0: Float[Array, "n"], b: Float[Array, "m_k"]
    ) -> tuple[Float[Array, "n"], Float[Array, "m_k"]]:
        """Solve for y and λ; possibly redundant entries of λ that are not unique have minimum norm.

        Entries of `b` along combinations of columns that are zero are ignored. Rounding errors are
        relative to the largest entry of `y0`; callers refine the result.
        """
        first, others = self.order
        z = jsl.solve_triangular(self.R, after(b[first], self.last), trans=1)
        weights = jnp.where(self.nonzero, 1.0 / jnp.where(self.nonzero, self.sigma, 1.0), 0.0)
        target = self.V.T @ ((b[others] - self.P.T @ z) / self.scale) * weights

        tree, loops = z - self.Q.T @ y0, jnp.where(self.nonzero, target - self.U.T @ y0, 0.0)
        y = y0 + self.Q @ tree + self.U @ loops
        lam_loops = (self.V @ (loops * weights)) / self.scale
        lam_tree = jsl.solve_triangular(self.R, tree - self.P @ lam_loops)
        order = np.argsort(np.concatenate([first, others]), kind="stable")
        return y, jnp.concatenate([lam_tree, lam_loops])[order]

    def free_part(self) -> Float[Array, "n"]:
        """The diagonal of 1 - B B⁺, the projector orthogonal to the columns."""
        U = jnp.where(self.nonzero[None], self.U, 0.0)
        return 1.0 - jnp.sum(self.Q**2, axis=1) - jnp.sum(U**2, axis=1)

    def null_multipliers(self) -> Float[Array, "m_k k"]:
        """Z such that Z Zᵀ is the orthogonal projector onto the solutions λ of B λ = 0."""
        first, others = self.order
        V = jnp.where(self.nonzero[None], self.V, 0.0)
        independent = V @ V.T
        units = jnp.min(self.scale) / self.scale
        of_loops = units[:, None] * (jnp.eye(len(others), dtype=V.dtype) - independent)
        of_tree = -jsl.solve_triangular(self.R, self.P @ of_loops)
        order = np.argsort(np.concatenate([first, others]), kind="stable")
        solutions = jnp.concatenate([of_tree, of_loops])[order]
        # With `independent` below them, all k columns are independent.
        return jnp.linalg.qr(jnp.concatenate([solutions, independent]))[0][: len(solutions)]


def factor_constraints(
    B: Float[Array, "n m_k"],
    redundant: tuple[bool, ...],
    length: Float[Array, "m_k"],
    violation: Float[Array, ""],
    demand: Float[Array, "m_k"] | None = None,
    noise: Float[Array, ""] | None = None,
    error: Float[Array, ""] | None = None,
) -> ConstraintFactors:
    """Factor B.

    **Arguments:**

    - `redundant`: for each column, whether it is possibly redundant.
    - `length`: length of each column by itself, which scales rounding errors of its entries.
    - `violation`: relative error of the columns, due to the violation of the constraints.
    - `demand`: the part of `b` that is not due to this violation. A combination of columns as small
      as the violation counts as independent if `demand` along it exceeds the effect of the
      violation and rounding errors. Default: none.
    - `noise`: magnitude of the terms of `demand`, which scales its rounding errors. Default: zero.
    - `error`: magnitude of other errors of `demand`. Default: zero.
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
    rounding, errors = _errors(B, first, others, length, violation, R, P)
    # Not divided by the errors: which solution of contradicting rows is nearest must not depend on
    # whether constraints are violated, or derivatives would not be those of nearby configurations.
    scale = after(length[others], errors)
    U, sigma, Vt = jnp.linalg.svd(W / scale[None], full_matrices=False)
    limit = jnp.linalg.norm(Vt * (errors / scale)[None], axis=1)
    nonzero = sigma > limit
    if demand is not None:
        z = jsl.solve_triangular(R, after(demand[first], sigma), trans=1)
        along = Vt @ ((demand[others] - P.T @ z) / scale)
        largest = jnp.max(jnp.abs(demand / length), initial=0.0)
        effect = limit * largest
        each = jnp.linalg.norm(Vt / scale[None], axis=1)
        if noise is not None:
            effect = effect + ROUNDING * float(jnp.finfo(B.dtype).eps) * noise * each
        if error is not None:
            effect = effect + error * each
        above_rounding = sigma > jnp.linalg.norm(Vt * (rounding / scale)[None], axis=1)
        nonzero |= above_rounding & (jnp.abs(along) > effect)
    return ConstraintFactors(Q, R, P, U, sigma, Vt.T, scale, nonzero, redundant)


def _errors(
    B: Float[Array, "n m_k"],
    first: np.ndarray,
    others: np.ndarray,
    length: Float[Array, "m_k"],
    violation: Float[Array, ""],
    R: Float[Array, "m m"],
    P: Float[Array, "m k"],
) -> tuple[Float[Array, "k"], Float[Array, "k"]]:
    """Rounding errors of the columns of W, alone and with the effect of the violation.

    A column of W is one of B_L minus a combination B_T C, C = R⁻¹ P, and has the rounding errors of
    all of its terms. C is large if columns of B_T are nearly dependent.
    """
    eps = float(jnp.finfo(B.dtype).eps)
    C = jsl.solve_triangular(R, P)
    terms = length[others] + jnp.linalg.norm(B[:, first], axis=0) @ jnp.abs(C)
    rounding = ROUNDING * eps * terms
    disturbance = jnp.minimum(DISTURBANCE * violation, MAX_DISTURBANCE) * length[others]
    return rounding, jnp.maximum(rounding, disturbance)


def threshold(shape: tuple[int, ...], violation: Float[Array, ""]) -> Float[Array, ""]:
    """The limit below which pivots of columns of unit length count as zero."""
    rounding = ELIMINATION * max(shape) * float(jnp.finfo(violation.dtype).eps)
    return jnp.clip(DISTURBANCE * violation, rounding, max(MAX_DISTURBANCE, rounding))


def _orthonormal(B: Float[Array, "n m"]) -> tuple[Float[Array, "n m"], Float[Array, "m m"]]:
    if B.shape[1] == 0:
        return B, jnp.zeros((0, 0), dtype=B.dtype)
    return jnp.linalg.qr(B)


# Order of calls of LAPACK in one program, which jaxlib 0.10 must not run at the same time ---------
# On the CPU, jaxlib 0.10 divides a batch of LAPACK calls into tasks for a pool of threads, and the
# calling thread waits for them. XLA runs operations that do not depend on each other in threads of
# the same pool. If all threads wait, no thread is left for the tasks, and the program never ends.
# Calls that depend on each other cannot meet. Later versions of jaxlib do not wait.

_WAITS = is_affected(jaxlib_version)

# Generated code, which computes in one order, takes the first argument.
_after = Primitive("after")


def after(x: Array, other: Array) -> Array:
    """Return `x`; on jaxlib 0.10 the result depends on `other`, and not on its values.

    Derivatives with respect to `other` are zero.
    """
    if not _WAITS or x.size == 0 or other.size == 0:
        return x
    return _after.bind(x, other)


@_after.def_abstract_eval
def _(x: Any, other: Any) -> Any:
    return x


@_after.def_impl
def _in_order(x: Array, other: Array) -> Array:
    entry = jax.lax.slice(other, (0,) * other.ndim, (1,) * other.ndim).reshape(())
    return x + _zero(entry).astype(x.dtype)


def _zero(entry: Array) -> Array:
    """0, by an operation that XLA does not simplify: no number has 128 bits that are set."""
    if entry.dtype == jnp.bool_:
        bits = entry.astype(jnp.uint8)
    else:
        width = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[entry.dtype.itemsize]
        bits = jax.lax.bitcast_convert_type(entry, width)
    return jax.lax.population_count(bits) >> 7


def _forward(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Array, Any]:
    return _after.bind(*primals), tangents[0]


def _in_batch(arrays: Sequence[Any], axes: Sequence[int | None]) -> tuple[Array, int | None]:
    return after(*arrays), axes[0]  # The batch may be empty.


mlir.register_lowering(_after, mlir.lower_fun(_in_order, multiple_results=False))
ad.primitive_jvps[_after] = _forward
batching.primitive_batchers[_after] = _in_batch
