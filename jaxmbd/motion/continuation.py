"""Continuation of a motion to a later time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..model.values import all_concrete
from ..system.abstract import State
from .results import RESULTS
from .simulate import simulate
from .solution import Solution


def continued(motion: Solution, t1: Any, **options: Any) -> Solution:
    """A motion and its continuation from its last finite row; see `Solution.continued`."""
    states = motion.states
    if not isinstance(states, State) or motion.ts.ndim != 1:
        raise ModelError(
            "continued: the motion must have states at saved times, and must not be a batch; take "
            "one motion of a batch with `motion`"
        )
    if "t0" in options:
        raise ModelError("continued: t0 is the last time of the motion; omit it")
    concrete = all_concrete((motion.ts, states, motion.result))
    if concrete and motion.result not in (RESULTS.successful, RESULTS.event_occurred):
        raise ModelError(f"continued: the motion has failed: {RESULTS[motion.result]}")
    if concrete:
        motion = motion.rows(np.flatnonzero(np.isfinite(np.asarray(motion.ts))))
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
    return Solution(ts, states, motion.system, later.rest, later.result, later.impacts)
