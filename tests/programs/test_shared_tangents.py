"""Carries of loops, and how often JAX differentiates what these repeat."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

from jaxmbd.programs.with_slope import with_shared_tangents

# A function that counts how often it is differentiated.
_damped, asked = Primitive("damped"), []
_damped.def_abstract_eval(lambda x: x)
mlir.register_lowering(_damped, mlir.lower_fun(lambda x: 0.9 * x, multiple_results=False))


def _along(primals, tangents):
    asked.append(primals)
    return _damped.bind(*primals), 0.9 * tangents[0]


ad.primitive_jvps[_damped] = _along


def swung(x, start):
    """A pendulum's angle after ten steps and its slope, and how often these are differentiated."""

    def step(carry, _):
        angle, rate = carry
        rate = _damped.bind(rate) - 0.1 * jnp.sin(angle)
        return (angle + 0.1 * rate, rate), None

    def end(x):
        return jax.lax.scan(step, start(jnp.ones(3), x), length=10)[0][0].sum()

    asked.clear()
    return *jax.jit(jax.value_and_grad(end))(x), len(asked)


def test_a_loop_is_differentiated_once():
    x = jnp.arange(3.0)
    value, slope, often = swung(x, lambda angle, rate: (angle, rate))
    assert often == 2  # The angle turns out to depend on x, so that all is asked again.
    found = swung(x, lambda angle, rate: with_shared_tangents((angle, rate), rate))
    assert found[2] == 1
    np.testing.assert_array_equal(found[0], value)
    np.testing.assert_allclose(found[1], slope, rtol=1e-14)
