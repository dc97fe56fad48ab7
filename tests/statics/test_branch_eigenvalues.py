"""Derivatives of the eigenvalues along a path, against a closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.statics.test_equilibrium_paths import Y0, B, K, truss

REST = (B * B + Y0 * Y0) ** 0.5


def eigenvalue(y, stiffness):
    """Stiffness of the slider at height y [N/m], by its mass of 1 kg."""
    return stiffness * (1.0 - REST * B * B / (B * B + y * y) ** 1.5)


@pytest.mark.thorough
def test_eigenvalues_along_an_arc_have_derivatives():
    """dω² = ∂ω²/∂y dy + ∂ω²/∂k dk, with dy of the path itself, in both modes."""

    def at(stiffness):
        model = eqx.tree_at(lambda m: m.forces["bar"].stiffness, truss(), stiffness)
        system = mbd.formulate(model)
        state = mbd.assemble(system, {"slide": Y0})
        branch = mbd.load_path(
            system, state, "load", mbd.ArcLength(0.0, n_steps=4, step=0.08, size=8.0)
        )
        return branch.eigenvalues[:, 0], branch.joints["slide"].q.ravel()

    stiffness = jnp.asarray(K)
    (values, y), slope = jax.linearize(jax.jit(at), stiffness)
    d_values, dy = slope(jnp.ones_like(stiffness))
    np.testing.assert_allclose(values, eigenvalue(y, stiffness), rtol=1e-9)
    expected = jax.vmap(
        lambda y, dy: jax.jvp(eigenvalue, (y, stiffness), (dy, jnp.ones_like(dy)))[1]
    )(y, dy)
    assert np.abs(dy).max() > 1e-3
    np.testing.assert_allclose(d_values, expected, rtol=1e-8, atol=1e-9)
    back = jax.linear_transpose(slope, stiffness)
    for row, expected_row in zip(np.eye(len(y)), expected, strict=True):
        (gradient,) = back((jnp.asarray(row), jnp.zeros_like(y)))
        assert float(gradient) == pytest.approx(float(expected_row), rel=1e-8)
