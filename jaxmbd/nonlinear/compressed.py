"""Sparse Jacobians by few directional derivatives (Curtis, Powell and Reid 1974).

Unknowns share a direction if no equation depends on more than one of them. The number of directions
of a chain does not depend on its length: it is the number of unknowns around one body.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..system.sparsity import SparsityPattern
from .elimination import neighbours
from .residual import Residual


def directions(pattern: SparsityPattern, members: Sequence[np.ndarray]) -> np.ndarray:
    """Number of the direction of each unknown; `members` are the unknowns of each node."""
    coupled = neighbours(pattern)
    colours: list[int] = []  # The first direction of each colour.
    widths: list[int] = []
    taken: list[set[int]] = [set() for _ in members]  # Colours of unknowns in a node's equations.
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
    direction = np.zeros(sum(own.size for own in members), dtype=np.int32)
    for own, colour in zip(members, chosen, strict=True):
        direction[own] = colours[colour] + np.arange(own.size)
    return direction


def compressed_jacobian(
    fn: Callable[[Array], Array], x: Float[Array, "n"], direction: Int[np.ndarray, "n"]
) -> tuple[Float[Array, "n"] | None, Float[Array, "k n"]]:
    """fn(x), and its derivative along the sum of the unit vectors of each direction.

    None instead of fn(x) if it is not computed with the derivative.
    """
    numbers = jnp.arange(int(direction.max()) + 1, dtype=jnp.int32)

    def members(number: Array) -> Array:
        return (direction == number).astype(x.dtype)

    if isinstance(fn, Residual):
        along_all = fn.derivatives(x, jax.vmap(members)(numbers))
        if along_all is not None:
            return None, along_all
    value, along = jax.linearize(fn, x)
    # Sequential: the intermediate results of all directions together exceed the CPU's cache.
    return value, jax.lax.map(lambda number: along(members(number)), numbers)
