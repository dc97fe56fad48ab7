"""The fast path: a fixed number of fixed steps in a plain scan."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..integrators.explicit import as_integrator
from ..system.abstract import AbstractSystem, State, as_time


def rollout(
    system: AbstractSystem,
    state: State,
    dt: Any,
    n_steps: int,
    integrator: Any = None,
    t0: Any = 0.0,
) -> State:
    """States at `t0 + dt`, `t0 + 2 dt`, …, stacked along a leading axis of length `n_steps`.

    No adaptive steps, events or checks: a `lax.scan` over the integrator's step, which transforms
    and batches well. `simulate` does the rest.

    **Arguments:** `dt` [s]; `integrator`, an integrator of this package or a diffrax Runge–Kutta
    method, Tsitouras' of order 5 where it is left out.

    **Raises** `IncompatibleIntegrator` where the integrator cannot move the system.
    """
    integrator = as_integrator(integrator)
    return _rollout(system, state, as_time(dt, system), n_steps, integrator, as_time(t0, system))


@eqx.filter_jit
def _rollout(system, state, dt, n_steps, integrator, t0):
    terms = integrator.terms(system)
    memory = _as_arrays(integrator.init(terms, t0, t0 + dt, state, system))
    arrays, static = eqx.partition(memory, eqx.is_array)

    def step(carry, n):
        y, arrays = carry
        memory = eqx.combine(arrays, static)
        t = t0 + n * dt
        y, _, _, memory, _ = integrator.step(terms, t, t + dt, y, system, memory, made_jump=False)
        return (y, eqx.filter(_as_arrays(memory), eqx.is_array)), y

    counts = jnp.arange(n_steps, dtype=dt.dtype)
    _, states = jax.lax.scan(step, (state, arrays), counts)
    return states


def _as_arrays(memory: Any) -> Any:
    """Solvers keep plain Python flags among their arrays; a scan carries arrays only."""
    return jax.tree.map(lambda x: jnp.asarray(x) if eqx.is_array_like(x) else x, memory)
