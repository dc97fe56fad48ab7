"""Kernels of linear functions: what they are transposed, differentiated and in batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.fused import linear_kernel_of, smooth_kernel, smooth_kernel_of

# Programs of other releases of JAX look different.
pytestmark = pytest.mark.smoke

MARK = "xla_cpu_small_call"
A = jnp.array([[1.0, 2.0, 0.5], [0.3, -1.0, 2.0]])
X = jnp.array([0.4, -0.2, 0.9])


def there(at, x):
    A, scale = at
    return jnp.sin(A) @ x * scale["of"]


def back(at, y):
    A, scale = at
    return y @ jnp.sin(A) * scale["of"]


def as_kernel(A, s, x):
    at = (A, {"of": s})
    kernel = linear_kernel_of(there, back, at, x)
    assert kernel is not None
    return kernel(at, x)


def plainly(A, s, x):
    return there((A, {"of": s}), x)


S = jnp.array(1.7)
MAPPED = {"vector": (None, None, 0), "rest": (0, None, None), "both": (0, None, 0)}


def stacked(axes):
    """Eleven of each argument that differs: more than a kernel takes at once."""
    factors = jnp.linspace(0.5, 1.5, 11)
    return [
        x if axis is None else x[None] * factors.reshape(-1, *[1] * x.ndim)
        for x, axis in zip((A, S, X), axes, strict=True)
    ]


def close(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)


def test_transposes_are_kernels():
    slope = jax.jit(lambda x, y: jax.linear_transpose(lambda x: as_kernel(A, S, x), x)(y)[0])
    y = jnp.array([0.3, -2.0])
    assert slope.lower(X, y).as_text().count(MARK) == 1
    close(slope(X, y), back((A, {"of": S}), y))


@pytest.mark.parametrize("argnums", [2, (0, 1, 2)])
def test_derivatives(argnums):
    ways = [lambda *args, fn=fn: jnp.sum(fn(*args) ** 2) for fn in (as_kernel, plainly)]
    for transform in (jax.grad, jax.jacfwd, jax.hessian):
        close(*(jax.jit(transform(way, argnums))(A, S, X) for way in ways))


@pytest.mark.parametrize("name", MAPPED)
def test_batches(name):
    axes, args = MAPPED[name], stacked(MAPPED[name])
    many = jax.jit(jax.vmap(as_kernel, in_axes=axes))
    assert many.lower(*args).as_text().count(MARK) == 1
    close(many(*args), jax.vmap(plainly, in_axes=axes)(*args))


@pytest.mark.parametrize("name", MAPPED)
def test_gradients_of_batches_and_batches_of_gradients(name):
    axes, args = MAPPED[name], stacked(MAPPED[name])

    def of_all(fn):
        return jax.grad(lambda x: jnp.sum(jax.vmap(fn, in_axes=axes)(*args[:2], x) ** 2))(args[2])

    def of_each(fn):
        slope = jax.grad(lambda A, s, x: jnp.sum(fn(A, s, x) ** 2), argnums=2)
        return jax.vmap(slope, in_axes=axes)(*args)

    for way in (of_all, of_each):
        found = jax.jit(lambda way=way: way(as_kernel))
        assert found.lower().as_text().count(MARK) == 2
        close(found(), way(plainly))


def turned(A, x):
    """A smooth kernel in a loop, whose second derivatives do not use the functions' own rules."""

    def step(x, _):
        return smooth_kernel(moved, A, x), None

    return jnp.sum(jax.lax.scan(step, x, None, length=4)[0] ** 2)


def moved(A, x):
    return jnp.cos(x) + jnp.tanh(A.T @ A @ x)


def in_a_loop(A, x):
    for _ in range(4):
        x = moved(A, x)
    return jnp.sum(x**2)


def test_smooth_kernels():
    assert jax.jit(jax.grad(turned, 1)).lower(A, X).as_text().count(MARK) == 2
    for transform in (jax.grad, jax.jacfwd, jax.hessian):
        close(*(jax.jit(transform(way, (0, 1)))(A, X) for way in (turned, in_a_loop)))


def test_derivatives_of_a_smooth_kernel_are_made_once():
    kernel = smooth_kernel_of(moved, A, X)
    assert kernel is not None
    for _ in range(2):
        found = jax.jit(jax.jacfwd(lambda x: kernel(A, x)))(X)
        close(found, jax.jacfwd(lambda x: moved(A, x))(X))
    assert len(kernel.derivatives) == 1
    jax.jit(jax.jacfwd(lambda A: kernel(A, X)))(A)
    assert len(kernel.derivatives) == 2


def test_batches_may_be_arrays_of_numpy():
    many = np.stack([X, 2 * X, 3 * X])
    found = jax.vmap(lambda x: smooth_kernel(moved, A, x))(many)
    close(found, jax.vmap(lambda x: moved(A, x))(many))


def test_what_is_no_kernel_is_left_alone():
    def ranked(A, x):
        return jnp.sort(x * A[0])

    assert linear_kernel_of(ranked, ranked, A, X) is None
    close(smooth_kernel(ranked, A, X), ranked(A, X))
    slope = eqx.filter_jit(jax.grad(lambda x: smooth_kernel(ranked, A, x) @ X))
    close(slope(X), jax.grad(lambda x: ranked(A, x) @ X)(X))


UNMOVED = {"of x alone": lambda A, x: jnp.cos(x), "of nothing": lambda A, x: jnp.arange(3.0)}
SUMS = {"matrix": 0, "vector": 1, "both": (0, 1)}


@pytest.mark.long
@pytest.mark.parametrize("name", UNMOVED)
@pytest.mark.parametrize("argnums", SUMS.values(), ids=SUMS)
def test_derivatives_by_arguments_that_do_not_matter(name, argnums):
    fn = UNMOVED[name]

    def of(call):
        """In a loop, where XLA ends the process over a kernel that reads no argument."""
        return lambda A, x: jax.lax.scan(lambda x, _: (call(A, x), None), x, None, length=3)[0]

    fused, plain = of(lambda *args: smooth_kernel(fn, *args)), of(fn)
    for transform in (jax.jacfwd, jax.jacrev):
        ways = [transform(way, argnums) for way in (fused, plain)]
        close(*(jax.jit(way)(A, X) for way in ways))
        many = jnp.stack([X + 0.1 * k for k in range(11)])
        close(*(jax.jit(jax.vmap(way, in_axes=(None, 0)))(A, many) for way in ways))
