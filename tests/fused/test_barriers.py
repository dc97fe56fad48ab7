"""Barriers around results that a kernel needs several times."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.fused.barriers import WORTH, with_barriers


def _shared(x):
    for _ in range(WORTH):
        x = x * x + 0.5
    return jnp.sin(x) + jnp.concatenate([x[1:], x[:1]])


def _looped(x):
    def step(total, y):
        shared = _shared(total + y)
        return shared / 2, shared[0]

    return jax.lax.scan(step, x, jnp.stack([x, 2 * x]))[1]


def _primitives(fn, x):
    return str(jax.make_jaxpr(fn)(x)).count("optimization_barrier")


def test_what_is_needed_twice_is_made_once():
    x = jnp.linspace(0.1, 0.6, 4)
    program = jax.make_jaxpr(_shared)(x)
    assert _primitives(with_barriers(program), x) > 0
    np.testing.assert_allclose(with_barriers(program)(x)[0], _shared(x), rtol=1e-14)


def test_what_is_needed_once_or_is_cheap_gets_no_barrier():
    x = jnp.linspace(0.1, 0.6, 4)
    for fn in (lambda x: jnp.sum(jnp.sin(jnp.cos(x) + 1.0)), lambda x: x[1:] * x[:-1]):
        assert _primitives(with_barriers(jax.make_jaxpr(fn)(x)), x) == 0


def test_bodies_of_loops_too():
    x = jnp.linspace(0.1, 0.6, 4)
    program = jax.make_jaxpr(_looped)(x)
    assert _primitives(with_barriers(program), x) > 0
    np.testing.assert_allclose(with_barriers(program)(x)[0], _looped(x), rtol=1e-14)
