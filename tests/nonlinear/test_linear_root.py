"""Linear equations of which a function is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.nonlinear import Blocks, Dense, linear_root

A = jnp.array([[4.0, 1.0, 0.0], [1.0, 1e-3, 2.0], [0.5, 2.0, -1.0]])
BLOCKS = Blocks((3,), (jnp.array(1e-3),))


def equations(x, args):
    matrix, b = args
    return matrix @ x - b


@eqx.filter_jit
def solve(matrix, b):
    return linear_root(equations, (matrix, b), BLOCKS, Dense())


def test_solution_and_both_modes():
    b = jnp.array([1.0, -2.0, 0.3])
    np.testing.assert_allclose(solve(A, b), jnp.linalg.solve(A, b), rtol=1e-14)
    for jacobian in (jax.jacfwd, jax.jacrev):
        for k in (0, 1):
            found, wanted = (jacobian(f, k)(A, b) for f in (solve, jnp.linalg.solve))
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)


def test_singular_equations_have_no_solution():
    assert np.isnan(solve(A.at[2].set(A[0]), jnp.ones(3))).all()
