"""Loops over rows in memory, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import scalarjit
from scalarjit import emit, lengths
from scalarjit.registered import code_of

pytest.importorskip("llvmlite")


def close(found, expected, rtol=1e-11):
    scale = lambda x: rtol * float(jnp.max(jnp.abs(x), initial=1.0))  # noqa: E731
    each = lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=scale(y))  # noqa: E731
    jax.tree.map(each, found, expected)


def rows(A, x, given):
    """Rows of an argument and of other loops, in either direction, alone and in a loop."""

    def first(x, row):
        x = jnp.tanh(A @ x + row)
        return x, (x * row, jnp.sum(A, axis=0))

    x, (kept, same) = lax.scan(first, x, given)

    def second(x, row):
        y = jnp.sin(x + row[0] * row[1])
        z, inner = lax.scan(lambda z, r: (z + r * y, z * r), y, given)
        w, _ = lax.scan(lambda w, r: (w + jnp.cos(r), None), z, inner)
        return w, w + row[0]

    return lax.scan(second, x, (kept, same), reverse=True)


A = jnp.asarray([[0.3, -0.2], [0.5, 0.1]])
X = jnp.asarray([0.4, -0.7])
ROWS = jnp.cos(jnp.arange(12.0)).reshape(6, 2)


@pytest.mark.long
@pytest.mark.parametrize("long", [False, True])
def test_rows_in_memory(monkeypatch, long):
    monkeypatch.setattr(lengths, "MAX_UNROLLED", 0)
    for limit in ("PART", "LONG"):
        monkeypatch.setattr(emit, limit, 6 if long else 4000)

    def fn(A, x, given):  # Another object for each case, so that its code is generated anew.
        return rows(A, x + float(long), given)

    with scalarjit.enabled(True):
        own = scalarjit.native_of(fn, A, X, ROWS)
    many = jnp.stack([ROWS, ROWS**2, -ROWS])
    ways = {
        "one": ((None, None, None), (A, X, ROWS)),
        "states": ((None, 0, None), (A, many[:, 0], ROWS)),
        "rows": ((None, None, 0), (A, X, many)),
    }
    for axes, args in ways.values():
        found, expected = (jax.vmap(f, axes) if 0 in axes else f for f in (own, fn))
        close(jax.jit(found)(*args), jax.jit(expected)(*args))
    total = lambda f: lambda *args: jnp.sum(f(*args)[1] ** 2)  # noqa: E731
    slopes = [jax.jit(jax.vmap(jax.grad(total(f), (0, 1, 2)), (None, None, 0))) for f in (own, fn)]
    close(*(slope(A, X, many) for slope in slopes), rtol=1e-10)


def test_code_does_not_grow_with_the_number_of_steps():
    def run(n):
        def fn(x, given):
            return lax.scan(lambda x, r: (jnp.sin(A @ x) + r, x), x, given)

        given = jax.ShapeDtypeStruct((n, 2), X.dtype)
        made = scalarjit.native_of(fn, X, given)
        return code_of(made.program, (True, False))

    with scalarjit.enabled(True):
        short, long = run(4000), run(40_000)
    assert (short.shared, short.varying) == (long.shared, long.varying)


def programs_of(jaxpr):
    """Programs of generated code that a jaxpr calls."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scalarjit_call":
            yield equation.params["program"]
        for inner in filter(None, map(equation.params.get, ("jaxpr", "call_jaxpr"))):
            yield from programs_of(getattr(inner, "jaxpr", inner))


def saving(monkeypatch):
    """A motion with a state that is an integer, its code, and the squares of its results."""
    monkeypatch.setattr(lengths, "MAX_UNROLLED", 0)

    def motion(A, x, r):
        def step(carry, r):
            x, n = carry
            x = jnp.sin(A @ x) + r * x[n % 2]
            return (x, n + 1), (x, n)

        return lax.scan(step, (x, jnp.array(0)), r)[1]

    def loss(f):
        def total(A, x, r):
            x, n = f(A, x, r)
            return jnp.sum(x**2 * n[:, None].astype(x.dtype)), n

        return total

    with scalarjit.enabled(True):
        return scalarjit.native_of(motion, A, X, STEPS), motion, loss


STEPS = jnp.cos(jnp.arange(9.0))


def test_reverse_mode_saves_the_motion(monkeypatch):
    """The linear part needs the states of all steps, and does not compute them again."""
    own, motion, loss = saving(monkeypatch)
    by = {"argnums": (0, 1, 2), "has_aux": True}
    slope, expected = (jax.value_and_grad(loss(f), **by) for f in (own, motion))
    close(jax.jit(slope)(A, X, STEPS), expected(A, X, STEPS))
    first, last = programs_of(jax.make_jaxpr(slope)(A, X, STEPS).jaxpr)
    assert "sin" in str(first)
    assert "sin" not in str(last)
    assert all(code_of(p, (False,) * len(p.in_avals)).name for p in (first, last))


@pytest.mark.thorough
def test_derivatives_of_saved_motions(monkeypatch):
    own, motion, loss = saving(monkeypatch)

    def one(x):
        return loss(f)(A, x, STEPS)[0]

    many = jnp.stack([X, -X, 2 * X])
    results = []
    for f in (own, motion):
        batch = jax.jit(jax.vmap(jax.grad(one)))(many)
        along = jax.jacfwd(lambda x, f=f: f(A, x, STEPS)[0])(X)
        results.append((jax.jit(jax.hessian(one))(X), along, batch))
    close(*results)
