"""Functions whose operations JAX keeps, and the programs that they make."""

import jax
import jax.numpy as jnp

from jaxmbd.programs.tracing import inlined_jit


def square_sum(x):
    return jnp.sum(x * jnp.sin(x))


def program(function):
    """The function, its batch and its gradient in one program."""

    def whole(x):
        return function(x[0]), jax.vmap(function)(x), jax.grad(function)(x[1]), function(x[1])

    return jax.make_jaxpr(whole)(jnp.ones((2, 3)))


def test_the_function_runs_once_and_the_program_is_the_same():
    calls = []

    def counted(x):
        calls.append(x)
        return square_sum(x)

    found = program(inlined_jit(counted))
    assert len(calls) == 1
    plain = program(square_sum)
    assert [e.primitive for e in found.eqns] == [e.primitive for e in plain.eqns]
    x = jnp.arange(6.0).reshape(2, 3)
    values = [jax.core.eval_jaxpr(p.jaxpr, p.consts, x) for p in (found, plain)]
    for seen, wanted in zip(*values, strict=True):
        assert jnp.array_equal(seen, wanted)


def test_shapes_have_operations_of_their_own():
    kept = inlined_jit(square_sum)
    for x in (jnp.ones(2), jnp.ones(3), jnp.ones((), dtype=jnp.float32)):
        assert kept(x) == square_sum(x)
        assert kept(x).dtype == x.dtype
