"""Whole motions as generated code: loops over steps, with rows in memory, and their derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxmbd as mbd
from jaxmbd import joints, native
from jaxmbd.errors import IncompatibleIntegrator
from jaxmbd.native import emit, lengths
from jaxmbd.native.registered import PREFIX, code_of
from jaxmbd.testing import check_integrator_order
from tests.models import chain, random_state, random_tree

pytest.importorskip("llvmlite")


def close(found, expected, rtol=1e-11):
    scale = lambda x: rtol * float(jnp.max(jnp.abs(x), initial=1.0))  # noqa: E731
    each = lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=scale(y))  # noqa: E731
    jax.tree.map(each, found, expected)


def end_of(system, state, integrator):
    """All states, and the value and gradient of a function of them."""

    def states(v, system):
        return mbd.rollout(system, mbd.State(state.q, v), 0.01, 7, integrator)

    def one(v, system):
        slope = jax.grad(lambda v: jnp.sum(states(v, system).q ** 2))(v)
        return states(v, system), jax.jvp(lambda v: states(v, system).v, (v,), (v,))[1], slope

    return jax.jit(lambda v, system: (one(v, system), jax.vmap(one, (0, None))(v[None], system)))


TREES = {
    "chain": (chain, 2, mbd.SemiImplicitEuler()),
    "balls": (random_tree, 3, mbd.SemiImplicitEuler()),
    "Tsit5": (chain, 2, None),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", TREES)
def test_motions_agree_with_those_of_jax(name):
    make, count, integrator = TREES[name]
    kinds = {"kinds": [joints.Revolute, joints.Spherical]} if make is random_tree else {}
    system = mbd.formulate(make(count, **kinds))
    state = random_state(system, seed=1)
    run = end_of(system, state, integrator)
    with native.enabled(True):
        assert PREFIX in run.lower(state.v, system).as_text()
        found = run(state.v, system)
    with native.enabled(False):
        close(found, run(state.v, system), rtol=1e-9)


def test_a_motion_is_one_call():
    system = mbd.formulate(chain(1))
    state = mbd.assemble(system, {"jlink0000": 0.3})

    @eqx.filter_jit
    def run(system, state):
        return mbd.rollout(system, state, 0.01, 30, mbd.SemiImplicitEuler())

    with native.enabled(True):
        text = run.lower(system, state).as_text()
        found = run(system, state)
    assert text.count(f"custom_call @{PREFIX}") == 1
    assert "stablehlo.while" not in text
    vdot = jax.jit(lambda q, v: mbd.accelerations(system, 0.0, mbd.State(q, v))[0])
    q, v = state.q, state.v
    for k in range(30):
        v = v + 0.01 * vdot(q, v)
        q = q + 0.01 * v
        np.testing.assert_allclose(found.q[k], q, rtol=1e-12)
        np.testing.assert_allclose(found.v[k], v, rtol=1e-12)


@pytest.mark.thorough
def test_the_order_of_semi_implicit_steps():
    check_integrator_order(mbd.SemiImplicitEuler(), 1)


def test_semi_implicit_steps_refuse_constraints():
    system = mbd.formulate(chain(1), mbd.MaximalCoordinates())
    state = mbd.assemble(system)
    with pytest.raises(IncompatibleIntegrator, match=r"without constraints, .* has 5; use"):
        mbd.rollout(system, state, 0.01, 2, mbd.SemiImplicitEuler())


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

    with native.enabled(True):
        own = native.native_of(fn, A, X, ROWS)
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
        made = native.native_of(fn, X, given)
        return code_of(made.program, (True, False))

    with native.enabled(True):
        short, long = run(4000), run(40_000)
    assert (short.shared, short.varying) == (long.shared, long.varying)


def programs_of(jaxpr):
    """Programs of generated code that a jaxpr calls."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "native_call":
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

    with native.enabled(True):
        return native.native_of(motion, A, X, STEPS), motion, loss


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
