"""Kernels in programs that are exported for batches of any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxmbd as mbd
from tests.marks import thorough_but
from tests.models import chain

WAYS = {
    "joint": (mbd.JointCoordinates(), None),
    "maximal": (mbd.MaximalCoordinates(), mbd.GeneralizedAlpha()),
}


@pytest.mark.parametrize("way", thorough_but(["joint"], WAYS))
def test_batches_of_any_size(way):
    formulation, integrator = WAYS[way]
    system = mbd.formulate(chain(2), formulation)
    state = mbd.assemble(system, {"jlink0000": 0.3})

    def end(q, v):
        return mbd.rollout(system, mbd.State(q, v), 0.01, 2, integrator).q[-1]

    (n,) = export.symbolic_shape("n")
    any_size = (jax.ShapeDtypeStruct((n, *x.shape), x.dtype) for x in (state.q, state.v))
    exported = export.export(jax.jit(jax.vmap(end)))(*any_size)
    v = jnp.outer(jnp.linspace(0.0, 1.0, 3), jnp.ones_like(state.v))
    q = jnp.tile(state.q, (3, 1))
    found = exported.call(q, v)
    one = jax.jit(end)
    for k in range(3):
        np.testing.assert_allclose(found[k], one(q[k], v[k]), rtol=1e-12, atol=1e-14)
