"""The result of `simulate`."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import all_concrete
from ..system.abstract import AbstractSystem, State
from .impacts import Impacts
from .motion import AbstractMotion
from .results import RESULTS


class Solution(AbstractMotion):
    """Motion of a system, the result of `simulate`.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n, or values of the function of a
      `diffrax.SaveAt`, if it has one. `ts` and `states` are None if only dense output is saved.
    - `result`: one of `jaxmbd.RESULTS`: success if the motion is complete, every saved number is
      finite and every constraint is satisfied; otherwise the cause of failure.
    - `system`: the system that moved.
    - `impacts`: an `Impacts`, the times and contacts of impacts; None unless `simulate` was called
      with `impacts`.
    - `raw`: the `diffrax.Solution`, with statistics, dense output and event mask.
    - `raw_without_samples`: `raw` without `ts` and `ys`, so that no program returns them twice.

    For example:

        motion = mbd.simulate(model, {"hinge": 0.3}, t1=0.5)
        motion.ts, motion.joint("hinge").q, motion.energy.total, motion.reactions["hinge"]
        motion.plot(), motion.to_xarray()
    """

    ts: Any
    states: Any
    system: AbstractSystem
    raw_without_samples: diffrax.Solution
    result: RESULTS
    impacts: Impacts | None

    def __init__(
        self,
        ts: Any,
        states: Any,
        system: AbstractSystem,
        raw: diffrax.Solution,
        result: RESULTS | None = None,
        impacts: Impacts | None = None,
    ):
        self.ts, self.states, self.system = ts, states, system
        self.raw_without_samples = _with_saved(raw, None, None)
        self.result = RESULTS.promote(raw.result) if result is None else result
        self.impacts = impacts

    @staticmethod
    def of(
        system: AbstractSystem,
        raw: diffrax.Solution,
        result: RESULTS | None = None,
        impacts: Impacts | None = None,
    ) -> "Solution":
        """From a diffrax solution. Default of `result`: diffrax's own."""
        return Solution(raw.ts, raw.ys, system, raw, result, impacts)

    @property
    def raw(self) -> diffrax.Solution:
        """The `diffrax.Solution`, with statistics, dense output and event mask."""
        return _with_saved(self.raw_without_samples, self.ts, self.states)

    @property
    def t0(self) -> Float[Array, ""]:
        """Start time [s]."""
        return jnp.asarray(self.raw_without_samples.t0)

    def continued(self, t1: Any, **options: Any) -> "Solution":
        """The motion continued from its last finite row to a later time.

        Step size control and implicit integrators start anew. Pass `max_steps` and `saveat` under
        a transformation; the result is then the continuation alone.

        **Arguments:** `t1`: the new last time [s]; `options`: as for `simulate`, without `t0`. They
        are not those of the motion: pass `dt`, `controller` and `integrator` again.

        **Returns** a `Solution` with the rows of both parts; `raw`, `result` and `impacts` are
        those of the continuation.

        **Raises** `ModelError` for a motion that has failed, a batch, or a motion without states at
        saved times; and the errors of `simulate`.
        """
        from .simulate import simulate  # Which returns this class.

        motion, states = self, self.states
        if not isinstance(states, State) or motion.ts.ndim != 1:
            raise ModelError(
                "continued: the motion must have states at saved times, and must not be a batch; "
                "take one motion of a batch with `motion`"
            )
        if "t0" in options:
            raise ModelError("continued: t0 is the last time of the motion; omit it")
        concrete = all_concrete((motion.ts, states, motion.result))
        if concrete and motion.result not in (RESULTS.successful, RESULTS.event_occurred):
            raise ModelError(f"continued: the motion has failed: {RESULTS[motion.result]}")
        if concrete:
            motion = self.rows(np.flatnonzero(np.isfinite(np.asarray(motion.ts))))
            if motion.ts.shape[0] == 0:
                raise ModelError("continued: the motion has no row with a finite time")
        ts, states = motion.ts, motion.states
        row = jnp.maximum(jnp.sum(jnp.isfinite(ts)) - 1, 0)
        start = jax.tree.map(lambda x: x[row], states)
        later = simulate(motion.system, start, t0=ts[row], t1=t1, **options)
        if not isinstance(later.states, State):
            raise ModelError("continued: give times in saveat, without `fn` and `subs`")
        if not concrete:
            return later
        # The first row of the continuation is the last one of the motion.
        new = np.flatnonzero(np.asarray(later.ts) > float(ts[row]))
        both = (ts, states), (later.ts, later.states)
        ts, states = jax.tree.map(lambda a, b: jnp.concatenate([a, b[new]]), *both)
        return Solution(
            ts, states, motion.system, later.raw_without_samples, later.result, later.impacts
        )

    def at_rows(self, index: Any) -> "Solution":
        """The motion at some of its times, for an index that `rows` has checked."""
        ts, states = jax.tree.map(lambda x: x[index], (self.ts, self.states))
        return Solution(
            ts, states, self.system, self.raw_without_samples, self.result, self.impacts
        )


def _with_saved(raw: diffrax.Solution, ts: Any, ys: Any) -> diffrax.Solution:
    return eqx.tree_at(lambda s: (s.ts, s.ys), raw, (ts, ys), is_leaf=lambda x: x is None)
