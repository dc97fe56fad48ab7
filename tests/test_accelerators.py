"""Programs for accelerators: the same numbers by wider operations."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.accelerators import accelerator_programs, products_as_sums
from tests.models import chain, four_bar, random_tree

SYSTEMS = {
    "a tree": (random_tree(3), mbd.JointCoordinates(), None),
    "a loop": (four_bar(), mbd.JointCoordinates(), None),
    "bodies": (chain(3), mbd.MaximalCoordinates(), mbd.GeneralizedAlpha()),
}


def products(program):
    """Numbers of terms of the products in a program and in the programs within it."""
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            shape = equation.invars[0].aval.shape
            yield np.prod([shape[k] for k in equation.params["dimension_numbers"][0][0]], dtype=int)
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from products(inner)


@pytest.mark.long
def test_products_in_loops_and_branches_become_sums():
    A = jnp.arange(9.0).reshape(3, 3)

    def fn(A, n, factor):
        once = jax.lax.cond(n > 1, lambda A: A @ A.T, lambda A: A.T @ A, A)
        _, rows = jax.lax.scan(lambda x, row: (A @ x, row @ A), jnp.ones(3), once)
        more = jax.lax.while_loop(lambda x: x[0] < 1e3, lambda x: A @ x + 1.0, jnp.ones(3))
        return {"rows": rows, "more": more, "outer": jax.jit(jnp.outer)(more, more), "f": factor}

    plain = fn(A, 2, 3.0)
    with accelerator_programs(True):
        wide = products_as_sums(fn)(A, 2, 3.0)
        program = jax.make_jaxpr(lambda A: products_as_sums(fn)(A, 2, 3.0)["rows"])(A)
        slope = jax.jacobian(lambda A: products_as_sums(fn)(A, 2, 3.0)["rows"])(A)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), wide, plain)
    assert not list(products(program.jaxpr))
    np.testing.assert_allclose(slope, jax.jacobian(lambda A: fn(A, 2, 3.0)["rows"])(A), rtol=1e-13)


def test_long_products_and_integers_remain():
    A, rows = jnp.ones((40, 40)), jnp.arange(6).reshape(2, 3)

    def fn(A):
        return A @ A, rows @ rows.T

    with accelerator_programs(True):
        program = jax.make_jaxpr(products_as_sums(fn))(A)
    assert sorted(products(program.jaxpr)) == [3, 40]


@pytest.mark.long
def test_accelerations_of_a_tree():
    """Poses are composed along paths of doubled length; a branched tree and a long chain."""
    for model in (random_tree(3), chain(6)):
        system = mbd.formulate(model, mbd.JointCoordinates())
        state = mbd.assemble(system, {})
        state = mbd.State(state.q, jnp.linspace(0.1, 0.3, state.v.size))
        plain = mbd.accelerations(system, 0.0, state)[0]
        with accelerator_programs(True):
            wide = mbd.accelerations(system, 0.0, state)[0]
        np.testing.assert_allclose(wide, plain, rtol=1e-9, atol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SYSTEMS)
def test_motions_and_gradients(name):
    """The motion of a system and the derivative by its velocities, as on the CPU."""
    model, formulation, integrator = SYSTEMS[name]
    system = mbd.formulate(model, formulation)
    state = mbd.assemble(system, {})
    v = jnp.linspace(0.1, 0.3, state.v.size)

    def end(v):
        return mbd.rollout(system, mbd.State(state.q, v), 1e-3, 2, integrator).v[-1]

    def value_and_slope(v):
        return end(v), jax.grad(lambda v: jnp.sum(jnp.cos(end(v))))(v)

    plain = jax.jit(value_and_slope)(v)
    with accelerator_programs(True):
        wide = jax.jit(value_and_slope)(v)
        text = jax.jit(jax.vmap(end)).trace(v[None]).lower(lowering_platforms=("cuda",)).as_text()
    for a, b in zip(wide, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    assert "jaxmbd" not in "".join(re.findall(r"custom_call @\S+", text))  # No generated code.
