"""Products of generated code with matrices of truth values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scalarjit
from scalarjit.scalars import scalars_of

pytest.importorskip("llvmlite")


def ancestors(parents):
    """Mask: body j (column) is body i (row) or an ancestor of it."""
    found = np.eye(len(parents), dtype=bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            found[i] |= found[parent]
    return found


def sums(mask):
    """Sums over subtrees and over ancestors; no entry reads a row of another branch."""

    def fn(x):
        chosen = jnp.asarray(mask).astype(x.dtype)
        return chosen.T @ x, x.T @ chosen, chosen @ x

    return fn


@pytest.mark.parametrize(
    "parents", [range(-1, 11), [-1, 0, 1, 1, 0, 4, 4, -1, 7, 7], [-1] * 4], ids=str
)
def test_sums_over_trees(parents):
    mask = ancestors(list(parents))
    fn, n, k = sums(mask), len(mask), 3
    x = jnp.asarray(np.random.default_rng(n).normal(size=(n, k)))
    with scalarjit.enabled(True):
        code = scalarjit.native_or_reason(fn, x)
    assert not isinstance(code, str), code

    found, expected = jax.jit(lambda x: [(fn(x), jax.vjp(fn, x)[1](fn(x))) for fn in (code, fn)])(x)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13), found, expected
    )

    nodes = scalars_of(jax.make_jaxpr(fn)(x), [False]).graph.nodes
    added = [x for x in nodes if x.op == "add" and x.type == "f64"]
    # As recursions along the tree, one from the tips and one from the root.
    assert len(added) == 2 * k * sum(parent >= 0 for parent in parents)


def test_infinite_rows_of_other_branches_have_no_effect():
    x = jnp.ones((3, 2)).at[1, 0].set(jnp.inf)
    with scalarjit.enabled(True):
        code = scalarjit.native_or_reason(sums(ancestors([-1, 0, 0])), x)
    assert not isinstance(code, str), code
    np.testing.assert_array_equal(code(x)[0], [[jnp.inf, 3], [jnp.inf, 1], [1, 1]])
