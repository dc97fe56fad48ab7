"""Growth of small changes of a state, and the time until which gradients are reliable."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..integrators.abstract import AbstractIntegrator
from ..integrators.explicit import as_integrator
from ..model.values import as_count, as_positive, require_concrete
from ..motion.arguments import as_start, as_system, check_rollout
from ..motion.rollout import rollout
from ..programs import stored, with_progress
from ..system.abstract import AbstractSystem, State, Time, as_time
from ..system.projection import projected

# Singular values of first changes below this part of the largest are round-off.
INDEPENDENT = 1e-3
SHOWN = 12


@dataclass(frozen=True, eq=False)
class TrajectoryGrowth:
    """Growth after each of `n` steps, the result of `trajectory_growth`; `print` it for a table.

    - `ts`: times, shape `(n,)` [s].
    - `growth`: the largest singular value of the derivative of the state at `ts` by the first
      state, shape `(n,)`.
    - `round_off`: `growth` times the ε of the float type: the effect of one rounding at the start.
    - `step_error`: relative change of the derivative with half the step, shape `(n,)`. It contains
      the error of the steps and their rounding.
    - `tolerance`: largest `round_off` and `step_error` of reliable derivatives.
    - `trustworthy_until`: the last time before either passes the tolerance [s]; the start of the
      motion if the first step does, and its end if no step does.
    - `directions`, `n_directions`: number of changes followed, and of all independent changes. If
      the first is smaller, the growth is a lower bound.
    """

    ts: np.ndarray
    growth: np.ndarray
    round_off: np.ndarray
    step_error: np.ndarray
    tolerance: float
    trustworthy_until: float
    directions: int
    n_directions: int

    @property
    def ok(self) -> bool:
        """True if gradients can be relied on to the end."""
        return bool(self.trustworthy_until == self.ts[-1])

    def __str__(self) -> str:
        lines = [f"{'t [s]':>9}  {'growth':>8}  {'round-off':>9}  {'step':>8}"]
        for k in np.unique(np.linspace(0, len(self.ts) - 1, SHOWN).round().astype(int)):
            lines.append(
                f"{self.ts[k]:9.4g}  {self.growth[k]:8.1e}  {self.round_off[k]:9.1e}  "
                f"{self.step_error[k]:8.1e}"
            )
        until = "to the end" if self.ok else f"until {self.trustworthy_until:.4g} s"
        lines.append(f"gradients are right to {self.tolerance:.1g} {until}")
        if self.directions < self.n_directions:
            lines.append(f"by {self.directions} of {self.n_directions} directions: a lower bound")
        return "\n".join(lines)


@with_progress
def trajectory_growth(
    system: Any,
    state: Any,
    dt: Any,
    n_steps: int,
    integrator: Any = None,
    t0: Any = 0.0,
    *,
    tolerance: float = 1e-3,
    directions: int = 32,
    seed: int = 0,
) -> TrajectoryGrowth:
    """Growth of changes of the first state, and the time until which gradients are reliable.

    The derivative of a chaotic motion grows exponentially, and so do its errors by round-off and
    step size: after some time it is not the derivative of the model's motion. A change of a state
    consists of increments of the coordinates (as of `retract`), of the velocities, and of
    first-order states of elements, in their own units (m, rad; m/s, rad/s; A). Changes of the first
    state keep joints closed.

    **Arguments:**

    - `system`, `state`, `dt`, `n_steps`, `integrator`, `t0`: as for `rollout`. The motion is
      computed over 2 `n_steps` steps, with `dt` and with half of it.
    - `tolerance`: largest relative error of a reliable derivative.
    - `directions`: largest number of changes to follow; random ones if there are more.
    - `seed`: seed of random changes.

    **Raises** `IncompatibleIntegrator` if the integrator cannot move the system, and `ModelError`
    under a transformation and if nothing can move.
    """
    require_concrete("trajectory_growth", (system, state))
    caller = "trajectory_growth"
    check_rollout(dt, n_steps, t0, caller)
    directions = as_count(directions, f"{caller}: directions")
    tolerance = as_positive(tolerance, f"{caller}: tolerance")
    integrator = as_integrator(integrator)
    system = as_system(system, caller)
    state = as_start(system, state, t0, caller)
    integrator.check(system)
    dt, t0 = as_time(dt, system), as_time(t0, system)
    n, dtype = 2 * system.nv + system.nz, state.q.dtype
    drawn = np.eye(n) if n <= directions else _orthonormal(n, directions, seed)
    start = jnp.asarray(
        _orthonormal_basis(np.asarray(_projected(system, t0, state, jnp.asarray(drawn, dtype)))),
        dtype,
    )

    if not np.any(start):
        raise ModelError(
            f"{caller}: nothing can move: the joints permit no change of the first state"
        )

    def changes(h: Array) -> Float[np.ndarray, "m n k"]:
        return np.asarray(_changes(system, state, start, h, n_steps, integrator, t0), float)

    coarse, fine = changes(dt)[:n_steps], changes(dt / 2)[1::2]
    with np.errstate(over="ignore", invalid="ignore"):
        growth = _norms(coarse)
        step_error = _norms(coarse - fine) / _norms(fine)
    round_off = growth * float(jnp.finfo(dtype).eps)
    ts = float(t0) + float(dt) * np.arange(1, n_steps + 1)
    bad = ~((round_off <= tolerance) & (step_error <= tolerance))
    first = int(np.argmax(bad)) if bad.any() else n_steps
    until = float(ts[first - 1]) if first > 0 else float(t0)
    return TrajectoryGrowth(ts, growth, round_off, step_error, tolerance, until, drawn.shape[1], n)


def _orthonormal(n: int, k: int, seed: int) -> Float[np.ndarray, "n k"]:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, k)))[0]


def _orthonormal_basis(changes: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Orthonormal changes that span the given ones; zeros instead of dependent ones.

    The given ones are projections of unit changes: all of them are rounding errors if none is
    about as large as one.
    """
    u, size, _ = np.linalg.svd(changes, full_matrices=False)
    return u * (size > INDEPENDENT * np.max(size, initial=1.0))


