"""Impulses of impacts: velocities after a collision at one point of contact.

    M (v⁺ - v⁻) = Gᵀ Λ + Jᵀ P,   G v⁺ + g_t = 0

J is the Jacobian of the relative velocity w at the point, P the impulse on the solid, and Λ are the
impulses of the constraints.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..contact import Restitution
from ..lie import vector
from . import constraints
from .abstract import AbstractSystem, State, Time, Velocities
from .configuration import AbstractConfiguration
from .projection import project_velocities
from .saddle_point import saddle_point
from .surfaces import Surfaces

Vector = Float[Array, "3"]


class Collision(NamedTuple):
    """Velocities after an impact.

    - `v`: shape `(nv,)`.
    - `impulse`: on the solid, along the axes of the base, shape `(3,)` [N s].
    - `approach`: speed of approach before the impact [m/s].
    - `solved`: whether the impulse pushes and adds no energy.
    """

    v: Velocities
    impulse: Vector
    approach: Float[Array, ""]
    solved: Bool[Array, ""]


def collision(
    system: AbstractSystem,
    surfaces: Surfaces,
    t: Time,
    state: State,
    point: Int[Array, ""],
    law: Restitution,
) -> Collision:
    """Velocities after an impact at one point of contact, whose index is `point`."""
    c = system.configuration(t, state.q, state.z)
    before = project_velocities(system, t, state)
    normal = surfaces.at(c, before).normal[point]

    def velocity(v: Velocities) -> Vector:
        return surfaces.at(c, v).velocity[point]

    w, tangent = jax.linearize(velocity, before)
    J = jax.vmap(jax.linear_transpose(tangent, before))(jnp.eye(3, dtype=w.dtype))[0]
    responses = _responses(system, c, J)
    W = J @ responses.T
    impulse = _impulse(W, w, normal, law)
    after = w + W @ impulse
    # Rounding errors of an impact without loss.
    rounding = 1e3 * float(jnp.finfo(w.dtype).eps) * (jnp.abs(impulse) @ (jnp.abs(w)))
    solved = (impulse @ normal > 0) & (impulse @ (w + after) <= rounding)
    v = before + impulse @ responses
    v = project_velocities(system, t, State(state.q, v, state.z))
    return Collision(v, impulse, -(normal @ w), solved)


def _responses(
    system: AbstractSystem, c: AbstractConfiguration, J: Float[Array, "3 nv"]
) -> Float[Array, "3 nv"]:
    """Changes of the velocities by unit impulses at the point, with those of the constraints."""
    if constraints.n_constraints(system) == 0:
        return system.solve_mass(c, J.T).T
    g = constraints.residual(system, c)
    equations = saddle_point(system, c, g)
    return jax.vmap(lambda f: equations.solve(f, jnp.zeros_like(g))[0])(J)


def _impulse(W: Float[Array, "3 3"], w: Vector, n: Vector, law: Restitution) -> Vector:
    """The impulse of `Restitution`, from W and the velocity w before the impact."""
    e, mu = law.restitution.astype(w.dtype), law.friction.astype(w.dtype)
    approach = n @ w
    sticking = _solve(W, -e * approach * n - w)
    pressing = sticking @ n
    tangential = sticking - pressing * n
    direction = vector.direction(tangential)
    sticks = vector.length(tangential) <= mu * pressing
    cone = n + mu * direction
    slope = n @ W @ cone
    # A slope that is not positive has no impulse: infinite, which `solved` reports.
    size = jnp.where(slope > 0, -(1.0 + e) * approach / jnp.where(slope > 0, slope, 1.0), -1.0)
    return jnp.where(sticks, sticking, size * cone)


def _solve(W: Float[Array, "3 3"], b: Vector) -> Vector:
    """Solve W P = b, in the directions in which impulses change the velocity.

    In a plane mechanism W has no response out of the plane. A small multiple of 1 makes it regular,
    and one step of refinement removes the effect of this multiple.
    """
    small = float(jnp.finfo(b.dtype).eps) ** 0.75 * jnp.trace(W)
    regular = W + jax.lax.stop_gradient(small) * jnp.eye(3, dtype=b.dtype)
    first = jnp.linalg.solve(regular, b)
    return first + jnp.linalg.solve(regular, b - W @ first)


__all__ = ["Collision", "collision"]
