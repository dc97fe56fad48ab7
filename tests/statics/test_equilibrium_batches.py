"""Equilibria of many variants at once."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.statics.stability import if_any
from tests.linear.test_succession import unordered_calls, waits
from tests.statics.test_equilibrium_eigenvalues import following

LOADS = (0.0, 1.5, 12.0)  # The first one has a potential, the last one makes the links flutter.


def rest(load):
    system = mbd.formulate(following((load, 5.0, 0.9)), mbd.JointCoordinates())
    found = mbd.equilibrium(system, mbd.assemble(system), method="newton", throw=False)
    return found.state.q, found.eigenvalues, found.imaginary, found.unstable_motion, found.steps


@pytest.fixture(scope="module")
def programs():
    batch = jax.jit(jax.vmap(rest)).lower(jnp.asarray(LOADS)).compile()
    return jax.jit(rest), batch


@pytest.mark.thorough
def test_members_that_flutter_and_members_with_a_potential(programs):
    """Each member has the results of a search of its own."""
    single, batch = programs
    each = [single(load) for load in LOADS]
    for k, together in enumerate(batch(jnp.asarray(LOADS))):
        for row, alone in zip(together, each, strict=True):
            np.testing.assert_allclose(row, alone[k], rtol=1e-9, atol=1e-12)
    assert [bool(jnp.any(x[2] != 0)) for x in each] == [False, False, True]


@pytest.mark.thorough
@waits
def test_calls_of_lapack_depend_on_each_other(programs):
    """jaxlib 0.10 would wait for ever for two batches of calls in two threads.

    A loop with calls counts as a call.
    """
    text = programs[1].as_text()
    bodies = dict(re.findall(r"^%?([\w.-]+) \(.*?\{\n(.*?)^\}", text, re.M | re.S))

    def calls(name, seen=()):
        body = bodies.get(name, "")
        inner = re.findall(r"(?:body|condition|calls|to_apply)=%?([\w.-]+)", body)
        return '"lapack_' in body or any(calls(x, (*seen, name)) for x in inner if x not in seen)

    marked = re.sub(
        r"= (.*?) while\((.*?body=%?([\w.-]+).*)$",
        lambda m: (
            f'= {m[1]} custom-call({m[2]} "lapack_' if calls(m[3]) else f"= {m[1]} while({m[2]}"
        ),
        text,
        flags=re.M,
    )
    n_calls, unordered = unordered_calls(marked)
    assert n_calls >= 4
    assert not unordered


def test_a_branch_is_computed_if_a_member_takes_it():
    passes = []

    def of(x):
        def costly():
            jax.debug.callback(lambda: passes.append(1))
            return jnp.sqrt(x)

        return if_any(x > 0, costly, -x)

    some, none = jnp.array([-1.0, 4.0]), jnp.array([-1.0, -4.0])
    np.testing.assert_array_equal(jax.jit(jax.vmap(of))(some), [1.0, 2.0])
    jax.effects_barrier()
    assert passes
    passes.clear()
    np.testing.assert_array_equal(jax.jit(jax.vmap(of))(none), [1.0, 4.0])
    jax.effects_barrier()
    assert not passes
