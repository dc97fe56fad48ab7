"""The fast path: a fixed number of fixed steps in a plain scan."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..integrators.abstract import AbstractIntegrator
from ..integrators.explicit import as_integrator
from ..system.abstract import AbstractSystem, State, as_time


def rollout(
    system: AbstractSystem,
    state: State,
    dt: Any,
    n_steps: int,
    integrator: Any = None,
    t0: Any = 0.0,
    checkpoint: bool = False,
) -> State:
    """States at `t0 + dt`, `t0 + 2 dt`, …, stacked along a leading axis of length `n_steps`.

    No adaptive steps, events or checks: a `lax.scan` over the integrator's step, which batches
    well and can be differentiated forward and in reverse. `simulate` does the rest.

    **Arguments:**

    - `dt`: [s].
    - `integrator`: an integrator of this package or a diffrax Runge–Kutta method, Tsitouras' of
      order 5 where it is left out.
    - `checkpoint`: whether reverse mode keeps what about 2 √n_steps steps need, not all of them,
      and makes every step once more.

    **Raises** `IncompatibleIntegrator` where the integrator cannot move the system.
    """
    integrator = as_integrator(integrator)
    dt, t0 = as_time(dt, system), as_time(t0, system)
    return _rollout(system, state, dt, n_steps, integrator, t0, checkpoint)


@eqx.filter_jit
def _rollout(
    system: AbstractSystem,
    state: State,
    dt: Array,
    n_steps: int,
    integrator: AbstractIntegrator,
    t0: Array,
    checkpoint: bool,
) -> State:
    system = system.prepared()
    terms = integrator.terms(system)
    memory = integrator.start(terms, t0, dt, state, system)

    def step(carry: tuple[State, PyTree], n: Array) -> tuple[tuple[State, PyTree], State]:
        t = t0 + n * dt
        y, memory = integrator.advance(terms, t, t + dt, *carry, system)
        return (y, memory), y

    counts = jnp.arange(n_steps, dtype=dt.dtype)
    if not checkpoint:
        return jax.lax.scan(step, (state, memory), counts)[1]

    @jax.checkpoint
    def block(carry: tuple[State, PyTree], counts: Array) -> tuple[tuple[State, PyTree], State]:
        return jax.lax.scan(step, carry, counts)

    length = max(1, math.isqrt(n_steps))
    n = n_steps - n_steps % length
    carry, blocks = jax.lax.scan(block, (state, memory), counts[:n].reshape(-1, length))
    _, rest = jax.lax.scan(step, carry, counts[n:])
    return jax.tree.map(lambda a, b: jnp.concatenate([a.reshape(n, *a.shape[2:]), b]), blocks, rest)
