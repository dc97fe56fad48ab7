"""The switch that turns fused programs off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import fused, joints
from jaxmbd.errors import ModelError
from jaxmbd.fused import kernel_of
from tests.marks import thorough_but
from tests.models import chain

MARK = "xla_cpu_small_call"
X = jnp.linspace(0.1, 0.4, 4)

WAYS = {
    "joint, explicit": (joints.Revolute, mbd.JointCoordinates(), None),
    "joint, implicit": (joints.Spherical, mbd.JointCoordinates(), mbd.GeneralizedAlpha()),
    "maximal, implicit": (joints.Revolute, mbd.MaximalCoordinates(), mbd.GeneralizedAlpha()),
}


def is_fused():
    return kernel_of(jnp.sin, jnp.sin, X) is not None


@pytest.mark.long
@pytest.mark.parametrize("way", thorough_but(["joint, explicit"], WAYS))
def test_results_agree_to_rounding(way):
    kind, formulation, integrator = WAYS[way]
    system = mbd.formulate(chain(2, kind), formulation)
    state = mbd.assemble(system)

    @jax.jit
    def end_and_slope(v):
        def end(v):
            states = mbd.rollout(system, mbd.State(state.q, v), 0.01, 3, integrator)
            return jnp.sum(states.q[-1] ** 2), states

        return jax.vmap(jax.value_and_grad(end, has_aux=True))(v)

    v = jnp.outer(jnp.linspace(0.1, 1.0, 3), jnp.ones_like(state.v))
    if way.startswith("maximal"):
        v = jnp.zeros_like(v)
    with fused.enabled(False):
        plain = end_and_slope.lower(v)
    own = end_and_slope.lower(v)
    assert MARK not in plain.as_text()
    assert MARK in own.as_text()
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)  # noqa: E731
    jax.tree.map(close, own.compile()(v), plain.compile()(v))


def test_blocks_within_blocks():
    with fused.enabled(False):
        assert not is_fused()
        with fused.enabled(True):
            assert is_fused()
        assert not is_fused()
    assert is_fused()


def test_the_environment_variable(monkeypatch):
    monkeypatch.setenv("JAXMBD_FUSED", "0")
    assert not is_fused()
    with fused.enabled(True):
        assert is_fused()
    monkeypatch.setenv("JAXMBD_FUSED", "off")
    with pytest.raises(ModelError, match="JAXMBD_FUSED is 'off': set it to 0"):
        is_fused()
