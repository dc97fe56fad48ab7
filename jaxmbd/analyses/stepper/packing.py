"""A tree of arrays as a few flat arrays.

Each array of a call costs about a microsecond, and so does each array that a call returns.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

# Arrays with more entries keep their own place: to copy them takes longer than to pass them.
MANY = 4096


class Packing:
    """Places of the arrays of a tree in one flat array for each type, and in arrays of their own.

    **Arguments:** `shapes`: the tree, with shapes and types instead of arrays.
    """

    def __init__(self, shapes: PyTree):
        leaves, self.structure = jax.tree.flatten(shapes)
        self.shapes = [leaf.shape for leaf in leaves]
        keys = [
            (str(leaf.dtype), k if np.prod(leaf.shape) > MANY else -1)
            for k, leaf in enumerate(leaves)
        ]
        # Floats first: the buffer that holds the state is the first one.
        order = sorted(set(keys), key=lambda key: (not key[0].startswith("float"), key[1], key[0]))
        self.members = [[k for k, own in enumerate(keys) if own == key] for key in order]

    def pack(self, tree: PyTree) -> list[Array]:
        """The flat arrays of a tree."""
        leaves = jax.tree.leaves(tree)
        return [jnp.concatenate([leaves[k].ravel() for k in ks]) for ks in self.members]

    def unpack(self, flat: list[Any]) -> PyTree:
        """The tree of flat arrays, which may be those of NumPy and have a leading axis."""
        leaves: list[Any] = [None] * len(self.shapes)
        for x, ks in zip(flat, self.members, strict=True):
            start = 0
            for k in ks:
                size = int(np.prod(self.shapes[k]))
                part = x[..., start : start + size]
                leaves[k] = part.reshape((*x.shape[:-1], *self.shapes[k]))
                start += size
        return jax.tree.unflatten(self.structure, leaves)

    def part(self, flat: list[Any], k: int) -> np.ndarray:
        """A copy of the k-th array of the tree."""
        size = int(np.prod(self.shapes[k]))
        for x, ks in zip(flat, self.members, strict=True):
            if k in ks:
                start = sum(int(np.prod(self.shapes[i])) for i in ks[: ks.index(k)])
                own = np.array(np.asarray(x)[..., start : start + size])
                return own.reshape((*own.shape[:-1], *self.shapes[k]))
        raise KeyError(k)


__all__ = ["Packing"]
