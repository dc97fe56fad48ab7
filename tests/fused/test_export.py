"""Kernels in programs that are exported: for batches of any size, and for other platforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxmbd as mbd
from jaxmbd import fused, joints
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


MARK = "xla_cpu_small_call"
SYSTEMS = {
    "joint, explicit": (chain(2), mbd.JointCoordinates(), None),
    "joint, implicit": (
        chain(2, joints.Spherical),
        mbd.JointCoordinates(),
        mbd.GeneralizedAlpha(),
    ),
    "maximal, implicit": (chain(2), mbd.MaximalCoordinates(), mbd.GeneralizedAlpha()),
}


def programs(name):
    """A motion, many at once, and gradients of both, with arguments."""
    model, formulation, integrator = SYSTEMS[name]
    system = mbd.formulate(model, formulation)
    state = mbd.assemble(system)

    def end(q, v):
        return mbd.rollout(system, mbd.State(q, v), 0.01, 2, integrator).q[-1]

    def slope(q, v):
        return jax.grad(lambda v: jnp.sum(end(q, v) ** 2))(v)

    one = state.q, jnp.linspace(0.1, 0.2, state.v.size)
    many = tuple(jnp.tile(x, (11, 1)) for x in one)
    return {
        "one": (end, one),
        "batch": (jax.vmap(end), many),
        "gradient": (slope, one),
        "gradients": (jax.vmap(slope), many),
    }


def lowered(fn, args, platform):
    return jax.jit(fn).trace(*args).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(["joint, explicit"], SYSTEMS))
def test_other_platforms_get_no_loops_over_tiles(name):
    for what, (fn, args) in programs(name).items():
        text = lowered(fn, args, "cuda")
        assert MARK in lowered(fn, args, "cpu")
        with fused.enabled(False):
            plain = lowered(fn, args, "cuda")
        assert MARK not in text
        # Values and derivatives of equations are there for themselves, and not together.
        allowed = 1.4 if name.startswith("maximal") else 1.15
        assert len(text.splitlines()) < allowed * len(plain.splitlines())
        if "gradient" not in what:  # Gradients have the recursions of the tree in them.
            assert text.count("stablehlo.while") == plain.count("stablehlo.while")


@pytest.mark.thorough
def test_an_export_for_several_platforms():
    fn, args = programs("joint, explicit")["batch"]
    exported = export.export(jax.jit(fn), platforms=("cpu", "cuda"))(*args)
    assert exported.platforms == ("cpu", "cuda")
    np.testing.assert_allclose(exported.call(*args), fn(*args), rtol=1e-12, atol=1e-14)
