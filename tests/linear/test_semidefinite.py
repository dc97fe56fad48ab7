"""Pseudoinverse solutions of symmetric positive semidefinite systems."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.linear import solve_semidefinite
from tests.marks import thorough_but


def of_rank(n, rank, spread=2.0, seed=0):
    """A symmetric matrix with eigenvalues over some decades, and a right-hand side in its range."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0][:, :rank]
    A = (Q * np.logspace(0, -spread, rank)) @ Q.T
    return 0.5 * (A + A.T), A @ rng.normal(size=n)


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (5, 5), (5, 3), (20, 17), (20, 20), (4, 0)])
def test_gives_the_smallest_least_squares_solution(n, rank):
    A, b = of_rank(n, rank)
    off = 1e-6 * np.random.default_rng(1).normal(size=n)  # As constraints drift.
    for rhs in (b, b + off):
        expected = np.linalg.pinv(A, rcond=1e-7, hermitian=True) @ rhs
        got = jax.jit(solve_semidefinite)(jnp.asarray(A), jnp.asarray(rhs))
        np.testing.assert_allclose(got, expected, atol=1e-9 * max(1.0, np.abs(expected).max()))


def test_several_right_hand_sides_and_none():
    A, _ = of_rank(6, 4)
    B = jnp.asarray(A @ np.random.default_rng(2).normal(size=(6, 3)))
    got = solve_semidefinite(jnp.asarray(A), B)
    np.testing.assert_allclose(got, np.linalg.pinv(A, rcond=1e-7) @ B, atol=1e-9)
    assert solve_semidefinite(jnp.zeros((0, 0)), jnp.zeros((0, 2))).shape == (0, 2)


def test_single_precision():
    A, b = of_rank(6, 4, spread=1.0)
    got = solve_semidefinite(jnp.asarray(A, jnp.float32), jnp.asarray(b, jnp.float32))
    np.testing.assert_allclose(got, np.linalg.pinv(A, rcond=1e-5) @ b, atol=2e-5)


@pytest.mark.parametrize("rank", thorough_but([3], [3, 5]))
def test_derivatives_are_those_of_the_pseudoinverse(rank):
    rng = np.random.default_rng(3)
    F, dF, c = (jnp.asarray(rng.normal(size=s)) for s in ((5, rank), (5, rank), (rank,)))

    def solution(s):
        G = F + s * dF + s * s * jnp.sin(F)
        return solve_semidefinite(G @ G.T, G @ (c + s))

    def exact(s):
        G = np.asarray(F + s * dF + s * s * jnp.sin(F))
        return np.linalg.pinv(G @ G.T, rcond=1e-9, hermitian=True) @ (G @ np.asarray(c + s))

    h = 1e-5
    slope = (exact(h) - exact(-h)) / (2 * h)
    forward = jax.jvp(solution, (0.0,), (1.0,))[1]
    reverse = jax.jacrev(solution)(0.0)
    np.testing.assert_allclose(forward, slope, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(reverse, forward, rtol=1e-10, atol=1e-10)
    second = jax.jacfwd(jax.jacrev(solution))(0.0)
    h = 1e-3
    curvature = (exact(h) - 2 * exact(0.0) + exact(-h)) / h**2
    np.testing.assert_allclose(second, curvature, rtol=1e-3, atol=1e-3)
