"""How fast small changes of a state grow, and how long gradients through the motion mean much."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...integrators.abstract import AbstractIntegrator
from ...integrators.explicit import as_integrator
from ...model.values import all_concrete
from ...system.abstract import AbstractSystem, State, Time, as_state, as_time
from ...system.projection import projected
from ..rollout import rollout

# Changes of the first state that are smaller than this part of the largest one are round-off.
INDEPENDENT = 1e-3
SHOWN = 12


@dataclass(frozen=True, eq=False)
class TrajectoryGrowth:
    """What `trajectory_growth` found; `print` it for a table. Rows are steps, `n` of them.

    - `ts`: times, shape `(n,)` [s].
    - `growth`: the largest singular value of the derivative of the state at `ts` by the first one,
      shape `(n,)`.
    - `round_off`: `growth` times the ε of the float type: what one rounding at the start becomes.
    - `step_error`: by how much the derivative changes with half the step, relative, shape `(n,)`.
      It sees the error of the steps, and the rounding in all of them.
    - `tolerance`: for both.
    - `trustworthy_until`: the last time before either passes the tolerance [s]; the first one of
      the motion where they do at once, and the end of it where they never do.
    - `directions`, `n_directions`: how many changes were followed, of how many in all. Of a part
      of them the growth is a lower bound.
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
        """Whether gradients can be relied on to the end."""
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


def trajectory_growth(
    system: AbstractSystem,
    state: State,
    dt: Any,
    n_steps: int,
    integrator: Any = None,
    t0: Any = 0.0,
    *,
    tolerance: float = 1e-3,
    directions: int = 32,
    seed: int = 0,
) -> TrajectoryGrowth:
    """How much the state at later times changes with the first one, and until when that is known.

    Of a chaotic motion the derivative grows exponentially, and with it what round-off and the error
    of the steps do to it: beyond some time it is that of another motion than the model's. A state's
    change is an increment of the coordinates, as of `retract`, one of the velocities, and one of
    first-order states of elements, all in their own units (m, rad; m/s, rad/s; A); first ones keep
    joints closed.

    **Arguments:**

    - `dt`, `n_steps`, `integrator`, `t0`: as for `rollout`. The motion is followed over 2 `n_steps`
      steps, with `dt` and with half of it.
    - `tolerance`: largest relative error of a derivative to be relied on.
    - `directions`: at most so many changes are followed, random ones where there are more.
    - `seed`: of these.

    **Raises** `IncompatibleIntegrator` where the integrator cannot move the system, and
    `ModelError` under a transformation.
    """
    if not all_concrete((system, state)):
        raise ModelError("trajectory_growth needs concrete numbers; call it outside jit")
    integrator = as_integrator(integrator)
    state = as_state(state, system)
    dt, t0 = as_time(dt, system), as_time(t0, system)
    n, dtype = 2 * system.nv + system.nz, state.q.dtype
    drawn = np.eye(n) if n <= directions else _orthonormal(n, directions, seed)
    start = jnp.asarray(
        _allowed(np.asarray(_projected(system, t0, state, jnp.asarray(drawn, dtype)))), dtype
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


def _allowed(changes: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Orthonormal changes that span the given ones, zeros in the place of superfluous ones."""
    u, size, _ = np.linalg.svd(changes, full_matrices=False)
    return u * (size > INDEPENDENT * np.max(size))


def _norms(changes: Float[np.ndarray, "m n k"]) -> Float[np.ndarray, "m"]:
    """Largest singular values; infinite where a change is not finite."""
    finite = np.isfinite(changes).all(axis=(1, 2))
    kept = np.where(np.expand_dims(finite, (1, 2)), changes, 0.0)
    norms = np.linalg.norm(kept, ord=2, axis=(1, 2))
    return np.where(finite, norms, np.inf)


def _change(system: AbstractSystem, state: State, rate: State) -> Float[Array, "n"]:
    """The increments of a derivative of a state."""
    return jnp.concatenate([system.velocities(state.q, rate.q), rate.v, rate.z])


@eqx.filter_jit
def _projected(
    system: AbstractSystem, t: Time, state: State, changes: Float[Array, "n k"]
) -> Float[Array, "n k"]:
    """The changes that are left when joints are closed again."""

    def closed(change: Float[Array, "n"]) -> State:
        return projected(system, t, system.displaced(state, change))

    def follow(change: Float[Array, "n"]) -> Float[Array, "n"]:
        return _change(system, *jax.jvp(closed, (jnp.zeros_like(change),), (change,)))

    return jax.vmap(follow, in_axes=1, out_axes=1)(changes)


@eqx.filter_jit
def _changes(
    system: AbstractSystem,
    state: State,
    first: Float[Array, "n k"],
    dt: Time,
    n_steps: int,
    integrator: AbstractIntegrator,
    t0: Time,
) -> Float[Array, "m n k"]:
    """Changes of the states after each of 2 `n_steps` steps, by changes of the first one."""

    def motion(change: Float[Array, "n"]) -> State:
        start = system.displaced(state, change)
        return rollout(system, start, dt, 2 * n_steps, integrator, t0)

    def follow(change: Float[Array, "n"]) -> Float[Array, "m n"]:
        states, rates = jax.jvp(motion, (jnp.zeros_like(change),), (change,))
        return jax.vmap(lambda y, rate: _change(system, y, rate))(states, rates)

    return jax.vmap(follow, in_axes=1, out_axes=2)(first)


__all__ = ["TrajectoryGrowth", "trajectory_growth"]
