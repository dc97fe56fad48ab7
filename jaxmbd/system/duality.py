"""The generic path: what follows from the twists of bodies alone.

Formulations have faster ways; these functions are their oracle and serve new formulations until
they have one.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import RigidBody
from ..lie import se3, so3
from .abstract import AbstractSystem, Coordinates, Time, Velocities
from .configuration import AbstractConfiguration


def spatial_inertia(body: RigidBody) -> Float[Array, "6 6"]:
    """Inertia of one body for twists taken at its frame: [[m 1, -m ĉ], [m ĉ, J - m ĉ ĉ]]."""
    c = so3.hat(body.com)
    linear = body.mass * jnp.eye(3, dtype=c.dtype)
    angular = body.symmetric_inertia() - body.mass * (c @ c)
    return jnp.block([[linear, -body.mass * c], [body.mass * c, angular]])


def momentum_of(body: RigidBody, V: Float[Array, "6"]) -> Float[Array, "6"]:
    """Spatial inertia times twist, without forming the matrix."""
    linear = body.mass * (V[:3] + so3.cross(V[3:], body.com))
    angular = body.symmetric_inertia() @ V[3:] + so3.cross(body.com, linear)
    return jnp.concatenate([linear, angular])


def inertial_factor(body: RigidBody) -> Float[Array, "6 6"]:
    """L of the spatial inertia L Lᵀ of one body."""
    return jnp.linalg.cholesky(spatial_inertia(body))


def inertial_wrench(
    body: RigidBody, V: Float[Array, "6"], A: Float[Array, "6"]
) -> Float[Array, "6"]:
    """I A + V ×* I V: what a body needs for the twist V to change by A along its own axes."""
    return momentum_of(body, A) + se3.cross_wrench(V, momentum_of(body, V))


def twist_rates(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities, vdot: Velocities
) -> Float[Array, "n_ports 6"]:
    """Time derivative of the twist of every port, each along its own moving axes."""

    def twists(t: Time, q: Coordinates, v: Velocities) -> Array:
        return system.configuration(t, q).twists(v)

    tangents = (jnp.ones_like(c.t), system.rates(c.q, v), vdot)
    return jax.jvp(twists, (c.t, c.q, v), tangents)[1]


def mass_by_duality(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "nv nv"]:
    """M = Σ Jᵀ I J over bodies and rotors, J by differentiating the velocity maps."""
    mechanism = system.mechanism
    units = jnp.eye(system.nv, dtype=c.q.dtype)
    J = jax.vmap(c.twists, out_axes=-1)(units)[1 : mechanism.n_bodies + 1]
    inertia = jax.vmap(spatial_inertia)(mechanism.bodies)
    total = jnp.einsum("bik,bij,bjl->kl", J, inertia, J)
    for group in mechanism.rotors:
        rates = jax.vmap(lambda v, g=group.group: c.rates(g, v), out_axes=-1)(units)
        spin = group.rows.take(rates)[:, 0]
        reflected = jax.vmap(lambda rotor: rotor.reflected_inertia())(group.rotor)
        total = total + jnp.einsum("nk,n,nl->kl", spin, reflected, spin)
    return total


def bias_by_duality(system: AbstractSystem, c: AbstractConfiguration, v: Velocities) -> Velocities:
    """b = Σ Jᵀ (I V̇ + V ×* I V) at v̇ = 0 over bodies (and rotors on fixed joint axes)."""
    bodies = slice(1, system.mechanism.n_bodies + 1)
    V = c.twists(v)[bodies]
    A = twist_rates(system, c, v, jnp.zeros_like(v))[bodies]
    W = jax.vmap(inertial_wrench)(system.mechanism.bodies, V, A)
    return jax.linear_transpose(lambda v: c.twists(v)[bodies], v)(W)[0]


__all__ = [
    "bias_by_duality",
    "inertial_factor",
    "inertial_wrench",
    "mass_by_duality",
    "momentum_of",
    "spatial_inertia",
    "twist_rates",
]
