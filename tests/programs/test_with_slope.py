"""Derivatives of the result of an iteration by its arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.programs.with_slope import converged
from jaxmbd.system.projection import project_positions
from tests.derivatives import difference
from tests.models import four_bar


def heron(x, args):
    """One of Newton's steps to the square roots of `a`; `n` takes no part."""
    return 0.5 * (x + args["a"] / x)


def root(a):
    # The last digits show which value is returned: a step would change them.
    return converged(heron, jnp.sqrt(a) * (1 + 1e-9), {"a": a, "n": jnp.array(3), "unit": "m"})


def test_value_is_where_the_iteration_ended():
    a = jnp.array([2.0, 9.0])
    np.testing.assert_array_equal(root(a), jnp.sqrt(a) * (1 + 1e-9))


def test_first_and_second_derivatives_are_those_of_the_root():
    a = jnp.array([2.0, 9.0])
    np.testing.assert_allclose(jax.vmap(jax.grad(root))(a), 0.5 / jnp.sqrt(a), rtol=1e-8)
    curvature = jax.vmap(jax.grad(jax.grad(root)))(a)
    np.testing.assert_allclose(curvature, -0.25 * a**-1.5, rtol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("moving", ["coordinates", "length"])
def test_projected_positions_have_derivatives(moving):
    system = mbd.formulate(four_bar())
    q = mbd.assemble(system, {"left": 0.8}).q
    along = jnp.sin(jnp.arange(1.0, 1.0 + system.nq))

    def end(s):
        if moving == "coordinates":
            return along @ project_positions(system, jnp.zeros(()), q + s * along)
        return along @ project_positions(mbd.formulate(four_bar(2.0 + s)), jnp.zeros(()), q)

    look = jax.jit(lambda s: jax.jvp(end, (s,), (1.0,)))
    _, forward = look(0.0)
    assert jax.jit(jax.grad(end))(0.0) == pytest.approx(float(forward), rel=1e-10)
    slope = difference(lambda s: look(s)[0], 0.0, 1.0, h=1e-3)
    assert slope == pytest.approx(float(forward), rel=1e-7)
