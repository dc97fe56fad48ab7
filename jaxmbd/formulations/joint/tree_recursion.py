"""Recursions along a tree, node by node in depth-first order, in one scan each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Above = TypeVar("Above")
Carried = TypeVar("Carried")
Own = TypeVar("Own")
Found = TypeVar("Found")

ROOT = -1


@dataclass(frozen=True)
class TreeRecursion:
    """Nodes 0, 1, …, each after its parent; the parent of some is the root, `ROOT`.

    Only what is still needed is carried along, in a few slots: a chain needs one whatever its
    length, a tree about as many as branches are open at once. The program does not grow with the
    number of nodes, and holds nothing but slices and arithmetic, so that XLA makes one kernel of
    it on CPUs.
    """

    parents: tuple[int, ...]

    @staticmethod
    def of(parents: Sequence[int]) -> "TreeRecursion":
        """A walk from any sequence of integers."""
        return TreeRecursion(tuple(int(i) for i in parents))

    @cached_property
    def _plan(self) -> "_Plan":
        return _plan(self.parents)

    def forward(self, step: Callable[[Above, Own], Above], root: Above, own: Own) -> Above:
        """Values of all nodes, each `step` of its parent's and of its own row of `own`."""
        plan = self._plan
        kept = jax.tree.map(lambda x: jnp.broadcast_to(x, (plan.size, *x.shape)), root)

        def go(kept: Above, node: tuple[Array, Array, Own]) -> tuple[Above, Above]:
            read, write, own = node
            here = step(_at(kept, read), own)
            return _put(kept, here, write), here

        xs = (jnp.asarray(plan.read), jnp.asarray(plan.write), own)
        return jax.lax.scan(go, kept, xs)[1]

    def backward(
        self, step: Callable[[Carried, Own], tuple[Carried, Found]], none: Carried, own: Own
    ) -> Found:
        """What `step` finds at all nodes, children first.

        `step` is given the sum of what the node's children hand on, `none` where there are none,
        and the node's row of `own`; it returns what the node hands on, and what is kept of it.
        """
        plan = self._plan
        kept = jax.tree.map(lambda x: jnp.broadcast_to(x, (plan.size, *x.shape)), none)

        def go(kept: Carried, node: tuple[Any, ...]) -> tuple[Carried, Found]:
            read, write, first, inner, own = node
            carried = jax.tree.map(
                lambda x, zero: jnp.where(inner, x, zero), _at(kept, write), none
            )
            handed, found = step(carried, own)
            before = _at(kept, read)
            total = jax.tree.map(lambda x, y: x + jnp.where(first, 0.0, y), handed, before)
            return _put(kept, total, read), found

        xs = (plan.read, plan.write, plan.last, plan.inner)
        return jax.lax.scan(go, kept, (*map(jnp.asarray, xs), own), reverse=True)[1]


@dataclass(frozen=True)
class _Plan:
    """Slots of a walk: the one where a node's parent is kept, and the one of the node itself.

    - `last`: whether the node is the last child of its parent, the first one on the backward pass.
    - `inner`: whether it has children; others write to a slot that nothing reads.
    - `size`: number of slots.
    """

    read: np.ndarray
    write: np.ndarray
    last: np.ndarray
    inner: np.ndarray
    size: int


def _plan(parents: Sequence[int]) -> _Plan:
    n = len(parents)
    children = np.bincount(np.asarray(parents, dtype=int) + 1, minlength=n + 1)
    left = children.copy()
    slot, free, size = {ROOT: 0}, [], 1
    read, write = np.zeros(n, np.int32), np.full(n, -1, np.int32)
    last = np.zeros(n, bool)
    for i, parent in enumerate(parents):
        assert parent < i, "a parent comes before its children"
        read[i] = slot[parent]
        left[parent + 1] -= 1
        if left[parent + 1] == 0:  # Its slot may be used again, by this node to begin with.
            last[i] = True
            free.append(slot[parent])
        if children[i + 1]:
            if not free:
                free.append(size)
                size += 1
            slot[i] = write[i] = free.pop()
    inner = write >= 0
    return _Plan(read, np.where(inner, write, size).astype(np.int32), last, inner, size + 1)


def _at(tree: Own, i: Array) -> Own:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, 0, keepdims=False), tree)


def _put(tree: Own, row: Own, i: Array) -> Own:
    return jax.tree.map(lambda x, y: jax.lax.dynamic_update_index_in_dim(x, y, i, 0), tree, row)


__all__ = ["ROOT", "TreeRecursion"]
