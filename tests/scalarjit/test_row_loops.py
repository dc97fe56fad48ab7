"""Loops over the rows of arrays, in the place of operations on all rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import scalarjit
from scalarjit import graph, lengths, row_loops
from scalarjit.lengths import length
from scalarjit.scalars import scalars_of
from tests.scalarjit.random_programs import close as close_to

pytest.importorskip("llvmlite")


def bodies(x, w):
    """Functions of each body and of its neighbours, and sums over the forces on bodies.

    It has a row of its own at the ends, products with a common matrix, padded and cut rows, flat
    coordinates, and a stack along another axis.
    """
    n = x.size // 3
    p = x.reshape(n, 3)
    before = jnp.concatenate([jnp.ones((1, 3)), p])[:-1]
    after = jnp.concatenate([p[1:], w[None]])

    def joint(a, b):
        R = jnp.stack([jnp.sin(a), jnp.cos(b), a * b], axis=1)
        S = jnp.stack([jnp.cos(a), b, a - b])  # With the rows of all bodies along its second axis.
        S = jnp.where(S > 0.5, -S, S * S.T) @ R + jnp.sum(S, 0)[None] * S[:1] + jnp.max(S, 1)[None]
        return R @ S @ jnp.tanh(b - a) + jnp.where(a[0] > b[0], a, jnp.cross(a, b))

    force = jax.vmap(joint)(before, p) - jnp.cos(after) @ jnp.outer(w, w)
    first, second = jnp.split(jnp.pad(force, ((2, n - 1), (0, 0))), [n])
    on_both = first + jnp.flip(second[:n], 0)
    return jnp.concatenate([(on_both + p * jnp.sum(w)).ravel(), jnp.max(force, 1)])


def arguments(n):
    rng = np.random.default_rng(n)
    return jnp.asarray(rng.normal(size=3 * n)), jnp.asarray(rng.normal(size=3))


@pytest.fixture
def short(monkeypatch):
    """Loops over all rows, also of few operations."""
    monkeypatch.setattr(lengths, "MAX_UNROLLED", 100)
    monkeypatch.setattr(row_loops, "MAX_OPERATIONS", 0)
    row_loops.with_row_loops.cache_clear()
    yield
    row_loops.with_row_loops.cache_clear()


@pytest.mark.long
@pytest.mark.parametrize("shares", [True, False])
def test_values_and_derivatives_alone_and_in_batches(short, monkeypatch, shares):
    """Results equal JAX's, whether or not states share what does not vary."""
    if not shares:
        monkeypatch.setattr(graph, "MAX_SHARED_ITERATIONS", 0)

    def fn(x, w):  # Another object for each case, so that its code is generated anew.
        return bodies(x, w + float(shares))

    x, w = arguments(12)
    with scalarjit.enabled(True):
        made = scalarjit.native_of(fn, x, w)
    assert made is not None
    xs = jnp.stack([x, x**2, -x, 0 * x, 1 - x])

    def all_of(f):
        def slopes(x, w):
            return jax.jacfwd(f)(x, w), jax.grad(lambda x, w: jnp.sum(f(x, w) ** 2), (0, 1))(x, w)

        of_many = (jax.vmap(each, (0, None))(xs, w) for each in (f, slopes))
        return f(x, w), slopes(x, w), *of_many

    found, expected = (jax.jit(lambda f=f: all_of(f))() for f in (made, fn))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        close_to(a, b, jnp.float64, "rows")


def test_programs_do_not_grow_with_the_number_of_rows():
    def operations(n):
        program = jax.make_jaxpr(bodies)(*arguments(n))
        looped = row_loops.with_row_loops(program, frozenset())
        return length(looped.jaxpr)[0]

    assert operations(4_000) < 1.05 * operations(1_000)


def test_short_programs_have_no_loops_over_rows():
    program = jax.make_jaxpr(bodies)(*arguments(9))
    assert row_loops.with_row_loops(program, frozenset()) is program


def test_large_arrays_have_no_loops_over_rows():
    """XLA computes operations on vectors."""
    program = jax.make_jaxpr(lambda x: jnp.sin(x) + lax.rsqrt(x))(jnp.ones(200_000))
    assert row_loops.with_row_loops(program, frozenset()) is program


def test_indices_that_depend_on_no_argument_are_known(short):
    """Entries at indices that a loop computes would each be chosen from all rows."""
    n, last = 40, np.arange(40) % 3

    def picked(A):
        return jnp.sin(A)[jnp.arange(n), :, last] + jnp.cos(A[:, 0])

    program = jax.make_jaxpr(picked)(jnp.zeros((n, 3, 3)))
    assert len(scalars_of(program, (False,)).graph.nodes) < 30 * n
