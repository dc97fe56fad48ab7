"""The entire functions of θ² under the exponentials."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.lie import series

FUNCTIONS = [series.cos_theta, series.sinc, series.versine, series.cubic]


def exact(x: float, first: int) -> float:
    """Σ (-x)^k / (2k + first)! in rational arithmetic."""
    x = Fraction(x)
    return float(sum((-x) ** k / math.factorial(2 * k + first) for k in range(60)))


@pytest.mark.long
@pytest.mark.parametrize("first", range(4), ids=lambda first: FUNCTIONS[first].__name__)
def test_values_on_both_sides_of_the_switch(first):
    x = np.array([0.0, 1e-300, 1e-12, 0.1, np.nextafter(1.0, 0.0), 1.0, 1.7, 9.0, 30.0])
    got = jax.jit(jax.vmap(FUNCTIONS[first]))(jnp.asarray(x))
    np.testing.assert_allclose(got, [exact(v, first) for v in x], rtol=3e-15, atol=3e-16)


@pytest.mark.long
@pytest.mark.parametrize("first", range(4), ids=lambda first: FUNCTIONS[first].__name__)
def test_derivatives_at_zero(first):
    """dᵏ/dxᵏ at zero is (-1)ᵏ k! / (2k + first)!."""
    f, zero = FUNCTIONS[first], jnp.zeros(())
    wanted = [(-1.0) ** k * math.factorial(k) / math.factorial(2 * k + first) for k in range(3)]
    reverse = [f(zero), jax.grad(f)(zero), jax.grad(jax.grad(f))(zero)]
    forward = [f(zero), jax.jacfwd(f)(zero), jax.jacfwd(jax.jacfwd(f))(zero)]
    np.testing.assert_allclose(reverse, wanted, rtol=1e-15)
    np.testing.assert_allclose(forward, wanted, rtol=1e-15)
