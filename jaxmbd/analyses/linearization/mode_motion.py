"""The motion of one mode around an operating point, to animate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...bodies import FlexibleBody
from ...programs import stored
from ...system.abstract import AbstractSystem, State, Time, Velocities
from ...system.projection import project_positions, project_velocities
from ..motion import AbstractMotion
from .linearization import Linearization

# Largest rotation of a body [rad], and largest displacement of one relative to the mechanism.
TURN, PART = 0.2, 0.1
FRAMES = 32  # Times in a period.


class ModeMotion(AbstractMotion):
    """States of a system in the motion of one mode."""

    ts: Float[Array, "n"]
    states: State
    system: AbstractSystem

    def at_rows(self, index: Any) -> "ModeMotion":
        """The motion at some of its times, for an index that `rows` has checked."""
        ts, states = jax.tree.map(lambda x: x[index], (self.ts, self.states))
        return ModeMotion(ts, states, self.system)


def mode_motion(
    linearization: Linearization,
    eigenvalue: complex,
    shape: np.ndarray,
    amplitude: float | None,
    n_periods: int,
) -> ModeMotion:
    """q₀ ⊞ a Re(E p exp(iωt)), projected onto the constraints.

    A mode that does not oscillate moves with a period of 2π / |λ|, or of 1 s if λ = 0.
    """
    at = linearization
    delta = np.asarray(at.directions.displacements) @ shape[: len(at.coordinates)]
    omega = abs(eigenvalue.imag) or abs(eigenvalue) or 2 * np.pi
    if amplitude is None:
        parts = [
            _reach(at.system, at.t, at.state, jnp.asarray(x))
            for x in (np.real(delta), np.imag(delta))
        ]
        largest = float(max(parts))
        amplitude = 1.0 / largest if largest > 0 else 0.0
    phase = np.linspace(0.0, 2 * np.pi * n_periods, FRAMES * n_periods + 1)
    turning = amplitude * np.exp(1j * phase)[:, None] * delta
    dtype = at.state.q.dtype
    dq, dv = (jnp.asarray(np.real(x), dtype) for x in (turning, 1j * omega * turning))
    states = _states(at.system, at.t, at.state, dq, dv)
    return ModeMotion(jnp.asarray(phase / omega, dtype), states, at.system)


@stored
def _reach(system: AbstractSystem, t: Time, state: State, delta: Velocities) -> Float[Array, ""]:
    """Largest displacement of a body or node in units of its limits."""
    c = system.configuration(t, state.q, state.z)
    twists = c.twists(delta)
    size, displacement = jnp.max(jnp.ptp(c.ports.p, axis=0)), jnp.max(jnp.abs(twists[:, :3]))
    for group in system.mechanism.bodies:
        if isinstance(group.body, FlexibleBody):
            args = group.body, group.own(c.elastic), group.own(c.elastic_rates(delta))
            displacement = jnp.maximum(displacement, jnp.max(jnp.abs(jax.vmap(_deformed)(*args))))
            size = jnp.maximum(size, jnp.max(jnp.ptp(group.body.positions, axis=1)))
    linear = displacement / (PART * jnp.where(size > 0, size, 1.0))
    return jnp.maximum(linear, jnp.max(jnp.abs(twists[:, 3:])) / TURN)


def _deformed(
    body: FlexibleBody, eta: Float[Array, "k"], delta: Float[Array, "k"]
) -> Float[Array, "n_nodes 3"]:
    """Displacements of nodes in the body's frame for small changes of η."""

    def displacements(eta: Float[Array, "k"]) -> Float[Array, "n_nodes 3"]:
        return jnp.einsum("nai,a->ni", body.translations, body.coefficients(eta)[1:])

    return jax.jvp(displacements, (eta,), (delta,))[1]


@stored
def _states(
    system: AbstractSystem,
    t: Time,
    state: State,
    dq: Float[Array, "n nv"],
    dv: Float[Array, "n nv"],
) -> State:
    def one(dq: Velocities, dv: Velocities) -> State:
        q = project_positions(system, t, system.retract(state.q, dq))
        v = project_velocities(system, t, State(q, dv, state.z))
        return State(q, v, state.z)

    return jax.vmap(one)(dq, dv)


__all__ = ["ModeMotion", "mode_motion"]
