"""A motion, as `simulate` finds it."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import RESULTS
from ..system.abstract import AbstractSystem
from .motion import AbstractMotion


class Solution(AbstractMotion):
    """What `simulate` found.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n; what the function of a `diffrax.SaveAt`
      returns in the place of states, if it has one. Both are None if dense output alone is kept.
    - `result`: whether the motion was found to its end, every saved number is finite and every
      constraint holds; one of `jaxmbd.RESULTS`, which says what went wrong otherwise.
    - `system`: the system that moved.
    - `raw`: the `diffrax.Solution`, with statistics, dense output and event mask.
    """

    ts: Any
    states: Any
    system: AbstractSystem
    raw: diffrax.Solution
    result: RESULTS

    def __init__(
        self,
        ts: Any,
        states: Any,
        system: AbstractSystem,
        raw: diffrax.Solution,
        result: RESULTS | None = None,
    ):
        self.ts, self.states, self.system, self.raw = ts, states, system, raw
        self.result = RESULTS.promote(raw.result) if result is None else result

    @staticmethod
    def of(
        system: AbstractSystem, raw: diffrax.Solution, result: RESULTS | None = None
    ) -> "Solution":
        """From what diffrax returns; the result is diffrax's own if there is no other."""
        return Solution(raw.ts, raw.ys, system, raw, result)

    @property
    def t0(self) -> Float[Array, ""]:
        """Start time [s]."""
        return jnp.asarray(self.raw.t0)

    def rows(self, index: np.ndarray) -> "Solution":
        """The same motion at some of its times alone, without the others' states."""
        ts, states = jax.tree.map(lambda x: x[index], (self.ts, self.states))
        return Solution(ts, states, self.system, self.raw, self.result)


__all__ = ["Solution"]
