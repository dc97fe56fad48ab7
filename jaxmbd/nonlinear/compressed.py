"""Sparse Jacobians by few directional derivatives (Curtis, Powell and Reid 1974).

Unknowns that no equation depends on together share a direction. A chain of any length needs as
many directions as one of its bodies sees unknowns.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..system.sparsity import SparsityPattern
from .elimination import neighbours
from .residual import KernelResidual


def directions(pattern: SparsityPattern, members: Sequence[np.ndarray]) -> np.ndarray:
    """For each unknown the number of its direction; `members` are the unknowns of each node."""
    coupled = neighbours(pattern)
    colours: list[int] = []  # The first direction of each colour.
    widths: list[int] = []
    taken: list[set[int]] = [set() for _ in members]  # Colours that a node's equations see already.
    chosen = []
    for node, own in enumerate(members):
        blocked = set().union(*(taken[row] for row in coupled[node]))
        colour = next(k for k in range(len(widths) + 1) if k not in blocked)
        if colour == len(widths):
            widths.append(0)
        widths[colour] = max(widths[colour], own.size)
        for row in coupled[node]:
            taken[row].add(colour)
        chosen.append(colour)
    colours = np.concatenate([[0], np.cumsum(widths)]).tolist()
    found = np.zeros(sum(own.size for own in members), dtype=np.int32)
    for own, colour in zip(members, chosen, strict=True):
        found[own] = colours[colour] + np.arange(own.size)
    return found


def compressed_jacobian(
    fn: Callable[[Array], Array], x: Float[Array, "n"], direction: Int[np.ndarray, "n"]
) -> tuple[Float[Array, "n"], Float[Array, "k n"]]:
    """fn(x), and its derivative along the sum of the unknowns of each direction."""
    numbers = jnp.arange(int(direction.max()) + 1, dtype=jnp.int32)

    def members(number: Array) -> Array:
        return (direction == number).astype(x.dtype)

    if isinstance(fn, KernelResidual):
        found = fn.derivatives(x, jax.vmap(members)(numbers))
        if found is not None:
            return found
    value, along = jax.linearize(fn, x)
    # One after the other: side by side their intermediate results do not stay in the cache.
    return value, jax.lax.map(lambda number: along(members(number)), numbers)


__all__ = ["compressed_jacobian", "directions"]
