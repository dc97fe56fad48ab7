"""Ranks of possibly redundant columns beside others that are nearly dependent."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.linear import factor_constraints


@pytest.mark.parametrize("near", [1e-3, 1e-6])
def test_rounding_errors_behind_nearly_dependent_columns_are_no_constraints(near):
    """Two columns are sums of columns of the tree, a third one is independent of these.

    All columns of the tree are but for `near` one vector: combinations of them have lengths of
    1 / `near` and more, and rounding errors as large.
    """
    rng = np.random.default_rng(0)
    n, m = 30, 20
    tree = rng.normal(size=(n, 1)) + near * rng.normal(size=(n, m))
    combinations = rng.normal(size=(m, 2)) / near
    combinations -= combinations.mean(axis=0)
    columns = np.concatenate([tree, tree @ combinations, rng.normal(size=(n, 1))], axis=1)
    redundant = (False,) * m + (True,) * 3
    length = jnp.asarray(np.linalg.norm(columns, axis=0))
    factors = factor_constraints(jnp.asarray(columns), redundant, length, jnp.zeros(()))
    assert int(jnp.sum(factors.nonzero)) == 1


@pytest.mark.long
@pytest.mark.parametrize(("asked", "n_nonzero"), [(1e-13, 1), (1e-9, 2)])
def test_rounding_errors_of_the_demand_are_no_demand(asked, n_nonzero):
    """Two columns differ by less than the violation of the constraints and by more than rounding.

    Their difference is a constraint if the demand along it exceeds rounding errors of its terms.
    """
    columns = jnp.array([[1.0, 1.0], [0.0, 1e-14], [0.0, 0.0]])
    demand, violation = jnp.array([0.0, asked]), jnp.array(1e-14)
    factors = factor_constraints(
        columns, (True, True), jnp.ones(2), violation, demand, jnp.array(100.0)
    )
    assert int(jnp.sum(factors.nonzero)) == n_nonzero
