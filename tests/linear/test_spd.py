"""Symmetric positive definite solves, unrolled and by the library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.linear import solve_spd
from jaxmbd.linear.spd import UNROLLED_SIZE

SIZES = [1, 3, UNROLLED_SIZE, UNROLLED_SIZE + 1]


def problem(n: int):
    rng = np.random.default_rng(n)
    L = rng.normal(size=(n, n)) + 2 * np.eye(n)
    return jnp.asarray(L @ L.T), jnp.asarray(rng.normal(size=(n, 2)))


@pytest.mark.smoke
@pytest.mark.parametrize("n", SIZES)
def test_solution(n):
    A, b = problem(n)
    solve = jax.jit(solve_spd)
    np.testing.assert_allclose(A @ solve(A, b), b, atol=1e-11)
    np.testing.assert_allclose(A @ solve(A, b[:, 0]), b[:, 0], atol=1e-11)
    # The upper triangle is not looked at.
    np.testing.assert_array_equal(solve(jnp.tril(A), b), solve(A, b))


@pytest.mark.long
@pytest.mark.parametrize("n", [3, UNROLLED_SIZE + 1])
def test_gradient(n):
    A, b = problem(n)

    def f(s, solve):
        return jnp.sum(jnp.sin(solve(A + s * jnp.diag(b[:, 0] ** 2), b)))

    wanted = jax.grad(f)(0.3, jnp.linalg.solve)
    for derivative in (jax.grad(f), jax.jacfwd(f)):
        got = jax.jit(derivative, static_argnums=1)(0.3, solve_spd)
        np.testing.assert_allclose(got, wanted, rtol=1e-10)


@pytest.mark.parametrize("n", SIZES)
def test_not_positive_definite_is_nan(n):
    A, b = problem(n)
    assert np.all(np.isnan(solve_spd(A - 2 * jnp.trace(A) * jnp.eye(n), b)))


def test_empty():
    assert solve_spd(jnp.zeros((0, 0)), jnp.zeros((0, 2))).shape == (0, 2)
