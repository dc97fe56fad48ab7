"""Static selections of rows of arrays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsInt, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Tree = TypeVar("Tree")

# Largest number of runs that become slices instead of a gather.
MAX_SLICES = 4


@dataclass(frozen=True)
class IndexSet:
    """A static selection of rows.

    A few runs of consecutive rows become slices instead of a gather; consecutive rows that are
    each repeated k times become a broadcast. Slices and broadcasts are cheaper to run, and a chain
    of any length lowers to the same program, without index tables.
    """

    index: tuple[int, ...]

    @staticmethod
    def of(index: Iterable[SupportsInt]) -> "IndexSet":
        """The set of any sequence of integers, including NumPy integers."""
        return IndexSet(tuple(int(i) for i in index))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def array(self) -> np.ndarray:
        """The rows as a numpy array."""
        return np.asarray(self.index, dtype=np.int32)

    def shifted(self, by: int) -> "IndexSet":
        """Selection with `by` added to every row."""
        return IndexSet(tuple(i + by for i in self.index))

    def traced(self) -> Array:
        """The rows as a traced array, without an index table for a few runs."""
        if 0 < len(self.runs) <= MAX_SLICES:
            parts = [jnp.arange(first, first + n, dtype=jnp.int32) for first, n in self.runs]
            return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
        return jnp.asarray(self.array)

    @property
    def repeats(self) -> int:
        """k > 1 if consecutive rows are each repeated k times in turn, otherwise 0."""
        k = self.index.count(self.index[0]) if self.index else 0
        if k < 2 or len(self.index) % k:
            return 0
        first = self.index[0]
        return k if self.index == tuple(first + i // k for i in range(len(self.index))) else 0

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Maximal runs of consecutive rows, as first row and length."""
        if not self.index:
            return ()
        breaks = np.flatnonzero(np.diff(self.array) != 1) + 1
        return tuple((int(part[0]), len(part)) for part in np.split(self.array, breaks))

    @property
    def consecutive(self) -> bool:
        """True if the rows are consecutive."""
        return len(self.runs) == 1

    def take(self, x: Array) -> Array:
        """`x[rows]`."""
        if len(self.runs) <= MAX_SLICES:
            parts = [jax.lax.slice_in_dim(x, first, first + n) for first, n in self.runs]
            return parts[0] if len(parts) == 1 else jnp.concatenate([x[:0], *parts])
        if k := self.repeats:
            once = IndexSet(self.index[::k]).take(x)
            repeated = jnp.broadcast_to(once[:, None], (once.shape[0], k, *x.shape[1:]))
            return repeated.reshape(-1, *x.shape[1:])
        return x.at[self.array].get(mode="promise_in_bounds")

    def take_tree(self, tree: Tree) -> Tree:
        """`take` on every leaf."""
        return jax.tree.map(self.take, tree)

    def add_to(self, total: Array, x: Array) -> Array:
        """`total` with `x` added at these rows; rows may repeat."""
        if len(self.runs) <= MAX_SLICES:
            start = 0
            for first, n in self.runs:
                part = jax.lax.slice_in_dim(x, start, start + n)
                padding = [(first, total.shape[0] - first - n, 0), *[(0, 0, 0)] * (x.ndim - 1)]
                total = total + jax.lax.pad(part, jnp.zeros((), x.dtype), padding)
                start += n
            return total
        if k := self.repeats:
            sums = jnp.sum(x.reshape(-1, k, *x.shape[1:]), axis=1)
            return IndexSet(self.index[::k]).add_to(total, sums)
        return total.at[self.array].add(x)


def inverse(parts: Iterable[IndexSet], size: int) -> IndexSet:
    """Position of each of `size` rows in the concatenation of `parts`."""
    position = np.full(size, -1)
    start = 0
    for rows in parts:
        position[rows.array] = np.arange(start, start + len(rows))
        start += len(rows)
    assert np.all(position >= 0), "every row must be in one of the parts"
    return IndexSet.of(position)


def in_order(parts: Sequence[IndexSet], size: int, values: Sequence[Tree]) -> Tree:
    """Values of `size` rows in row order, from the values of the parts of a partition."""
    order = inverse(parts, size)
    return jax.tree.map(lambda *x: order.take(jnp.concatenate(x)), *values)
