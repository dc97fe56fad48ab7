"""The fast path: a fixed number of fixed steps in a plain scan."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from scalarjit import native_or_traced
from scalarjit.with_room import with_room

from .._joint_tangents import with_joint_tangents
from ..accelerators import widened
from ..errors import ModelError
from ..integrators.abstract import AbstractIntegrator
from ..integrators.explicit import as_integrator
from ..programs import stored
from ..system.abstract import AbstractSystem, State, as_time
from .checkpoints import MemoryBudget, halved, n_bytes, nested_scan, residual_bytes
from .start import as_start, as_system
from .times import check_rollout


def rollout(
    system: Any,
    state: Any,
    dt: Any,
    n_steps: int,
    integrator: Any = None,
    t0: Any = 0.0,
    checkpoint: bool | MemoryBudget = False,
) -> State:
    """States at `t0 + dt`, `t0 + 2 dt`, …, stacked along a leading axis of length `n_steps`.

    A `lax.scan` over the integrator's step, without adaptive steps, events or checks (see
    `simulate`). It batches well and can be differentiated in forward and reverse mode.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `state`: first state; a narrower float type than the system's is converted; or
      `{joint: coordinates}`, the `guess` of `assemble` at `t0`, at rest.
    - `dt`: step [s].
    - `integrator`: an integrator of this package or a diffrax Runge–Kutta method. Default:
      Tsitouras' method of order 5.
    - `checkpoint`: whether reverse mode saves the residuals of about 2 √n_steps steps, instead of
      all, and computes every step once more; or a `MemoryBudget`, which determines how many times
      steps are recomputed.

    **Raises** `IncompatibleIntegrator` if the integrator cannot move the system, and `ModelError`
    if reverse mode does not fit in the budget, `checkpoint` has another type, `n_steps` is not a
    whole number from 1 on, or the state has another shape or a wider float type than the system.

    For example:

        states = mbd.rollout(system, state, dt=0.01, n_steps=20)
        states.q  # (20, 1)
    """
    if not isinstance(checkpoint, bool | MemoryBudget):  # A number would count as True.
        raise ModelError(
            f"rollout: checkpoint must be a bool or a MemoryBudget, got {checkpoint!r}"
        )
    integrator = as_integrator(integrator)
    check_rollout(dt, n_steps, t0)
    system = as_system(system, "rollout")
    integrator.check(system)
    state = as_start(system, state, t0, "rollout", must_be_finite=False)
    dt, t0 = as_time(dt, system), as_time(t0, system)
    return _rollout(system, state, dt, n_steps, integrator, t0, checkpoint)


@stored
@with_room
def _rollout(
    system: AbstractSystem,
    state: State,
    dt: Array,
    n_steps: int,
    integrator: AbstractIntegrator,
    t0: Array,
    checkpoint: bool | MemoryBudget,
) -> State:
    system = system.prepared()
    memory = integrator.start(system, t0, dt, state)
    floats, rest = eqx.partition((system, t0, dt), eqx.is_inexact_array)

    def step(carry: tuple[State, PyTree], n: Array, floats: PyTree) -> tuple[Any, State]:
        system, t0, dt = eqx.combine(floats, rest)
        t = t0 + n * dt
        y, memory = widened(integrator.advance)(system, t, t + dt, *carry)
        return (y, memory), y

    if isinstance(checkpoint, MemoryBudget):
        lengths = _lengths(checkpoint, step, (state, memory), n_steps, floats)
    else:
        lengths = halved(n_steps) if checkpoint else (n_steps,)
    counts = jnp.arange(n_steps, dtype=dt.dtype)

    def run(floats: PyTree, state: State, memory: PyTree, counts: Array) -> State:
        start = with_joint_tangents(state, (state, memory)), memory
        return nested_scan(lambda c, n: step(c, n, floats), start, counts, lengths)[1]

    args = floats, state, memory, counts
    if len(lengths) == 1 and integrator.for_fixed_steps().explicit:
        run = native_or_traced(run, *args)
    return run(*args)


def _lengths(
    budget: MemoryBudget, step: Callable, carry: PyTree, n_steps: int, constants: PyTree
) -> tuple[int, ...]:
    floats, rest = eqx.partition((carry, jnp.zeros(())), eqx.is_inexact_array)

    def one(floats: PyTree, constants: PyTree) -> PyTree:
        return eqx.filter(step(*eqx.combine(floats, rest), constants), eqx.is_inexact_array)

    state, _ = carry
    return budget.lengths(
        n_steps,
        step=residual_bytes(one, floats, constants),
        start=n_bytes(carry),
        result=n_bytes(state),
    )
