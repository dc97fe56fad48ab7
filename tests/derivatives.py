"""Derivatives against differences, and forwards against backwards."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest


def difference(value, inputs, direction, h=2e-5):
    """Central difference of fourth order along a direction."""

    def at(s):
        return float(value(jax.tree.map(lambda x, d: x + s * d, inputs, direction)))

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


def check_gradient(end, reverse=True):
    """Check derivatives by three inputs; without `reverse` only in forward mode, for speed."""
    inputs, along = jnp.array([1.1, 0.4, 0.8]), jnp.array([0.5, -0.7, 1.3])
    look = eqx.filter_jit(lambda x: jax.jvp(end, (x,), (along,)))
    _, forward = look(inputs)
    slope = difference(lambda x: look(x)[0], inputs, along, h=1e-4)
    assert slope == pytest.approx(float(forward), rel=1e-7)
    if reverse:
        gradient = eqx.filter_jit(jax.grad(end))(inputs)
        assert gradient @ along == pytest.approx(float(forward), rel=1e-10)
