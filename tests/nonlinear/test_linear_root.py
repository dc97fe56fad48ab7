"""Linear equations given by a function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.nonlinear import linear_root
from jaxmbd.system.sparsity import SparsityPattern

# Two bodies with two velocities each, joined by two constraints: equations of one body know
# nothing of the velocities of the other.
PATTERN = SparsityPattern((0, 0, 1, 1), (2, 2), ((0, 2), (1, 2)), ((1,),))
A = jnp.array(
    [
        [4.0, 1.0, 0.0, 0.0, 2.0, 1.0],
        [1.0, 3.0, 0.0, 0.0, 0.0, -1.0],
        [0.0, 0.0, 2.0, 1e-3, -1.0, 0.3],
        [0.0, 0.0, 1e-3, 1.0, 0.5, 2.0],
        [2.0, 0.0, -1.0, 0.5, 0.0, 0.0],
        [1.0, -1.0, 0.3, 2.0, 0.0, 0.0],
    ]
)
B = jnp.array([1.0, -2.0, 0.3, 0.0, 1.0, 4.0])


def equations(x, args):
    matrix, b = args
    return matrix @ x - b


@eqx.filter_jit
def solve(matrix, b):
    return linear_root(equations, jnp.zeros(6), (matrix, b), 4, PATTERN)


@pytest.mark.thorough
def test_solution_and_both_modes():
    np.testing.assert_allclose(solve(A, B), jnp.linalg.solve(A, B), rtol=1e-14)
    for jacobian in (jax.jacfwd, jax.jacrev):
        for k in (0, 1):
            found, wanted = (jacobian(f, k)(A, B) for f in (solve, jnp.linalg.solve))
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)


def test_nothing_that_moves():
    np.testing.assert_array_equal(solve(A, jnp.zeros(6)), 0.0)


def test_singular_equations_have_no_solution():
    for row in (A[4], jnp.zeros(6)):
        assert np.isnan(solve(A.at[5].set(row), B)).all()
