"""Derivatives by one argument as kernels of several directions."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.fused import DerivativeKernels

X = jnp.linspace(0.3, 1.4, 11)


def curved(x, args):
    matrix, name = args
    assert name == "not an array"
    return jnp.sin(matrix @ x) * x[:2]


def ranked(x, args):
    return jnp.sort(x) + args[0][0]


def arguments():
    return jnp.asarray(np.random.default_rng(0).standard_normal((2, X.size))), "not an array"


def test_rows_are_those_of_the_jacobian():
    args = arguments()
    kernels = DerivativeKernels(curved, X, args)
    wanted = jax.jacfwd(curved)(X, args)
    # Of 11 directions one tile, of 20 two with nothing spare, of 19 one that is not full.
    for count in (1, 11, 19, 20):
        directions = jnp.asarray(np.random.default_rng(1).standard_normal((count, X.size)))
        found = kernels(directions, X, args)
        np.testing.assert_allclose(found, directions @ wanted.T, atol=1e-14)


def test_batches():
    args, many = arguments(), jnp.stack([X, 2.0 * X, X - 1.0])
    kernels, directions = DerivativeKernels(curved, X, args), jnp.eye(X.size)
    found = jax.jit(jax.vmap(lambda x: kernels(directions, x, args)))(many)
    wanted = jax.vmap(lambda x: jax.jacfwd(curved)(x, args).T)(many)
    np.testing.assert_allclose(found, wanted, atol=1e-14)


def test_none_of_what_xla_does_not_put_into_kernels():
    args = arguments()
    assert DerivativeKernels(ranked, X, args)(jnp.eye(X.size), X, args) is None
