"""Whole motions as generated code: loops over steps, with rows in memory, and their derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import joints
from jaxmbd.errors import IncompatibleIntegrator
from jaxmbd.testing import check_integrator_order
from scalarjit.registered import PREFIX
from tests.marks import thorough_but
from tests.models import chain, four_bar, random_state, random_tree

pytest.importorskip("llvmlite")


def close(found, expected, rtol=1e-11):
    scale = lambda x: rtol * float(jnp.max(jnp.abs(x), initial=1.0))  # noqa: E731
    each = lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=scale(y))  # noqa: E731
    jax.tree.map(each, found, expected)


def ends_of(state, integrator):
    """All states, and the value and gradient of a function of them, alone and in a batch.

    In one program, jaxlib 0.10 does not find LAPACK's function for the last factorization.
    """

    def states(v, system):
        return mbd.rollout(system, mbd.State(state.q, v), 0.01, 7, integrator)

    def one(v, system):
        slope = jax.grad(lambda v: jnp.sum(states(v, system).q ** 2))(v)
        return states(v, system), jax.jvp(lambda v: states(v, system).v, (v,), (v,))[1], slope

    return jax.jit(one), jax.jit(lambda v, system: jax.vmap(one, (0, None))(v[None], system))


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
    for run in ends_of(state, integrator):
        with scalarjit.enabled(True):
            assert PREFIX in run.lower(state.v, system).as_text()
            found = run(state.v, system)
        with scalarjit.enabled(False):
            close(found, run(state.v, system), rtol=1e-9)


IMPLICIT = {
    "alpha": (chain(2), mbd.GeneralizedAlpha(0.9)),
    "bdf": (chain(2), mbd.BDF(2)),
    "loop": (four_bar(), mbd.GeneralizedAlpha(0.9)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(["alpha"], IMPLICIT))
def test_motions_by_implicit_methods(name):
    """A batch with a state that is not finite agrees with JAX, and derivatives with differences."""
    model, integrator = IMPLICIT[name]
    system = mbd.formulate(model)
    start = mbd.assemble(system, {}, {next(iter(model.joints)): 1.0})

    def states(x):
        return mbd.rollout(system, mbd.State(start.q, x * start.v), 0.01, 7, integrator)

    def end(x):
        return jnp.sum(states(x).q[-1] ** 2)

    factors = jnp.array([1.0, jnp.nan, 0.5])
    with scalarjit.enabled(True):
        several, slope = jax.jit(jax.vmap(states)), jax.jit(jax.grad(end))(1.0)
        assert PREFIX in several.lower(factors).as_text()
        each, one = several(factors), jax.jit(end)
        difference = (one(1 + 1e-5) - one(1 - 1e-5)) / 2e-5
        assert float(slope) == pytest.approx(float(difference), rel=1e-7)
    with scalarjit.enabled(False):
        move = jax.jit(states)
        for k in (0, 2):
            close(jax.tree.map(lambda x, k=k: x[k], each), move(factors[k]), rtol=1e-8)
    assert jnp.isnan(each.q[1, -1]).all()


def test_a_motion_is_one_call():
    system = mbd.formulate(chain(1))
    state = mbd.assemble(system, {"jlink0000": 0.3})

    @eqx.filter_jit
    def run(system, state):
        return mbd.rollout(system, state, 0.01, 30, mbd.SemiImplicitEuler())

    with scalarjit.enabled(True):
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
