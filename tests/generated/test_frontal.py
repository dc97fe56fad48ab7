"""Elimination of sparse matrices by generated code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scalarjit
from jaxmbd.formulations.maximal import MaximalSystem
from jaxmbd.mechanism.lowering import lower
from jaxmbd.nonlinear import Blocks, BlockSparse
from tests.models import chain
from tests.nonlinear.test_structured import MODELS, owners, random_matrix, without_code

pytest.importorskip("llvmlite")


def problem(model, dtype):
    """Blocks, a matrix of their pattern, and a right-hand side."""
    pattern = MaximalSystem(lower(model)).sparsity_pattern()
    J, nv = random_matrix(pattern), len(pattern.velocities)
    blocks = Blocks((nv, len(J) - nv), (jnp.array(1.0, dtype),) * 2, pattern=pattern)
    b = np.random.default_rng(1).normal(size=len(J))
    return blocks, jnp.asarray(J, dtype), jnp.asarray(b, dtype)


def both_solutions(blocks, J, b):
    way = BlockSparse()
    _, factors = way.factor(without_code(lambda x: J @ x), b, blocks)
    return way.solve(factors, b), way.solve_transposed(factors, b), factors


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("name", ["chain", pytest.param("star", marks=pytest.mark.long)])
def test_solutions_alone_and_in_batches(name, dtype):
    """Solutions equal LAPACK's: of one matrix, of several, and of several right-hand sides."""
    blocks, J, b = problem(MODELS[name](), dtype)
    with scalarjit.enabled(True):
        *found, factors = jax.jit(lambda J, b: both_solutions(blocks, J, b))(J, b)
        assert factors.fronts.ndim == 1  # By generated code.
        scales = jnp.array([1.0, -2.0, 0.5], dtype)
        many = jax.jit(jax.vmap(lambda s: both_solutions(blocks, s * J, b)[:2]))(scales)
        along = jax.jit(jax.vmap(lambda s: BlockSparse().solve(factors, s * b)))(scales)
    eps, exact = float(jnp.finfo(dtype).eps), np.asarray(J, float)
    for x, xs, matrix in zip(found, many, (exact, exact.T), strict=True):
        expected = np.linalg.solve(matrix, np.asarray(b, float))
        limit = 1e6 * eps * np.abs(expected).max()
        np.testing.assert_allclose(x, expected, atol=limit)
        for scale, one in zip(np.asarray(scales), xs, strict=True):
            np.testing.assert_allclose(scale * one, expected, atol=limit)
    for scale, one in zip(np.asarray(scales), along, strict=True):
        np.testing.assert_allclose(one, scale * found[0], atol=limit)


@pytest.mark.long
def test_the_same_factors_as_without_generated_code():
    """Also a batch of batches, which no code computes."""
    blocks, J, b = problem(chain(6), jnp.float64)

    def solve(s, t):
        return jnp.stack(both_solutions(blocks, (s + t) * J, b)[:2])

    grid = jnp.arange(1.0, 4.0), jnp.array([0.5, 3.0])
    found = []
    for on in (True, False):
        with scalarjit.enabled(on):
            many = jax.vmap(jax.vmap(solve, (None, 0)), (0, None))
            found.append(jax.jit(lambda s, t, many=many: many(s, t))(*grid))
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


def test_singular_and_unknown_numbers_stay_visible():
    blocks, J, b = problem(chain(6), jnp.float64)
    with scalarjit.enabled(True):
        solve = jax.jit(lambda J, b: both_solutions(blocks, J, b)[0])
        assert not jnp.isfinite(solve(0.0 * J, b)).any()
        assert not jnp.isfinite(solve(J.at[3, 3].set(jnp.nan), b)).all()
        assert not jnp.isfinite(solve(J, b.at[0].set(jnp.inf))).all()


def test_code_does_not_grow_with_the_number_of_bodies():
    from jaxmbd.nonlinear.plan import fronts_of, plan_of
    from scalarjit.ir import Module

    def lines(n):
        pattern = MaximalSystem(lower(chain(n))).sparsity_pattern()
        counts = len(pattern.velocities), len(owners(pattern)) - len(pattern.velocities)
        fronts = fronts_of(plan_of(pattern, counts))
        return scalarjit.Elimination(fronts, "factored").text(Module(), "f64").count("\n")

    assert lines(40) <= 2 * lines(10)
