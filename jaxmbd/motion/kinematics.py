"""Motion of driven mechanisms without dynamics: positions, velocities and accelerations."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scalarjit.with_room import with_room

from ..errors import AssemblyError, ModelError
from ..model.values import as_leaf, is_concrete
from ..programs import stored, with_progress
from ..programs.tracing import error_if, kernel
from ..system import constraints, sizes
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.equation_residuals import violations
from ..system.projection import projected
from ..system.saddle_point import saddle_point
from .arguments import as_start, as_system
from .motion import AbstractMotion

FREE = 1e-3  # If a larger part of a velocity is in the null space of G, there is a freedom left.


class DrivenMotion(AbstractMotion):
    """Motion of a driven mechanism, the result of `kinematics`.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n.
    - `vdot`: accelerations, shape `(n, nv)`.
    - `system`: the system that moved.
    """

    ts: Float[Array, "n"]
    states: State
    vdot: Float[Array, "n nv"]
    system: AbstractSystem

    def at_rows(self, index: Any) -> "DrivenMotion":
        """The motion at some of its times, for an index that `rows` has checked."""
        ts, states, vdot = jax.tree.map(lambda x: x[index], (self.ts, self.states, self.vdot))
        return DrivenMotion(ts=ts, states=states, vdot=vdot, system=self.system)


@with_progress
def kinematics(
    system: Any,
    ts: Any,
    guess: Mapping[str, Any] | State | None = None,
) -> DrivenMotion:
    """The motion that drivers and joints prescribe, without regard to forces.

    Positions solve g(t, q) = 0 by Newton's method, each from the one before; velocities solve
    G v + g_t = 0; accelerations solve G v̇ + γ = 0. Masses do not matter. `driving_forces` and
    `reactions` compute the forces of drivers and joints. First-order states of elements stay
    constant.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `ts`: times [s], shape `(n,)`, close enough for Newton's method to converge at each time from
      the position before.
    - `guess`: joint values as for `assemble`, or a state, at the first time.

    **Raises** `ModelError` if drivers and joints leave a degree of freedom, as those of bodies of
    springs (`NaturalCoordinates` that are not rigid) do, and if times do not increase;
    `AssemblyError`, with names of joints, constraint residuals and time, if there is no position or
    no velocity, for example if a driver acts on a locked joint, and if a joint is closed the wrong
    way round. Under a transformation these are errors at run time.

    For example:

        drivers = {"motor": mbd.joints.Driver("hinge", mbd.signals.Sine(0.5, 1.0))}
        cycle = mbd.kinematics(model.with_(drivers=drivers), jnp.linspace(0.0, 1.0, 11))
    """
    system = as_system(system, "kinematics")
    ts = as_leaf(ts, None, "kinematics: ts").astype(system.mechanism.dtype)
    if ts.ndim != 1 or ts.shape[0] == 0:
        raise ModelError(f"kinematics: ts must be times, shape (n,), got shape {ts.shape}")
    if is_concrete(ts) and not np.all(np.asarray(ts)[1:] > np.asarray(ts)[:-1]):
        raise ModelError("kinematics: ts must increase from one time to the next")
    start = as_start(system, {} if guess is None else guess, ts[0], "kinematics: guess")
    states, vdot, residuals, free, angles = _march(system, ts, start)
    if is_concrete(residuals):
        _check_branches(system, ts, angles)
        _check(system, ts, states, residuals, free)
    else:
        bad = ~(jnp.max(residuals, initial=0.0) <= _limit(ts)) | (jnp.max(free) > FREE)
        bad = bad | jnp.any(constraints.is_reversed(angles))
        message = (
            "kinematics: the joints do not close, or close the wrong way round, or the drivers "
            "leave a degree of freedom"
        )
        states = eqx.tree_at(lambda y: y.q, states, error_if(states.q, bad, message))
    return DrivenMotion(ts=ts, states=states, vdot=vdot, system=system)


@stored
@with_room
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
        vdot, violated, free = _accelerations(system, t, now)
        angles = constraints.misalignment_angles_at(system, t, now.q)
        return (now, vdot, t), (now, vdot, violated, free, angles)

    # The first step has length zero: the velocity and acceleration at its start do not matter.
    begin = start, jnp.zeros_like(start.v), ts[0]
    states, vdot, (g, rates, speeds, scale), free, angles = jax.lax.scan(step, begin, ts)[1]
    fastest = jnp.max(speeds)
    rates = rates / jnp.where(fastest > 0, fastest, 1.0)
    return states, vdot, jnp.maximum(jnp.abs(g), jnp.abs(rates)) / scale, free, angles


@kernel
def _accelerations(
    system: AbstractSystem, t: Time, state: State
) -> tuple[Velocities, tuple[Array, ...], Float[Array, ""]]:
    """v̇ that the constraints prescribe; `violations` and scales; how free the mechanism is.

    The last is the largest part of any one velocity, in the metric of the mass, that lies in the
    null space of the constraint Jacobian.
    """
    q, v = state.q, state.v
    c = system.configuration(t, q)
    motion = constraints.port_motion(system, c, v)
    bias = constraints.constraint_bias(system, c, v, motion)
    residuals = constraints.residual(system, c)
    noise = constraints.bias_noise(system, motion)
    equations = saddle_point(system, c, residuals, demand=bias, noise=noise)
    zeros = jnp.zeros_like(v)
    vdot, lam = equations.solve(zeros, -bias)
    noise = constraints.noise(system, c, motion, vdot)
    vdot = jnp.where(equations.holds((vdot, lam), zeros, -bias, noise), vdot, jnp.nan)
    free = jnp.max(equations.free_part(), initial=0.0)
    scale = sizes.scales(system, c, constraints.jacobian(system, c))
    return vdot, (*violations(system, c, v, scale), scale), free


def _limit(ts: Float[Array, "n"]) -> float:
    return float(jnp.finfo(ts.dtype).eps) ** 0.5


def _check_branches(
    system: AbstractSystem, ts: Float[Array, "n"], angles: Float[Array, "n k"]
) -> None:
    misaligned = np.asarray(angles)
    bad = np.any(constraints.is_reversed(misaligned), axis=1)
    if bad.any():
        k = int(np.argmax(bad))
        listed = constraints.reversed_joints(constraints.checked_joints(system), misaligned[k])
        raise AssemblyError(
            f"kinematics: at t = {ts[k]:.6g} s these joints are closed the wrong way round: "
            f"{listed}, the misalignment; start from another guess, or take shorter intervals "
            "between times"
        )


def _check(
    system: AbstractSystem,
    ts: Float[Array, "n"],
    states: State,
    residuals: Float[Array, "n ng"],
    free: Float[Array, "n"],
) -> None:
    violation, freedom = np.asarray(residuals), np.asarray(free)
    worst = violation.max(axis=1, initial=0.0)
    bad = ~(worst <= _limit(ts))
    if system.artificial_energy_limit is not None and (bad.any() or (freedom > FREE).any()):
        raise ModelError(
            "kinematics: joints and drivers do not determine bodies that artificial springs hold "
            "together; use NaturalCoordinates(rigid=True)"
        )
    if bad.any():
        k = int(np.argmax(bad))
        names = constraints.row_names(system)
        by_name: dict[str, float] = {}
        least = 1e-3 * np.nan_to_num(worst[k], nan=np.inf)  # Of NaN, the rows that are NaN.
        for name, residual in zip(names, violation[k], strict=True):
            if not residual < least:
                by_name[name] = float(np.maximum(by_name.get(name, 0.0), residual))
        listed = ", ".join(f"{name!r} by {residual:.3g}" for name, residual in by_name.items())
        raise AssemblyError(
            f"kinematics: at t = {ts[k]:.6g} s these stay open, in position or velocity: {listed} "
            "(rad, or part of the extent of the mechanism; of velocities, by the fastest of the "
            "motion); the drivers contradict the joints, or the mechanism passes a singular "
            "position there"
        )
    if (freedom > FREE).any():
        k = int(np.argmax(freedom > FREE))
        where = "" if k == 0 else f" at t = {ts[k]:.6g} s, where the position may be singular"
        names = ", ".join(map(repr, _moving(system, ts[k], jax.tree.map(lambda x: x[k], states))))
        raise ModelError(
            f"kinematics: the drivers leave the mechanism free to move{where}: bodies {names}; "
            "prescribe a joint for each degree of freedom (inspect counts them), or use simulate"
        )


def _moving(system: AbstractSystem, t: Time, state: State) -> list[str]:
    """Names of the bodies that the constraints leave free to move."""
    c = system.configuration(t, state.q, state.z)
    G = np.asarray(constraints.jacobian(system, c))
    _, sigma, V = np.linalg.svd(G)
    rank = int(np.sum(sigma > 1e-6 * sigma.max(initial=0.0)))
    bodies = system.mechanism.topology.bodies
    twists = jax.vmap(c.twists)(jnp.asarray(V[rank:]))[:, : len(bodies)]
    size = np.abs(np.asarray(twists)).max(axis=(0, 2), initial=0.0)
    return [name for name, moved in zip(bodies, size, strict=True) if moved > 1e-6]
