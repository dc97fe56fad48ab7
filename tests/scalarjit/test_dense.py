"""Dense factorizations in generated code against those of LAPACK."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest

import scalarjit

pytest.importorskip("llvmlite")


def symmetric(A):
    return A @ A.T + 0.1 * jnp.eye(len(A), dtype=A.dtype)


def spectrum(A):
    """Eigenvalues and the invariant parts of eigenvectors, whose signs are free."""
    values, V = jnp.linalg.eigh(symmetric(A))
    return values, V * V


def singular(A):
    U, sigma, Vt = jnp.linalg.svd(A, full_matrices=False)
    return sigma, (U * sigma[None]) @ Vt, U.T @ U, Vt @ Vt.T


def triangular(A, b):
    T = A + 3.0 * jnp.eye(len(A), dtype=A.dtype)
    kinds = [(trans, lower, unit) for trans in (0, 1) for lower in (0, 1) for unit in (0, 1)]
    solve = jsl.solve_triangular
    found = [solve(T, b, trans=t, lower=bool(lo), unit_diagonal=bool(u)) for t, lo, u in kinds]
    return jnp.stack([*found, solve(T, jnp.outer(b, b)).sum(axis=1)])


def squares(A, b):
    """Functions of a square matrix and a vector."""
    return (
        jnp.linalg.cholesky(symmetric(A)),
        jsl.cho_solve(jsl.cho_factor(symmetric(A)), b),
        triangular(A / len(A), b),
        jnp.linalg.solve(A, b),
        jnp.linalg.inv(A),
        jnp.linalg.det(A),
        spectrum(A),
        jnp.diagonal(A),
    )


def with_code(fn, *args):
    """Results of generated code and of JAX, for one state and for a batch."""
    code = scalarjit.native_or_reason(fn, *args)
    assert not isinstance(code, str), code
    many = [jnp.stack([x * (1.0 + 0.1 * k) for k in range(5)]) for x in args]
    of_both = lambda f: jax.jit(lambda *x: (f(*x[: len(args)]), jax.vmap(f)(*x[len(args) :])))  # noqa: E731
    with scalarjit.enabled(False):
        expected = of_both(fn)(*args, *many)
    return of_both(lambda *x: code(*x))(*args, *many), expected


def check(fn, *args, tolerance=1e-10):
    found, expected = with_code(fn, *args)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * np.max(np.abs(y)))


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 3, 9])
def test_square_matrices(n):
    check(squares, draw(n, n), draw(n, seed=1))


@pytest.mark.long
@pytest.mark.parametrize("shape", [(4, 2), (2, 7), (6, 5)])
def test_rectangular_matrices(shape):
    check(lambda A: (jnp.linalg.qr(A), singular(A)), draw(*shape))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_several_columns_at_once_have_the_bits_of_one_at_a_time(dtype):
    """Code for one state computes columns in vectors, that for a batch states."""

    def fn(A, B):
        return jnp.linalg.inv(A), A @ B, jnp.linalg.qr(B), singular(B)[0]

    args = draw(13, 13).astype(dtype), draw(13, 11, seed=1).astype(dtype)
    code = scalarjit.native_or_reason(fn, *args)
    assert not isinstance(code, str), code
    one = jax.jit(lambda *x: code(*x))(*args)
    many = jax.jit(jax.vmap(lambda *x: code(*x)))(*(jnp.stack([-x, x, 2 * x]) for x in args))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        np.testing.assert_array_equal(x, y[1])


@pytest.mark.long
def test_single_precision():
    A, b = (x.astype(jnp.float32) for x in (draw(5, 5), draw(5)))
    check(lambda A, b: (squares(A, b), singular(A[:, :3])), A, b, tolerance=1e-4)


@pytest.mark.long
def test_derivatives():
    def smooth(A, b):
        Q, R = jnp.linalg.qr(A)
        values, V = jnp.linalg.eigh(symmetric(A))
        parts = (jnp.linalg.cholesky(symmetric(A)), jnp.linalg.solve(A, b), Q * Q, R * R, V * V)
        sigma = jnp.linalg.svd(A, full_matrices=False)[1]
        return sum(jnp.sum(jnp.sin(x)) for x in (*parts, values, sigma))

    def both(A, b):
        along = jax.jvp(smooth, (A, b), (jnp.cos(A), b * b))[1]
        return along, jax.grad(smooth, argnums=(0, 1))(A, b)

    check(both, draw(3, 3), draw(3, seed=1), tolerance=1e-9)


@pytest.mark.long
def test_what_is_not_a_number():
    """Not a number where results of LAPACK are not, and a matrix without a factor has none."""

    def all_of(A):
        return (
            jnp.linalg.cholesky(A),
            *jnp.linalg.svd(A, full_matrices=False),
            *jnp.linalg.eigh(A),
            jnp.linalg.solve(A, A[0]),
        )

    for n in (2, 6):
        A = symmetric(draw(n, n))
        found, expected = with_code(all_of, A.at[n - 1, 0].set(jnp.nan))
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert np.isnan(x[np.isnan(y)]).all()
            assert np.isnan(y).any()
        code = scalarjit.native_of(jnp.linalg.cholesky, A)
        assert np.isnan(np.tril(jax.jit(lambda A, c=code: c(A))(A - 10.0 * jnp.eye(n)))).any()


def test_singular_values_of_zero_stay_as_large_as_rounding_errors():
    """Rotations that made them smaller still would have no end, and take most of the time."""
    A = jnp.concatenate([draw(2, 3), jnp.zeros((3, 3))])
    code = scalarjit.native_of(lambda A: jnp.linalg.svd(A, full_matrices=False)[1], A)
    *_, smallest = np.asarray(jax.jit(lambda A: code(A))(A))
    assert 1e-40 < smallest < 1e-14


@pytest.mark.long
def test_repeated_and_zero_values():
    """Vectors are orthonormal to rounding where values are equal or zero."""
    B = draw(6, 2)
    A = jnp.concatenate([B, B[:, :1], jnp.zeros((6, 1))], axis=1)

    def all_of(A):
        U, sigma, Vt = jnp.linalg.svd(A, full_matrices=False)
        values, V = jnp.linalg.eigh(A @ A.T)
        return (
            U.T @ U,
            Vt @ Vt.T,
            (U * sigma[None]) @ Vt,
            V.T @ V,
            (V * values[None]) @ V.T,
            sigma,
            values,
        )

    code = scalarjit.native_of(all_of, A)
    U, Vt, product, V, symmetric_, sigma, values = jax.jit(lambda A: code(A))(A)
    for x, unit in ((U, 4), (Vt, 4), (V, 6)):
        np.testing.assert_allclose(x, np.eye(unit), atol=1e-14)
    np.testing.assert_allclose(product, A, atol=1e-14)
    np.testing.assert_allclose(symmetric_, A @ A.T, atol=1e-13)
    np.testing.assert_allclose(sigma[2:], 0.0, atol=1e-14)
    assert (np.diff(values) >= 0).all()
    assert (np.diff(sigma) <= 0).all()


@pytest.mark.long
def test_scatters_sorts_and_gathers():
    """With constant places for scatters, and with computed ones for gathers."""
    order = np.array([3, 0, 2])

    def fn(A, b):
        placed = A.at[order, order].add(b[:3]).at[:, 1].set(b).at[order].multiply(2.0)
        by = jnp.argsort(b)
        return placed, jnp.sort(A, axis=0), A[by], A[:, by], b[jnp.argsort(by)], A.at[9].set(1.0)

    check(fn, draw(4, 4), draw(4, seed=1))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_many_parts_at_computed_places(mode, dtype):
    """Also beyond the array, and of numbers that are not finite, bit for bit."""
    A = draw(7, 9, 11).at[0, 0, 0].set(jnp.nan).at[1, 1, 1].set(jnp.inf).astype(dtype)
    rows = jnp.asarray(np.random.default_rng(0).integers(-9, 13, (3, 8)))
    batch = jnp.stack([A, -A, 2 * A])
    for axis in range(3):
        of = lambda A, i, k=axis: jnp.take(3 * A, i, axis=k, mode=mode)  # noqa: E731
        code = scalarjit.native_of(of, A, rows[0])
        assert code is not None
        np.testing.assert_array_equal(jax.jit(code)(A, rows[0]), of(A, rows[0]))
        for axes in ((0, 0), (None, 0)):
            given = batch if axes[0] == 0 else A, rows
            both = [jax.jit(jax.vmap(fn, axes))(*given) for fn in (code, of)]
            np.testing.assert_array_equal(*both)


@pytest.mark.long
def test_long_products():
    check(lambda A, B: (A @ B, B.T @ A.T, (A @ B)[0] @ B.T), draw(12, 14), draw(14, 11, seed=1))


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (2, 0, 0)])
def test_factorizations_of_nothing(shape):
    A = jnp.ones(shape)

    def of_any(A):
        return jax.lax.linalg.lu(A), jnp.linalg.qr(A), jnp.linalg.svd(A, full_matrices=False)

    def of_square(A):
        return jnp.linalg.cholesky(A), jnp.linalg.eigh(A), jnp.linalg.solve(A, A)

    for fn in (of_any, of_square) if shape[-1] == shape[-2] else (of_any,):
        found = scalarjit.native_or_reason(lambda x, fn=fn: (fn(A * x), 2.0 * x), jnp.ones(()))
        if shape == (3, 0):
            assert found == "lu of nothing"
            continue
        assert isinstance(found, scalarjit.NativeFunction)
        same = jax.tree.map(np.array_equal, found(jnp.ones(())), (fn(A), jnp.full((), 2.0)))
        assert all(jax.tree.leaves(same))
