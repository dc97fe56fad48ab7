"""Eigenvalues and eigenvectors with derivatives, also of repeated and of defective eigenvalues.

JAX differentiates eigenvectors of matrices with distinct eigenvalues only. Mechanisms have others:
rigid-body modes are repeated and defective, symmetric ones have repeated frequencies. Eigenvalues
that rounding errors do not tell apart form a *cluster*. The invariant subspace of a cluster and the
mean of its eigenvalues are differentiable, its eigenvalues and eigenvectors by themselves are not
(Kato 1976, section II.2). The derivatives returned here are

- of an eigenvalue in a cluster: that of the mean of the cluster;
- of an eigenvector in a cluster: the component outside the cluster, and inside it only the change
  that keeps the normalization.

Outside clusters they are the derivatives of the eigenvalues and eigenvectors.

`eig` needs a CPU or a GPU; on a GPU, JAX computes the eigenvectors on the host. Values that are not
traced are computed by the same functions with NumPy's arrays, for which nothing is compiled.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Complex, Float, Int

Numbers = np.ndarray | Array

# Rounding errors of the eigenvalues of a balanced matrix, in units of the machine epsilon, of the
# norm of the matrix and of the condition number of the eigenvalue.
ROUNDING = 16.0

# Frequencies of coordinates within this ratio are alike.
ALIKE = 16.0

# Steps of balancing. Each takes the square root of the remaining disparity of rows and columns.
N_BALANCING = 12

# Eigenvectors with a larger condition number than this power of the machine epsilon are not a basis
# of the invariant subspace of their cluster.
DEFECTIVE = -0.25

# Entries within this part of the largest one count as large. The first of them is made positive: of
# equal entries, rounding errors do not choose.
TIE = 1e-3

# Largest Jordan block whose effect on other eigenvectors is exact.
N_JORDAN = 4


class Eigen(eqx.Module):
    """Eigenvalues and eigenvectors of a real matrix A.

    - `values`: eigenvalues λ.
    - `right`: right eigenvectors v in columns, A v = λ v. Unit 2-norm, the largest entry positive.
    - `left`: left eigenvectors w in columns, wᴴ A = λ wᴴ, with wᴴ v = 1, and wᴴ v = 0 for other
      vectors of a cluster. Of defective eigenvalues no such vectors exist: they have unit 2-norm.
    - `condition`: condition number of each eigenvalue, norm(w) norm(v) / abs(wᴴ v) ≥ 1 of the
      balanced matrix, which units of the states do not affect.
    - `errors`: estimate of the rounding errors of the eigenvalues [unit of `values`].
    - `cluster`: index of the first eigenvalue of the cluster that each one belongs to.
    - `defective`: whether the eigenvectors of the cluster do not span its invariant subspace.
    """

    values: Complex[Array, "n"]
    right: Complex[Array, "n n"]
    left: Complex[Array, "n n"]
    condition: Float[Array, "n"]
    errors: Float[Array, "n"]
    cluster: Int[Array, "n"]
    defective: Bool[Array, "n"]


class SymmetricEigen(eqx.Module):
    """Eigenvalues and eigenvectors of K φ = λ M φ.

    - `values`: eigenvalues λ, ascending.
    - `vectors`: eigenvectors φ in columns, φᵀ M φ = 1, the largest entry positive.
    - `cluster`: index of the first eigenvalue of the cluster that each one belongs to.
    """

    values: Float[Array, "n"]
    vectors: Float[Array, "n n"]
    cluster: Int[Array, "n"]


class _Basis(eqx.Module):
    """A basis T in which A is block diagonal, A T = T (diag(λ) + N), with a block for each cluster.

    - `values`: mean eigenvalue λ of the cluster; `N`: nilpotent parts of defective clusters.
    - `T`, `S`: the basis and its inverse.
    - `right`, `left`: S v and Tᴴ w, the eigenvectors in this basis.
    - `same`: whether two eigenvalues are in one cluster.
    - `largest`: index of the entry of each v that is positive.
    """

    values: Complex[Numbers, "n"]
    N: Complex[Numbers, "n n"]
    T: Complex[Numbers, "n n"]
    S: Complex[Numbers, "n n"]
    right: Complex[Numbers, "n n"]
    left: Complex[Numbers, "n n"]
    same: Bool[Numbers, "n n"]
    largest: Int[Numbers, "n"]


def eig(A: Float[Array, "n n"]) -> Eigen:
    """Eigenvalues and left and right eigenvectors of a real matrix.

    Sorted by abs(λ), then by the real part, then by the imaginary part, positive first; those of a
    cluster follow one another. Two eigenvalues are in one cluster if their distance does not
    exceed `errors`: 16 ε norm(A) for perfectly conditioned eigenvalues and 4 √ε norm(A) for
    defective ones, with the Frobenius norm of the balanced matrix. In float32 slow modes may
    therefore join the cluster of a rigid-body mode. Jordan blocks of three and more have
    eigenvalues that are further apart unless they are exact: they form no cluster, and their
    `condition` is large. See the module for derivatives. Not for derivatives of higher order.
    """
    if not len(A):
        empty, none = jax.lax.complex(A, A), jnp.diag(A)
        return Eigen(
            jnp.diag(empty), empty, empty, none, none, jnp.zeros(0, int), jnp.zeros(0, bool)
        )
    if not isinstance(A, Tracer) and np.isfinite(A).all():
        with np.errstate(all="ignore"):
            return jax.device_put(_decompose(np.asarray(A))[0])
    eigen, basis = _with_basis(jax.lax.stop_gradient(A))
    vectors = eigen.values, eigen.right, eigen.left
    values, right, left = _differentiable(A, vectors, basis, eigen.defective)
    return Eigen(values, right, left, eigen.condition, eigen.errors, eigen.cluster, eigen.defective)


def eigh(K: Float[Array, "n n"], M: Float[Array, "n n"]) -> SymmetricEigen:
    """Eigenvalues and M-orthonormal eigenvectors of K φ = λ M φ, with λ = ω² of undamped modes.

    K is symmetric, M symmetric positive definite; all results are NaN if M is not. Antisymmetric
    parts are ignored. Two eigenvalues are in one cluster if they differ by less than 16 ε λ_max.
    See the module for derivatives. Not for derivatives of higher order.
    """
    if not len(K):
        return SymmetricEigen(jnp.diag(K), K, jnp.zeros(0, int))
    K, M = 0.5 * (K + K.T), 0.5 * (M + M.T)
    values, vectors, same = _decompose_symmetric(*jax.lax.stop_gradient((K, M)))
    values, vectors = _differentiable_symmetric(K, M, (values, vectors), same)
    return SymmetricEigen(values, vectors, _labels(same))


def general_eig(A: Float[Numbers, "n n"]) -> tuple[Any, Any, Any]:
    """Eigenvalues, left and right eigenvectors of a real matrix by LAPACK.

    LAPACK's `sgeev` scales matrices with entries above 1e12, and SciPy's build of it returns the
    eigenvalues of the scaled matrix. Here the largest entry is between 1/2 and 1.
    """
    xp = _library(A)
    largest = xp.max(xp.abs(A), initial=0.0)
    scale = xp.ldexp(xp.ones_like(largest), xp.frexp(largest)[1])
    values, left, right = (_eig_by_halves if xp is np else jax.lax.linalg.eig)(A / scale)
    return values * scale.astype(values.dtype), left, right


def _library(x: Any) -> Any:
    """NumPy for its own arrays, otherwise `jax.numpy`."""
    return np if isinstance(x, np.ndarray | np.generic) else jnp


def _eig_by_lapack(A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues, left and right eigenvectors, as `jax.lax.linalg.eig` returns them."""
    from scipy import linalg  # Which takes 0.3 s to import.

    found: Any = linalg.eig(A, left=True, right=True, check_finite=False)
    kind = np.result_type(A.dtype, np.complex64)
    values, left, right = (x.astype(kind) for x in found)
    return values, left, right


