"""Evaluations of the mechanics as single operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.system.kernels import FEW_ROWS, kernel, of_rows


@kernel
def angle(t, q):
    return {"angle": jnp.arctan2(q[0], q[1]) * t}


@pytest.mark.parametrize("n", [0, 3, FEW_ROWS, FEW_ROWS + 1])
def test_few_rows_are_evaluated_in_turn(n):
    ts, q = jnp.linspace(0.0, 1.0, n), jnp.cos(jnp.arange(2.0 * n)).reshape(n, 2)
    program = jax.make_jaxpr(lambda ts, q: of_rows(angle, ts, q))(ts, q)
    assert ("scan" in [x.primitive.name for x in program.eqns]) == (n <= FEW_ROWS)
    found = of_rows(angle, ts, q)["angle"]
    np.testing.assert_allclose(found, np.arctan2(q[:, 0], q[:, 1]) * ts, rtol=1e-14)
