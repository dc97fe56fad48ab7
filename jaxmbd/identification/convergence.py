"""Log of the cost in every step of a compiled minimization."""

import itertools
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from ..programs.progress import say

_costs: dict[int, list[float]] = {}
_keys = itertools.count()


def open_logs(n: int) -> np.ndarray:
    """Open logs of n minimizations; return their keys, for `log_cost` and `close_logs`."""
    keys = [next(_keys) for _ in range(n)]
    _costs.update({key: [] for key in keys})
    return np.asarray(keys, dtype=np.int32)


def log_cost(key: Int[Array, ""], cost: Float[Array, ""]) -> None:
    """Append a traced cost to a log, in the order of steps."""
    jax.debug.callback(_append, key, cost)


def close_logs(keys: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """Close logs and return their costs."""
    jax.effects_barrier()
    return [np.asarray(_costs.pop(int(key))) for key in keys]


def _append(key: Array, cost: Array) -> None:
    costs = _costs.get(int(key))
    if costs is not None:
        costs.append(float(cost))
        say(f"step {len(costs)}, half the sum of squares {costs[-1]:.6g}")