def _norms(changes: Float[np.ndarray, "m n k"]) -> Float[np.ndarray, "m"]:
    """Largest singular values; infinite if a change is not finite."""
    finite = np.isfinite(changes).all(axis=(1, 2))
    safe = np.where(np.expand_dims(finite, (1, 2)), changes, 0.0)
    norms = np.linalg.norm(safe, ord=2, axis=(1, 2))
    return np.where(finite, norms, np.inf)


def _change(system: AbstractSystem, state: State, rate: State) -> Float[Array, "n"]:
    """Increments, as one vector, from the derivative of a state."""
    return jnp.concatenate([system.velocities(state.q, rate.q), rate.v, rate.z])


@stored
def _projected(
    system: AbstractSystem, t: Time, state: State, changes: Float[Array, "n k"]
) -> Float[Array, "n k"]:
    """Changes, projected so that joints stay closed."""

    def closed(change: Float[Array, "n"]) -> State:
        return projected(system, t, system.displaced(state, change))

    def follow(change: Float[Array, "n"]) -> Float[Array, "n"]:
        return _change(system, *jax.jvp(closed, (jnp.zeros_like(change),), (change,)))

    return jax.vmap(follow, in_axes=1, out_axes=1)(changes)


@stored
def _changes(
    system: AbstractSystem,
    state: State,
    first: Float[Array, "n k"],
    dt: Time,
    n_steps: int,
    integrator: AbstractIntegrator,
    t0: Time,
) -> Float[Array, "m n k"]:
    """Changes of the states after each of 2 `n_steps` steps by changes of the first state."""

    def motion(change: Float[Array, "n"]) -> State:
        start = system.displaced(state, change)
        return rollout(system, start, dt, 2 * n_steps, integrator, t0)

    def follow(change: Float[Array, "n"]) -> Float[Array, "m n"]:
        states, rates = jax.jvp(motion, (jnp.zeros_like(change),), (change,))
        return jax.vmap(lambda y, rate: _change(system, y, rate))(states, rates)

    return jax.vmap(follow, in_axes=1, out_axes=2)(first)
