"""Calls of LAPACK in one program depend on each other, as jaxlib 0.10 requires."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd.linear import after
from jaxmbd.linear.constrained import _WAITS
from tests.properties import resting
from tests.properties.draws import FORMULATIONS

waits = pytest.mark.skipif(not _WAITS, reason="this version of jaxlib does not wait for its pool")
OPERATION = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = .*?\b([\w-]+)\((.*)$")


def unordered_calls(text: str) -> tuple[int, list[tuple[str, str]]]:
    """Number of LAPACK calls of a compiled program, and pairs without a path between them.

    Calls are compared within each computation of the program.
    """
    n_calls, unordered = 0, []
    for computation in re.split(r"\n\n", text):
        below: dict[str, set[str]] = {}
        calls: list[str] = []
        for line in computation.splitlines():
            match = OPERATION.match(line)
            if not match:
                continue
            name, operation, rest = match.groups()
            sources = re.findall(r"%([\w.-]+)", rest.split("metadata=")[0])
            below[name] = set().union(*({s} | below.get(s, set()) for s in sources))
            if operation == "custom-call" and '"lapack_' in rest:
                unordered += [(call, name) for call in calls if call not in below[name]]
                calls.append(name)
        n_calls += len(calls)
    return n_calls, unordered


@pytest.mark.long
@pytest.mark.smoke
def test_values_and_derivatives():
    for dtype in (jnp.float32, jnp.float64):
        x = jnp.array([1.5, -2.0, jnp.inf], dtype=dtype)
        for other in (jnp.array([jnp.nan]), jnp.array([True, False]), jnp.ones(2, jnp.float32)):
            np.testing.assert_array_equal(jax.jit(after)(x, other), x)
            assert after(x, other).dtype == dtype
    rates = jax.jacobian(after, argnums=(0, 1))(jnp.ones(2), jnp.array([jnp.nan, 1.0]))
    np.testing.assert_array_equal(rates[0], np.eye(2))
    np.testing.assert_array_equal(rates[1], 0.0)


@waits
def test_independent_calls_are_seen_and_cured():
    """The compiler keeps the dependency, and without it the two factorizations are independent."""
    A = jnp.stack([jnp.eye(3)] * 4)
    B = 2.0 * A

    def in_turn(A, B):
        first = jnp.linalg.cholesky(A)
        return first, jnp.linalg.cholesky(after(B, first))

    def at_once(A, B):
        return jnp.linalg.cholesky(A), jnp.linalg.cholesky(B)

    assert unordered_calls(jax.jit(in_turn).lower(A, B).compile().as_text()) == (2, [])
    n_calls, unordered = unordered_calls(jax.jit(at_once).lower(A, B).compile().as_text())
    assert n_calls == 2
    assert len(unordered) == 1


ALL = [(name, dtype) for name in ("joint", "maximal") for dtype in ("float32", "float64")]


@waits
@pytest.mark.thorough
@pytest.mark.parametrize("case", ALL, ids="-".join)
def test_accelerations(case):
    """Batched accelerations of a free body with hinged arms, one of them driven, by XLA alone."""
    formulation, dtype = case
    model = resting.star()
    system = mbd.formulate(model, FORMULATIONS[formulation], dtype=jnp.dtype(dtype))
    state = mbd.assemble(system, {})
    qs = jnp.stack([state.q] * 3)

    def accelerations(q):
        return mbd.accelerations(system, 0.0, mbd.State(q, state.v))

    with scalarjit.enabled(False):
        text = jax.jit(jax.vmap(accelerations)).lower(qs).compile().as_text()
    n_calls, unordered = unordered_calls(text)
    assert n_calls >= 5  # A factorization, two parts of another, and two substitutions.
    assert not unordered


@waits
def test_an_empty_batch_waits_for_nothing():
    """Neither a batch of both arrays, nor one of either."""
    one, none = jnp.ones(2), jnp.ones((0, 2))
    assert jax.vmap(after)(none, none).shape == (0, 2)
    assert jax.vmap(after, in_axes=(None, 0))(one, none).shape == (0, 2)
    assert jax.vmap(after, in_axes=(0, None))(none, one).shape == (0, 2)