def _eig_by_halves(A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same; of undamped motion, by a problem of half the size.

    The matrix of ẋ = P y, ẏ = Q x has the eigenvalues ±√μ of μ x = P Q x, uᴴ P Q = μ uᴴ, and the
    eigenvectors [x, λ P⁻¹ x] and [λ̄ u, Pᵀ u]. Rounding errors of μ are relative to the largest
    one. Of a balanced matrix P has a frequency of each coordinate: if these are alike, λ is as
    accurate as that of the whole matrix.
    """
    n, odd = divmod(len(A), 2)
    if odd or A[:n, :n].any() or A[n:, n:].any():
        return _eig_by_lapack(A)
    P, Q, rates = A[:n, n:], A[n:, :n], np.abs(np.diag(A, n))
    least, most = rates.min(initial=np.inf), rates.max(initial=0.0)
    # Where velocities are not the rates of coordinates one by one, P⁻¹ may magnify errors.
    rest = np.abs(P - np.diag(np.diag(P))).max(initial=0.0)
    if not (most <= ALIKE * least and rest < 1e-8 * least):
        return _eig_by_lapack(A)
    squares, u, x = _eig_by_lapack(P @ Q)
    root = np.sqrt(squares)
    y, z = _inverse(P) @ x * root[None], P.T @ u
    values = np.concatenate([root, -root])
    left = np.block([[u * root.conj()[None], -u * root.conj()[None]], [z, z]])
    return values, left, np.block([[x, x], [y, -y]])


def _inverse(T: Any) -> Any:
    """T⁻¹; entries that are not finite if T is singular, where NumPy would raise an error."""
    if _library(T) is jnp:
        return jnp.linalg.inv(T)
    from scipy.linalg import lapack

    factor, solve = lapack.get_lapack_funcs(("getrf", "getrs"), (T,))
    return solve(*factor(T)[:2], np.eye(len(T), dtype=T.dtype))[0]


def _repeat(unfinished: Callable[[Any], Any], step: Callable[[Any], Any], carry: Any) -> Any:
    """The carry after the last step, as of `jax.lax.while_loop`."""
    if _library(carry[0]) is jnp:
        return jax.lax.while_loop(unfinished, step, carry)
    while unfinished(carry):
        carry = step(carry)
    return carry


def _decompose(A: Any) -> tuple[Eigen, tuple[Any, ...]]:
    """Everything but derivatives, and the arguments of `_basis`."""
    xp, eps = _library(A), float(jnp.finfo(A.dtype).eps)
    d = _balancing(A)
    balanced = A * (d[None] / d[:, None])
    values, left, right = general_eig(balanced)
    left, right = _unit(left), _unit(right)

    condition = 1.0 / xp.maximum(xp.abs(xp.sum(left.conj() * right, axis=0)), eps**2)
    norm = xp.linalg.norm(balanced)
    errors = ROUNDING * eps * norm * xp.minimum(condition, (ROUNDING * eps) ** -0.5)
    distance = xp.abs(values[:, None] - values[None])
    same = _connected(distance <= xp.maximum(errors[:, None], errors[None]))

    order = _order(values, same, eps * norm)
    values, left, right = values[order], left[:, order], right[:, order]
    condition, errors, same = condition[order], errors[order], same[order][:, order]
    ill = condition > eps**DEFECTIVE
    defective = xp.any(same & ill[None], axis=1) & (xp.sum(same, axis=1) > 1)

    mean = _mean(values, same)
    T = _subspaces(balanced, xp.where(defective, mean, values), right, same, defective)
    S = _inverse(T)
    left = xp.where(defective[None], left, S.conj().T)
    D = d.astype(T.dtype)
    T, S = T * D[:, None], S / D[None]
    right, left = right * D[:, None], left / D[:, None]

    right, largest = _with_convention(right)
    scale = xp.sum(left.conj() * right, axis=0).conj()
    left = xp.where(defective[None], _unit(left), left / xp.where(defective, 1.0, scale)[None])
    eigen = Eigen(values, right, left, condition, errors, _labels(same), defective)
    return eigen, (mean, T, S, same, largest)


def _basis(A: Any, eigen: Eigen, mean: Any, T: Any, S: Any, same: Any, largest: Any) -> _Basis:
    """The basis in which eigenvalues and eigenvectors are differentiated."""
    block = jnp.where(same, S @ A.astype(T.dtype) @ T, 0.0)
    N = jnp.where(same & eigen.defective[None], block - jnp.diag(mean), 0.0)
    right = jnp.where(same, S @ eigen.right, 0.0)
    left = jnp.where(same, T.conj().T @ eigen.left, 0.0)
    values = jnp.where(eigen.defective, mean, eigen.values)
    return _Basis(values, N, T, S, right, left, same, largest)


@jax.jit  # Or calls outside jit would compile its loops again.
def _with_basis(A: Float[Array, "n n"]) -> tuple[Eigen, _Basis]:
    """Everything but derivatives, and their basis."""
    eigen, parts = _decompose(A)
    return eigen, _basis(A, eigen, *parts)


def _balancing(A: Float[Numbers, "n n"]) -> Float[Numbers, "n"]:
    """Powers of two d such that rows and columns of D⁻¹ A D have about equal norms (Osborne 1960).

    Simultaneous for all rows, with half of each step, which does not oscillate.
    """
    xp = _library(A)
    size = xp.abs(A) * (1.0 - xp.eye(len(A), dtype=A.dtype))
    log_d = xp.zeros(len(A), A.dtype)
    for _ in range(N_BALANCING):
        scaled = size * xp.exp2(log_d[None] - log_d[:, None])
        rows, columns = xp.linalg.norm(scaled, axis=1), xp.linalg.norm(scaled, axis=0)
        coupled = (rows > 0.0) & (columns > 0.0)
        ratio = xp.where(coupled, rows, 1.0) / xp.where(coupled, columns, 1.0)
        log_d = log_d + 0.25 * xp.log2(ratio)
    return xp.exp2(xp.round(log_d))


def _connected(near: Bool[Numbers, "n n"]) -> Any:
    """True if two eigenvalues are connected by steps between near ones."""
    xp = _library(near)
    if xp is np and np.sum(near) == len(near):
        return near
    count = near.astype(float) + xp.eye(len(near))
    for _ in range(len(near).bit_length()):
        count = xp.minimum(count @ count, 1.0)
    return count > 0.0


def _mean(values: Any, same: Bool[Numbers, "n n"]) -> Any:
    """Mean over the cluster of each entry."""
    xp = _library(values)
    total = xp.sum(xp.where(same, values[None], 0.0), axis=1)
    return total / xp.sum(same, axis=1).astype(total.dtype)


def _labels(same: Bool[Numbers, "n n"]) -> Any:
    """Index of the first member of the cluster of each eigenvalue."""
    return _library(same).argmax(same, axis=1)


def _order(
    values: Complex[Numbers, "n"], same: Bool[Numbers, "n n"], smallest: Any
) -> Int[Numbers, "n"]:
    """Indices that sort the eigenvalues, clusters by their means.

    abs(λ) is rounded: of modes with one frequency, rounding errors do not choose the order.
    """
    xp, eps = _library(values), float(jnp.finfo(values.dtype).eps)
    mean = _mean(values, same)
    size = xp.maximum(xp.abs(mean), xp.maximum(smallest, jnp.finfo(mean.real.dtype).tiny))
    frequency = xp.round(xp.log(size) / eps**0.5)
    real, imaginary = xp.real(values), xp.imag(values)
    keys = -imaginary, real, _labels(same), -xp.sign(mean.imag), mean.real, frequency
    return xp.lexsort(keys)


def _subspaces(
    A: Float[Numbers, "n n"],
    values: Complex[Numbers, "n"],
    right: Complex[Numbers, "n n"],
    same: Bool[Numbers, "n n"],
    defective: Bool[Numbers, "n"],
) -> Complex[Numbers, "n n"]:
    """Bases of the invariant subspaces: eigenvectors, or orthonormal ones of defective clusters.

    The invariant subspace of a defective λ is the null space of (A - λ)², or of (A - λ)⁴ where that
    of (A - λ)² has too small a dimension.
    """
    n, xp = len(A), _library(A)
    first = defective & (_labels(same) == xp.arange(n))
    place = xp.sum(same & (xp.arange(n)[None] < xp.arange(n)[:, None]), axis=1)

    def replace(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        T, remaining = carry
        k = xp.argmax(remaining)
        shifted = A.astype(T.dtype) - values[k] * xp.eye(n, dtype=T.dtype)
        null = _null_space(shifted @ shifted, xp.sum(same[k]))
        T = xp.where(same[k][None], null[:, place], T)
        return T, remaining & (xp.arange(n) != k)

    return _repeat(lambda carry: xp.any(carry[1]), replace, (right, first))[0]


def _null_space(square: Complex[Numbers, "n n"], dimension: Any) -> Complex[Numbers, "n n"]:
    """Right singular vectors of B or of B², of the smallest singular values first."""
    xp, eps = _library(square), float(jnp.finfo(square.dtype).eps)
    _, sigma, once = xp.linalg.svd(square)
    twice = xp.linalg.svd(square @ square)[2]
    largest_null = sigma[len(sigma) - dimension]
    complete = largest_null <= eps**0.5 * sigma[0]
    return xp.where(complete, once, twice).conj().T[:, ::-1]


def _unit(vectors: Any) -> Any:
    length = _library(vectors).linalg.norm(vectors, axis=0, keepdims=True)
    return vectors / length.astype(vectors.dtype)


def _with_convention(vectors: Any) -> tuple[Any, Int[Numbers, "n"]]:
    """Columns with unit 2-norm, whose first large entry is positive, and its index."""
    vectors = _unit(vectors)
    largest = _first_large(vectors)
    entry = _entries(vectors, largest)
    return vectors * (entry.conj() / abs(entry).astype(entry.dtype))[None], largest


def _first_large(vectors: Any) -> Int[Numbers, "n"]:
    xp = _library(vectors)
    size = xp.abs(vectors)
    return xp.argmax(size >= (1.0 - TIE) * xp.max(size, axis=0, keepdims=True), axis=0)


def _entries(columns: Any, rows: Int[Numbers, "n"]) -> Any:
    """One entry of each column."""
    return _library(columns).take_along_axis(columns, rows[None], axis=0)[0]


@jax.custom_jvp
def _differentiable(
    A: Float[Array, "n n"], vectors: tuple, basis: _Basis, defective: Bool[Array, "n"]
) -> tuple:
    del A, basis, defective
    return vectors


@_differentiable.defjvp
def _differentiable_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    """The equations of v = T x with x outside the block of v, (λ_j + N - λ_i) y = -(S Ȧ v).

    N is nilpotent and commutes with the eigenvalues of its blocks: the inverse of λ_j - λ_i + N is
    a finite series.
    """
    _, vectors, basis, defective = primals
    _, right, left = vectors
    dA = basis.S @ tangents[0].astype(right.dtype) @ basis.T
    same = basis.same

    d_values = _mean(jnp.diag(dA), same)

    away = basis.values[:, None] - basis.values[None]
    inverse = jnp.where(same, 0.0, 1.0 / jnp.where(same, 1.0, away))
    term_r, term_l = dA @ basis.right, dA.conj().T @ basis.left
    sum_r, sum_l = jnp.zeros_like(dA), jnp.zeros_like(dA)
    for _ in range(N_JORDAN):
        term_r, term_l = -inverse * term_r, -inverse.conj() * term_l
        sum_r, sum_l = sum_r + term_r, sum_l + term_l
        term_r, term_l = basis.N @ term_r, basis.N.conj().T @ term_l
    outside_r, outside_l = basis.T @ sum_r, basis.S.conj().T @ sum_l

    length = jnp.sum(right.conj() * outside_r, axis=0).real
    turn = _entries(outside_r, basis.largest).imag / _entries(right, basis.largest).real
    factor = jax.lax.complex(-length, -turn)
    unit = -jnp.sum(left.conj() * outside_l, axis=0).real
    factor_l = jnp.where(defective, unit.astype(factor.dtype), -factor.conj())
    return vectors, (d_values, outside_r + right * factor[None], outside_l + left * factor_l[None])


@jax.jit
def _decompose_symmetric(
    K: Float[Array, "n n"], M: Float[Array, "n n"]
) -> tuple[Float[Array, "n"], Float[Array, "n n"], Bool[Array, "n n"]]:
    """Everything but derivatives."""
    L = jnp.linalg.cholesky(M)
    half = jax.scipy.linalg.solve_triangular(L, K, lower=True)
    C = jax.scipy.linalg.solve_triangular(L, half.T, lower=True)
    values, Q = jnp.linalg.eigh(C)
    vectors = jax.scipy.linalg.solve_triangular(L, Q, lower=True, trans=1)
    vectors = vectors * jnp.sign(_entries(vectors, _first_large(vectors)))[None]
    limit = ROUNDING * float(jnp.finfo(K.dtype).eps) * jnp.max(jnp.abs(values))
    near = jnp.abs(values[:, None] - values[None]) <= limit
    return values, vectors, _connected(near)


@jax.custom_jvp
def _differentiable_symmetric(
    K: Float[Array, "n n"], M: Float[Array, "n n"], modes: tuple, same: Bool[Array, "n n"]
) -> tuple:
    del K, M, same
    return modes


@_differentiable_symmetric.defjvp
def _differentiable_symmetric_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    """φ_jᵀ (K̇ - λ_i Ṁ) φ_i / (λ_i - λ_j) along φ_j outside the cluster; no rotation inside it."""
    _, _, modes, same = primals
    values, vectors = modes
    dK, dM = (vectors.T @ tangent @ vectors for tangent in tangents[:2])
    rates = dK - dM * values[None]

    d_values = _mean(jnp.diag(rates), same)
    away = jnp.where(same, 1.0, values[None] - values[:, None])
    along = jnp.where(same, -0.5 * dM, rates / away)
    return modes, (d_values, vectors @ along)
