"""Exported programs: for batches of any size, and for other platforms."""

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


@pytest.mark.long
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


@pytest.mark.thorough
def test_an_export_for_several_platforms():
    system = mbd.formulate(chain(2), mbd.JointCoordinates())
    state = mbd.assemble(system)
    one = state.q, jnp.linspace(0.1, 0.2, state.v.size)
    many = tuple(jnp.tile(x, (11, 1)) for x in one)

    @jax.vmap
    def ends(q, v):
        return mbd.rollout(system, mbd.State(q, v), 0.01, 2).q[-1]

    exported = export.export(jax.jit(ends), platforms=("cpu", "cuda"))(*many)
    assert exported.platforms == ("cpu", "cuda")
    np.testing.assert_allclose(exported.call(*many), ends(*many), rtol=1e-12, atol=1e-14)
