"""Recursions along trees against sums over ancestors and descendants."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, joints
from jaxmbd.formulations.joint.tree_configuration import MOST_IN_TABLE, ancestors
from jaxmbd.formulations.joint.tree_recursion import ROOT, TreeRecursion

TREES = {
    "chain": [ROOT, 0, 1, 2],
    "star": [ROOT, ROOT, ROOT],
    "one": [ROOT],
    "bush": [ROOT, 0, 1, 1, 0, 4, 4, ROOT, 7, 8, 7, 10],
}
each = pytest.mark.parametrize("parents", TREES.values(), ids=TREES)


def carries(parents):
    """Mask: node j (column) is node i (row) or above it."""
    n = len(parents)
    above = np.eye(n, dtype=bool)
    for i, parent in enumerate(parents):
        if parent != ROOT:
            above[i] |= above[parent]
    return above


@each
def test_outwards(parents):
    x = np.random.default_rng(0).normal(size=(len(parents), 2))
    found = TreeRecursion(tuple(parents)).forward(jnp.add, jnp.ones(2), jnp.asarray(x))
    np.testing.assert_allclose(found, 1.0 + carries(parents) @ x, atol=1e-14)


@each
def test_inwards(parents):
    x = np.random.default_rng(1).normal(size=(len(parents), 2))

    def step(carried, own):
        total = carried["sum"] + own
        return {"sum": total}, total

    found = TreeRecursion(tuple(parents)).backward(step, {"sum": jnp.zeros(2)}, jnp.asarray(x))
    np.testing.assert_allclose(found, carries(parents).T @ x, atol=1e-14)


LONG = MOST_IN_TABLE + 4
LARGER = {"long chain": range(ROOT, LONG - 1), "long bush": [ROOT, *(i // 2 for i in range(LONG))]}


@pytest.mark.parametrize("parents", [*TREES.values(), *LARGER.values()], ids=[*TREES, *LARGER])
def test_mask_of_ancestors(parents):
    names = [f"body{i}" for i in range(len(parents))]
    links = {
        f"hinge {name}": joints.Revolute(
            mbd.ground if parent == ROOT else Frame(names[parent], [1.0, 0, 0]),
            name,
            [0, 0, 1],
        )
        for name, parent in zip(names, parents, strict=True)
    }
    model = mbd.Model(dict.fromkeys(names, mbd.RigidBody(1.0, [1.0, 1, 1])), links)
    mechanism = mbd.formulate(model).mechanism
    rows = [mechanism.topology.row[name] - 1 for name in names]
    found = np.asarray(ancestors(mechanism))
    np.testing.assert_array_equal(found[np.ix_(rows, rows)], carries(parents))


def test_slots_do_not_grow_with_the_length_of_a_chain():
    sizes = {TreeRecursion(tuple(range(-1, n - 1)))._plan.size for n in (2, 10, 1000)}
    assert sizes == {2}
