"""Motion of driven mechanisms without dynamics: positions, velocities and accelerations."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import AssemblyError, ModelError
from ..model.values import as_leaf, is_concrete
from ..system import branches, constraints
from ..system.abstract import AbstractSystem, State, Time, Velocities, as_state
from ..system.projection import projected
from ..system.residuals import constraint_rates
from ..system.saddle_point import saddle_point
from .assemble import assemble
from .motion import AbstractMotion

FREE = 1e-3  # A part of a velocity that no constraint sees, from which on it is free.


class DrivenMotion(AbstractMotion):
    """What `kinematics` found.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n.
    - `vdot`: accelerations, shape `(n, nv)`.
    - `system`: the system that moved.
    """

    ts: Float[Array, "n"]
    states: State
    vdot: Float[Array, "n nv"]
    system: AbstractSystem

    def rows(self, index: np.ndarray) -> "DrivenMotion":
        """The same motion at some of its times alone."""
        ts, states, vdot = jax.tree.map(lambda x: x[index], (self.ts, self.states, self.vdot))
        return DrivenMotion(ts=ts, states=states, vdot=vdot, system=self.system)


def kinematics(
    system: AbstractSystem,
    ts: Any,
    guess: Mapping[str, Any] | State | None = None,
) -> DrivenMotion:
    """The motion that drivers and joints prescribe, without regard to forces.

    Positions from g(t, q) = 0 by Newton's method, each from the one before; velocities from
    G v + g_t = 0; accelerations from G v̇ + γ = 0. Masses do not matter. What drives have to give
    for it say `driving_forces`, `reactions` what joints carry. First-order states of elements stay
    those of the first time.

    **Arguments:**

    - `ts`: times [s], shape `(n,)`, close enough for Newton's method to get from one to the next.
    - `guess`: what `assemble` takes, or a state, at the first time.

    **Raises** `ModelError` where drivers and joints leave a degree of freedom, and for times that
    do not increase; `AssemblyError`, naming the joints, their gaps and the time, where there is no
    position or no velocity, such as where a driver works against a locked joint, and where a joint
    is closed the wrong way round. Under a transformation these are errors at run time.
    """
    ts = as_leaf(ts, None, "kinematics: ts").astype(system.mechanism.dtype)
    if ts.ndim != 1 or ts.shape[0] == 0:
        raise ModelError(f"kinematics: ts must be times, shape (n,), got shape {ts.shape}")
    if is_concrete(ts) and not np.all(np.asarray(ts)[1:] > np.asarray(ts)[:-1]):
        raise ModelError("kinematics: ts must increase from one time to the next")
    if isinstance(guess, State):
        start = as_state(guess, system, "guess")
    else:
        start = assemble(system, guess, t=ts[0])
    states, vdot, gaps, free, angles = _march(system, ts, start)
    if is_concrete(gaps):
        _check_branches(system, ts, angles)
        _check(system, ts, states, gaps, free)
    else:
        bad = ~(jnp.max(gaps, initial=0.0) < _limit(ts)) | (jnp.max(free) > FREE)
        bad = bad | jnp.any(branches.is_reversed(angles))
        message = (
            "kinematics: the joints do not close, or the wrong way round, or the drivers leave a "
            "freedom"
        )
        states = eqx.tree_at(lambda y: y.q, states, eqx.error_if(states.q, bad, message))
    return DrivenMotion(ts=ts, states=states, vdot=vdot, system=system)


@eqx.filter_jit
def _march(
    system: AbstractSystem, ts: Float[Array, "n"], start: State
) -> tuple[
    State, Float[Array, "n nv"], Float[Array, "n ng"], Float[Array, "n"], Float[Array, "n k"]
]:
    system = system.prepared()

    def step(carry: tuple[State, Velocities, Time], t: Time) -> tuple[Any, Any]:
        state, vdot, before = carry
        h = t - before
        ahead = system.retract(state.q, h * state.v + 0.5 * h * h * vdot)
        now = projected(system, t, State(ahead, state.v + h * vdot, state.z))
        vdot, gaps, free = _accelerations(system, t, now)
        angles = branches.angles_at(system, t, now.q)
        return (now, vdot, t), (now, vdot, gaps, free, angles)

    # The first step goes nowhere, so that what it would follow does not matter.
    return jax.lax.scan(step, (start, jnp.zeros_like(start.v), ts[0]), ts)[1]


def _accelerations(
    system: AbstractSystem, t: Time, state: State
) -> tuple[Velocities, Float[Array, "ng"], Float[Array, ""]]:
    """v̇ of the constraints alone; what is left of g and ġ; and how free the mechanism is.

    The last is the largest part of any one velocity, in the metric of the mass, that no constraint
    sees.
    """
    q, v = state.q, state.v
    c = system.configuration(t, q)
    motion = constraints.port_motion(system, c, v)
    bias = constraints.constraint_bias(system, c, v, motion)
    gaps = constraints.residual(system, c)
    equations = saddle_point(system, c, gaps, demand=bias)
    zeros = jnp.zeros_like(v)
    vdot, lam = equations.solve(zeros, -bias)
    vdot = jnp.where(
        equations.holds((vdot, lam), zeros, -bias, motion.noise(c, vdot)), vdot, jnp.nan
    )
    rates = constraint_rates(system, c, v)
    size = 1.0 + jnp.max(jnp.abs(v), initial=0.0)
    return vdot, jnp.maximum(jnp.abs(gaps), jnp.abs(rates) / size), jnp.max(equations.unseen())


def _limit(ts: Float[Array, "n"]) -> float:
    return float(jnp.finfo(ts.dtype).eps) ** 0.5


def _check_branches(
    system: AbstractSystem, ts: Float[Array, "n"], angles: Float[Array, "n k"]
) -> None:
    found = np.asarray(angles)
    bad = np.any(branches.is_reversed(found), axis=1)
    if bad.any():
        k = int(np.argmax(bad))
        listed = branches.reversed_joints(branches.checked_joints(system), found[k])
        raise AssemblyError(
            f"kinematics: at t = {ts[k]:.6g} s these joints are closed the wrong way round: "
            f"{listed}, the angle to what they allow; start from another guess, or with shorter "
            "times from one to the next"
        )


def _check(
    system: AbstractSystem,
    ts: Float[Array, "n"],
    states: State,
    gaps: Float[Array, "n ng"],
    free: Float[Array, "n"],
) -> None:
    found, left = np.asarray(gaps), np.asarray(free)
    worst = found.max(axis=1, initial=0.0)
    bad = ~(worst < _limit(ts))
    if bad.any():
        k = int(np.argmax(bad))
        names = constraints.row_names(system)
        by_name: dict[str, float] = {}
        for name, gap in zip(names, found[k], strict=True):
            if not gap < 1e-3 * worst[k]:
                by_name[name] = max(by_name.get(name, 0.0), float(gap))
        listed = ", ".join(f"{name!r} by {gap:.3g}" for name, gap in by_name.items())
        raise AssemblyError(
            f"kinematics: at t = {ts[k]:.6g} s these stay open, in position or velocity: {listed} "
            "(m, rad, or these per s relative to the motion); the drivers want what the joints do "
            "not allow, or the mechanism passes a singular position there"
        )
    if (left > FREE).any():
        k = int(np.argmax(left > FREE))
        where = "" if k == 0 else f" at t = {ts[k]:.6g} s, where the position may be singular"
        names = ", ".join(map(repr, _moving(system, ts[k], jax.tree.map(lambda x: x[k], states))))
        raise ModelError(
            f"kinematics: the drivers leave the mechanism free to move{where}: bodies {names}; "
            "prescribe a joint for each degree of freedom (inspect counts them), or use simulate"
        )


def _moving(system: AbstractSystem, t: Time, state: State) -> list[str]:
    """Names of the bodies that move where constraints leave a choice."""
    c = system.configuration(t, state.q, state.z)
    G = np.asarray(constraints.jacobian(system, c))
    _, sigma, V = np.linalg.svd(G)
    rank = int(np.sum(sigma > 1e-6 * sigma.max(initial=0.0)))
    bodies = system.mechanism.topology.bodies
    twists = jax.vmap(c.twists)(jnp.asarray(V[rank:]))[:, : len(bodies)]
    size = np.abs(np.asarray(twists)).max(axis=(0, 2), initial=0.0)
    return [name for name, moved in zip(bodies, size, strict=True) if moved > 1e-6]


__all__ = ["DrivenMotion", "kinematics"]
