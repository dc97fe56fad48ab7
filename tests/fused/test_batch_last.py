"""Programs along the last axis, beside `jax.vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.fused.batch_last import RULES, CannotBatch, batch_last
from jaxmbd.fused.inline_and_unroll import inline_and_unroll

# Programs of other releases of JAX look different.
pytestmark = pytest.mark.smoke

SIZE = 5
TABLE = np.array([2, 0, 1, 1])
MANY = np.array([1] * 20 + [0])  # More than are gathered.


def scanned(A, x):
    """A loop with constants, a carry, slices of its arguments, and results of every turn."""

    def turn(total, row):
        total = total + x[0] * row
        return total, jnp.cross(total, x[1])

    return jnp.concatenate([y.ravel() for y in jax.lax.scan(turn, jnp.zeros(3), A, reverse=True)])


def placed(A, x):
    """Slices at places that a loop counts."""

    def turn(kept, k):
        row = jax.lax.dynamic_index_in_dim(A, k, 0, keepdims=False)
        kept = jax.lax.dynamic_update_index_in_dim(kept, row * x[0, 0], k, 0)
        return kept, None

    return jax.lax.scan(turn, jnp.zeros((3, 3)), jnp.arange(3))[0]


def added(A, x):
    """To rows that a loop brings along; those beyond the last one are dropped."""

    def turn(total, rows):
        return total.at[rows].add(A[:2] * x[0, 0]), None

    return jax.lax.scan(turn, jnp.ones((3, 3)), jnp.array([[0, 1], [2, 2], [1, 7]]))[0]


# Each of a matrix (3, 3) of every state, and of a matrix (2, 3) that all share.
FUNCTIONS = {
    "elementwise": lambda A, x: jnp.sin(A) * x[0, 1] + jnp.clip(A, -0.5, 0.5) / (1 + x[:1] ** 2),
    "products": lambda A, x: jnp.concatenate([A @ x[0], x @ A[0], (A @ A.T @ x.T).ravel()]),
    "many products": lambda A, x: jax.vmap(lambda a: A @ a + jnp.outer(a, x[1]) @ a)(A),
    "places": lambda A, x: jnp.stack([A[TABLE, 1:], x[TABLE % 2, :2] * A[0, 0]], axis=1),
    "additions": lambda A, x: jnp.ones((4, 3)).at[TABLE].add(A[TABLE] * x[0, 0]),
    "many additions": lambda A, x: jnp.zeros((2, 3)).at[MANY].add(A[MANY] * x[0, 0]),
    "additions in a loop": added,
    "shapes": lambda A, x: jnp.pad(jnp.tile(A.T[::-1], (2, 1)), 1) + jnp.repeat(x[0, :1], 5)[None],
    "sums": lambda A, x: (
        jnp.max(A, 0) + jnp.sum(A, 1) + jnp.where(jnp.argmin(A, 0) == 1, x[0], 0.0)
    ),
    "choices": lambda A, x: jnp.where(A[0, 0] > 0, A, jnp.where(x[0, 0] > 0, x[:1], 0.0)),
    "parts": lambda A, x: jnp.hstack([*jnp.split(A, 3, axis=1)[::-1], x.T]),
    "scanned": scanned,
    "placed": placed,
}


def batched(fn, A, x, shared):
    program = inline_and_unroll(jax.make_jaxpr(fn)(A[0], x if shared else x[0]), 4000)
    many = batch_last(program, SIZE, (True, not shared))
    given = jnp.moveaxis(A, 0, -1), x if shared else jnp.moveaxis(x, 0, -1)
    (found,) = jax.extend.core.jaxpr_as_fun(many)(*given)
    return jnp.moveaxis(found, -1, 0)


@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shared", [True, False])
def test_results_are_those_of_vmap(name, shared):
    fn, random = FUNCTIONS[name], np.random.default_rng(2)
    A = jnp.asarray(random.normal(size=(SIZE, 3, 3)))
    x = jnp.asarray(random.normal(size=(2, 3) if shared else (SIZE, 2, 3)))
    found = batched(fn, A, x, shared)
    expected = jax.vmap(fn, in_axes=(0, None if shared else 0))(A, x)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


def test_every_rule_is_tried():
    used = set()

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            used.add(equation.primitive.name)
            if "jaxpr" in equation.params:
                visit(equation.params["jaxpr"].jaxpr)

    A, x = jnp.ones((SIZE, 3, 3)), jnp.ones((2, 3))
    for fn in FUNCTIONS.values():
        visit(inline_and_unroll(jax.make_jaxpr(fn)(A[0], x), 4000).jaxpr)
    assert not RULES.keys() - used


def test_a_place_that_differs_between_states_is_refused():
    def looked_up(A, x):
        return jax.lax.dynamic_index_in_dim(x, jnp.int32(A[0, 0]), 0)

    with pytest.raises(CannotBatch):
        batched(looked_up, jnp.ones((SIZE, 3, 3)), jnp.ones((2, 3)), True)
