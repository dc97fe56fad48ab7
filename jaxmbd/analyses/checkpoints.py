"""A long scan whose reverse mode keeps a part of its steps and makes the others again."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Var
from jaxtyping import PyTree

from ..errors import ModelError

# Every level is one more pass over the motion, and one more copy of a step in the program.
MAX_LEVELS = 8


@dataclass(frozen=True)
class MemoryBudget:
    """How much memory reverse mode through a `rollout` may take, so that it chooses what it keeps.

    With one level every step is kept; each further level cuts the blocks of the one before into
    shorter blocks, keeps where each of these starts, and makes the steps once more. `rollout` takes
    the fewest levels whose estimate fits. It counts, for one motion: what one step leaves for the
    way back, by its traced program and before the compiler fuses anything; states and memory of the
    integrator where blocks start; the states that `rollout` returns, and as much for their
    cotangents. The model, and what a batch multiplies, are not counted.

    **Arguments:** `n_bytes` [B].
    """

    n_bytes: float

    def __post_init__(self):
        if not self.n_bytes > 0:
            raise ModelError(f"MemoryBudget: the number of bytes must be positive: {self.n_bytes}")

    def lengths(self, n_steps: int, step: int, start: int, result: int) -> tuple[int, ...]:
        """Lengths of nested blocks, the outermost first.

        `step`, `start` and `result` are the bytes that a step leaves for the backward pass, that
        the start of a block takes, and that a step's share of the result takes.

        **Raises** `ModelError` where no number of levels fits.
        """
        shared = 2 * n_steps * result
        found = [_shortest(n_steps, levels, step, start) for levels in range(1, MAX_LEVELS + 1)]
        needed = [shared + kept_bytes(lengths, step, start) for lengths in found]
        for lengths, n_bytes in zip(found, needed, strict=True):
            if n_bytes <= self.n_bytes:
                return lengths
        least = int(np.argmin(needed))
        raise ModelError(
            f"rollout: {n_steps} steps do not fit in {_in_words(self.n_bytes)}; reverse mode needs "
            f"{_in_words(needed[least])} with {least + 1} levels of checkpoints, "
            f"{_in_words(shared)} of it for the states that are returned, and their cotangents"
        )


def kept_bytes(lengths: Sequence[int], step: int, start: int) -> int:
    """What nested blocks keep at most at a time: starts on all levels, steps on the last one."""
    *outer, inner = lengths
    return sum(outer) * start + inner * step


def halved(n_steps: int) -> tuple[int, int]:
    """Lengths of two levels, as near to each other as can be."""
    length = max(1, math.isqrt(n_steps))
    return -(-n_steps // length), length


def _shortest(n_steps: int, levels: int, step: int, start: int) -> tuple[int, ...]:
    """The lengths of so many levels that keep the least: all take the same number of bytes.

    With a start of c bytes and a step of r, c m₁ = … = r m_L, where m₁ m₂ … m_L = n.
    """
    if levels == 1:
        return (n_steps,)
    start, step = max(start, 1), max(step, 1)
    share = (n_steps * step * start ** (levels - 1)) ** (1 / levels)
    lengths = [min(n_steps, max(1, round(share / step)))]
    for left in range(levels - 1, 0, -1):
        remaining = -(-n_steps // math.prod(lengths))
        lengths.insert(0, max(1, math.ceil(remaining ** (1 / left) - 1e-9)))
    return tuple(lengths)


def _in_words(n_bytes: float | int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"


def nested_scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry: PyTree,
    xs: PyTree,
    lengths: Sequence[int],
) -> tuple[PyTree, PyTree]:
    """`lax.scan` in nested blocks, of which reverse mode keeps no more than where they start.

    The product of the lengths may exceed the number of steps: what is too much is skipped.
    """
    n = jax.tree.leaves(xs)[0].shape[0]
    surplus = math.prod(lengths) - n
    if surplus == 0:
        return _scan_blocks(step, carry, xs, lengths)
    _, result = jax.eval_shape(step, carry, jax.tree.map(lambda x: x[0], xs))

    def step_or_skip(carry: PyTree, x: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        wanted, x = x
        blank = jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), result)
        return jax.lax.cond(wanted, step, lambda carry, _: (carry, blank), carry, x)

    wanted = jnp.arange(n + surplus) < n
    xs = jax.tree.map(lambda x: jnp.pad(x, [(0, surplus), *[(0, 0)] * (x.ndim - 1)]), xs)
    carry, ys = _scan_blocks(step_or_skip, carry, (wanted, xs), lengths)
    return carry, jax.tree.map(lambda y: y[:n], ys)


def _scan_blocks(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry: PyTree,
    xs: PyTree,
    lengths: Sequence[int],
) -> tuple[PyTree, PyTree]:
    first, *rest = lengths
    if not rest:
        return jax.lax.scan(step, carry, xs)

    def block(carry: PyTree, xs: PyTree) -> tuple[PyTree, PyTree]:
        return _scan_blocks(step, carry, xs, rest)

    # The steps made again are in a loop of their own, with which the first ones cannot be merged.
    blocks = jax.tree.map(lambda x: x.reshape(first, -1, *x.shape[1:]), xs)
    carry, ys = jax.lax.scan(jax.checkpoint(block, prevent_cse=False), carry, blocks)
    return carry, jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), ys)


def residual_bytes(
    function: Callable[[PyTree, PyTree], Any], changes: PyTree, stays: PyTree
) -> int:
    """Bytes that reverse mode through `function(changes, stays)` keeps for one call of many.

    What follows from `stays` alone is kept once for all of them, and is not counted. Nothing is
    computed; the arguments are trees of float arrays.
    """

    def residuals(changes: PyTree, stays: PyTree) -> list[Any]:
        return jax.tree.leaves(jax.vjp(function, changes, stays)[1])

    jaxpr = jax.make_jaxpr(residuals)(changes, stays).jaxpr
    n = len(jax.tree.leaves(changes))
    moving = _that_follow_from(jaxpr, [k < n for k in range(len(jaxpr.invars))])
    # One value may be needed in several places; it is kept once.
    kept = {x for x, moves in zip(jaxpr.outvars, moving, strict=True) if moves}
    return n_bytes([x.aval for x in kept])


def _that_follow_from(jaxpr: Jaxpr, chosen: Sequence[bool]) -> list[bool]:
    """Which results of a program depend on the chosen ones of its arguments."""
    found = set(itertools.compress(jaxpr.invars, chosen))
    for equation in jaxpr.eqns:
        uses = [isinstance(x, Var) and x in found for x in equation.invars]
        if any(uses):
            inner = equation.params["jaxpr"].jaxpr if equation.primitive.name == "jit" else None
            reached = itertools.repeat(True) if inner is None else _that_follow_from(inner, uses)
            found.update(itertools.compress(equation.outvars, reached))
    return [isinstance(x, Var) and x in found for x in jaxpr.outvars]


def n_bytes(tree: PyTree) -> int:
    """Bytes of the arrays of a tree, or of what will be arrays."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


__all__ = ["MemoryBudget", "halved", "kept_bytes", "n_bytes", "nested_scan", "residual_bytes"]
