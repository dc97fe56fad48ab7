"""The result of `simulate`."""

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
    """Motion of a system, the result of `simulate`.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n, or values of the function of a
      `diffrax.SaveAt`, if it has one. `ts` and `states` are None if only dense output is saved.
    - `result`: one of `jaxmbd.RESULTS`: success if the motion is complete, every saved number is
      finite and every constraint is satisfied; otherwise the cause of failure.
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
        """From a diffrax solution. Default of `result`: diffrax's own."""
        return Solution(raw.ts, raw.ys, system, raw, result)

    @property
    def t0(self) -> Float[Array, ""]:
        """Start time [s]."""
        return jnp.asarray(self.raw.t0)

    def rows(self, index: np.ndarray) -> "Solution":
        """The motion at some of its times."""
        ts, states = jax.tree.map(lambda x: x[index], (self.ts, self.states))
        return Solution(ts, states, self.system, self.raw, self.result)


__all__ = ["Solution"]
