"""Programs without repeated and unused operations, one object for equal ones."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from scalarjit.canonical import canonical


def primitives(program):
    return [x.primitive.name for x in program.jaxpr.eqns]


def traced(fn, *args):
    return jax.make_jaxpr(fn)(*args)


def test_equal_operations_are_computed_once():
    x = jnp.arange(3.0)
    program = traced(lambda x: jnp.sin(x) * jnp.sin(x) + jnp.sin(x + 1.0), x)
    found = canonical(program)
    assert primitives(program).count("sin") == 3
    assert primitives(found).count("sin") == 2
    np.testing.assert_array_equal(jaxpr_as_fun(found)(x), jaxpr_as_fun(program)(x))


def test_what_follows_from_equal_operations_is_equal():
    def fn(x):
        return jnp.cumsum(jnp.sin(x))[-1] - jnp.cumsum(jnp.sin(x))[0]

    assert primitives(canonical(traced(fn, jnp.ones(3)))).count("sin") == 1


def test_unused_operations_are_left_out():
    def fn(x):
        jnp.exp(x)
        return 2.0 * x

    assert primitives(canonical(traced(fn, 1.0))) == ["mul"]


def test_operations_with_other_parameters_or_operands_stay():
    def fn(x, y):
        return x.sum(0), x.sum(1), x.astype(jnp.float32), x.astype(jnp.int32), x - y, y - x

    program = traced(fn, jnp.ones((2, 2)), jnp.ones((2, 2)))
    assert primitives(canonical(program)) == primitives(program)


def test_a_result_that_only_the_later_one_uses_is_named():
    def fn(x):
        low, _ = jax.lax.split(x, (2, 1))
        _, high = jax.lax.split(x, (2, 1))
        return low.sum(), high

    x = jnp.arange(3.0)
    found = canonical(traced(fn, x))
    assert primitives(found).count("split") == 1
    low, high = jaxpr_as_fun(found)(x)
    assert (low, high[0]) == (1.0, 2.0)


def test_operations_with_effects_stay():
    heard = []

    def fn(x):
        jax.debug.callback(heard.append, x)
        jax.debug.callback(heard.append, x)
        return x

    jaxpr_as_fun(canonical(traced(fn, 1.0)))(1.0)
    jax.effects_barrier()
    assert len(heard) == 2


def test_bodies_of_loops_are_reduced_too():
    def fn(x):
        return jax.lax.fori_loop(0, 5, lambda _, x: jnp.cos(x) * jnp.cos(x), x)

    program = traced(fn, 0.3)
    assert str(program).count("= cos") == 2
    found = canonical(program)
    assert str(found).count("= cos") == 1
    np.testing.assert_array_equal(jaxpr_as_fun(found)(0.3)[0], fn(0.3))


def test_equal_programs_are_one_object():
    def with_constant(constant):
        return lambda x: jnp.where(x > 0, x, constant) @ constant

    def program(constant, x):
        return canonical(traced(with_constant(constant), x))

    first = program(np.arange(3.0), jnp.ones(3))
    assert program(np.arange(3.0), jnp.zeros(3)) is first
    assert canonical(first) is first
    assert program(np.arange(3.0), jnp.ones((1, 3))) is not first
    assert program(np.arange(1.0, 4.0), jnp.ones(3)) is not first
