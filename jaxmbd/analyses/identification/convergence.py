"""The cost step by step, heard from inside a compiled minimization."""

import itertools
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Int

_costs: dict[int, list[float]] = {}
_keys = itertools.count()


def listen(n: int) -> np.ndarray:
    """Keys of n minimizations, under each of which `note` remembers costs until `heard`."""
    keys = [next(_keys) for _ in range(n)]
    _costs.update({key: [] for key in keys})
    return np.asarray(keys, dtype=np.int32)


def note(key: Int[Array, ""], cost: Float[Array, ""]) -> None:
    """Remember a cost (traced), in the order of steps."""
    jax.debug.callback(_remember, key, cost)


def heard(keys: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """The costs of every key, which are forgotten."""
    jax.effects_barrier()
    return [np.asarray(_costs.pop(int(key))) for key in keys]


def _remember(key: Array, cost: Array) -> None:
    costs = _costs.get(int(key))
    if costs is not None:
        costs.append(float(cost))


__all__ = ["heard", "listen", "note"]
