"""Accelerations of trees by generated code, in steps and with derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import fused, joints, native
from jaxmbd.native.registered import PREFIX
from tests.marks import thorough_but
from tests.models import chain

pytest.importorskip("llvmlite")

KINDS = {"revolute": joints.Revolute, "spherical": joints.Spherical}


def accelerations(system, q, v):
    return mbd.accelerations(system, 0.0, mbd.State(q, v))[0]


def some(system, q, v):
    """Values and derivatives in reverse mode."""
    return jax.value_and_grad(lambda v: jnp.sum(accelerations(system, q, v) ** 2))(v)


def many(system, q, v):
    """Values, both derivatives, second ones, and derivatives by all numbers of the system."""
    of_v = lambda v: accelerations(system, q, v)  # noqa: E731
    slope = lambda v: jnp.sum(jax.jvp(of_v, (v,), (v,))[1] ** 2)  # noqa: E731
    by_system = eqx.filter_grad(lambda system: jnp.sum(accelerations(system, q, v) ** 2))(system)
    return of_v(v), jax.jacrev(of_v)(v), jax.grad(slope)(v), jax.tree.leaves(by_system)


CASES = [("revolute", some), ("revolute", many), ("spherical", many)]


@pytest.mark.thorough
@pytest.mark.parametrize("case", thorough_but(CASES[:1], CASES))
def test_accelerations_and_derivatives(case):
    kind, ways = case
    system = mbd.formulate(chain(2, KINDS[kind]), mbd.JointCoordinates())
    state = mbd.assemble(system, {})
    v = jnp.outer(jnp.linspace(0.1, 1.0, 9), jnp.cos(jnp.arange(system.nv, dtype=float)))

    @eqx.filter_jit
    def run(system, q, v):
        return ways(system, q, v[0]), jax.vmap(lambda v: ways(system, q, v))(v)

    with native.enabled(True):
        found, text = run(system, state.q, v), run.lower(system, state.q, v).as_text()
    assert PREFIX in text
    with native.enabled(False), fused.enabled(False):  # By the mass matrix.
        expected = run(system, state.q, v)
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-9)  # noqa: E731
    jax.tree.map(close, found, expected)


@pytest.mark.thorough
def test_motions():
    system = mbd.formulate(chain(2), mbd.JointCoordinates())
    state = mbd.assemble(system, {"jlink0000": 0.3})

    @jax.jit
    def ends(v):
        end = lambda v: mbd.rollout(system, mbd.State(state.q, v), 0.01, 5).q[-1]  # noqa: E731
        return jax.vmap(end)(v)

    v = jnp.outer(jnp.linspace(0.0, 1.0, 11), jnp.ones_like(state.v))
    with native.enabled(True):
        found, text = ends(v), ends.lower(v).as_text()
    assert PREFIX in text
    with fused.enabled(False):
        np.testing.assert_allclose(found, ends(v), rtol=1e-10, atol=1e-12)
