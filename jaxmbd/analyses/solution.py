"""A motion, as `simulate` finds it."""

from typing import cast

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..system.abstract import AbstractSystem, State
from .motion import AbstractMotion


class Solution(AbstractMotion):
    """What `simulate` found.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n.
    - `result`: whether it went well, one of `jaxmbd.RESULTS`.
    - `system`: the system that moved.
    - `raw`: the `diffrax.Solution`, with statistics, dense output and event mask.
    """

    ts: Float[Array, "n"]
    states: State
    system: AbstractSystem
    raw: diffrax.Solution

    @staticmethod
    def of(system: AbstractSystem, raw: diffrax.Solution) -> "Solution":
        """From what diffrax returns."""
        ts, states = cast(tuple[Array, State], (raw.ts, raw.ys))
        return Solution(ts, states, system, raw)

    @property
    def result(self) -> diffrax.RESULTS:
        """Whether the motion was found to its end; if not, why."""
        return self.raw.result

    @property
    def t0(self) -> Float[Array, ""]:
        """Start time [s]."""
        return jnp.asarray(self.raw.t0)

    def rows(self, index: np.ndarray) -> "Solution":
        """The same motion at some of its times alone, without the others' states."""
        ts, states = jax.tree.map(lambda x: x[index], (self.ts, self.states))
        return Solution(ts, states, self.system, self.raw)


__all__ = ["Solution"]
